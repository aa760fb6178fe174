# A Python with a peer's packages, outside the repository; sourced by the scripts of the peers.
#
#   XDG_CACHE_HOME   where it is kept, shared by clones (default: ~/.cache)

# peer NAME CHOOSE MODULE PACKAGE...: prints the path of a Python that has the packages, made in a folder called NAME if it
# is not there yet. CHOOSE prints the Python to make it with; MODULE must be importable in the end. Exit code 3: pip
# cannot get the packages here, or no Python fits them.
peer() {
    local name=$1 choose=$2 module=$3 cache folder python
    shift 3
    cache=${XDG_CACHE_HOME:-}
    [[ $cache == /* ]] || cache=${HOME:?set HOME or XDG_CACHE_HOME: peers are kept under it}/.cache
    folder=$cache/kith/$name
    mkdir -p "$cache/kith"
    exec 9>"$folder.lock"
    flock -w 3000 9 || {
        printf 'error: another process is making %s\n' "$folder" >&2
        exit 1
    }
    if [[ ! -e $folder/ready ]]; then
        python=$("$choose") || exit 3
        rm -rf "$folder"
        # No build from source: what has no wheel for this machine is not there.
        if ! "$python" -m venv "$folder" >&2 ||
            ! "$folder/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "$@" >&2 ||
            ! "$folder/bin/python" -c "import $module" >&2; then
            rm -rf "$folder"
            printf 'pip cannot get %s\n' "$*" >&2
            exit 3
        fi
        touch "$folder/ready"
    fi
    printf '%s\n' "$folder/bin/python"
}
