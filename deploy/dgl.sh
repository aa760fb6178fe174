#!/usr/bin/env bash
# Makes a Python with DGL to compare sampling with, outside the repository, and prints its path; what is there already
# is used.
#
#   deploy/dgl.sh
#
#   XDG_CACHE_HOME   where it is kept, shared by clones (default: ~/.cache)
#
# Exit code 3: pip cannot get the packages here, or no Python fits them.
set -euo pipefail

# The last DGL on PyPI, and what it was built against; it names torchdata, pandas and the others only by importing them.
packages=(dgl==2.1.0 torch==2.2.1 torchdata==0.7.1 'numpy<2' pandas==2.2.2 pydantic==2.7.4 PyYAML==6.0.1)
lock_seconds=3000

cache=${XDG_CACHE_HOME:-}
[[ $cache == /* ]] || cache=${HOME:?set HOME or XDG_CACHE_HOME: DGL is kept under it}/.cache
folder=$cache/kith/dgl-2.1.0-torch-2.2.1

# torch 2.2.1 has wheels up to Python 3.12, this torchdata up to 3.11.
find_python() {
    local name
    for name in python3.11 python3.10 python3.9 python3; do
        if "$name" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 11))' 2>/dev/null; then
            printf '%s' "$name"
            return
        fi
    done
    for name in "$HOME"/.pyenv/versions/3.11.*/bin/python "$HOME"/.pyenv/versions/3.10.*/bin/python; do
        if [[ -x $name ]]; then
            printf '%s' "$name"
            return
        fi
    done
    printf 'DGL 2.1.0 needs a Python between 3.9 and 3.11\n' >&2
    exit 3
}

mkdir -p "$cache/kith"
exec 9>"$folder.lock"
flock -w "$lock_seconds" 9 || {
    printf 'error: another process is making %s\n' "$folder" >&2
    exit 1
}
if [[ ! -e $folder/ready ]]; then
    python=$(find_python)
    rm -rf "$folder"
    # No build from source: what has no wheel for this machine is not there.
    if ! "$python" -m venv "$folder" >&2 ||
        ! "$folder/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "${packages[@]}" >&2 ||
        ! "$folder/bin/python" -c 'import dgl' >&2; then
        rm -rf "$folder"
        printf 'pip cannot get %s\n' "${packages[*]}" >&2
        exit 3
    fi
    touch "$folder/ready"
fi
printf '%s\n' "$folder/bin/python"
