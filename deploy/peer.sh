# Installs a Python with a peer's packages outside the repository; sourced by the peers' scripts.
#
#   XDG_CACHE_HOME   its parent folder, shared by clones (default: ~/.cache)
source "$(dirname "${BASH_SOURCE[0]}")/pip.sh"

# peer NAME CHOOSE MODULE: prints the path of a Python with the packages of deploy/wheels/NAME.txt, each verified by its
# hash; installs it if missing. CHOOSE prints the Python to install with; MODULE must be importable in the end. Exit
# code 3: pip cannot get the packages here, or no Python fits them. 1, with a sentence: a wheel has another hash.
peer() {
    local name=$1 choose=$2 module=$3 cache folder python checksum code=0
    cache=${XDG_CACHE_HOME:-}
    [[ $cache == /* ]] || cache=${HOME:?set HOME or XDG_CACHE_HOME: peers are kept under it}/.cache
    checksum=$(sha256sum <"$wheels/$name.txt") # Other wheels have another folder.
    folder=$cache/kith/$name-${checksum:0:12}
    mkdir -p "$cache/kith"
    exec 9>"$folder.lock"
    flock -w 3000 9 || {
        printf 'error: another process is making %s\n' "$folder" >&2
        exit 1
    }
    if [[ ! -e $folder/ready ]]; then
        python=$("$choose") || exit 3
        printf 'getting the packages of deploy/wheels/%s.txt (once)\n' "$name" >&2
        rm -rf "$folder"
        { "$python" -m venv "$folder" >&2 &&
            checked_pip "$folder/bin/python" install "$name" --quiet >&2 &&
            "$folder/bin/python" -c "import $module" >&2; } || code=$?
        if ((code)); then
            rm -rf "$folder"
            ((code != 4)) || exit 1
            printf 'pip cannot get the packages of deploy/wheels/%s.txt\n' "$name" >&2
            exit 3
        fi
        touch "$folder/ready"
    fi
    printf '%s\n' "$folder/bin/python"
}
