#!/usr/bin/env bash
# Makes a Python with PyG to compare with, outside the repository, and prints its path; what is there already is used.
#
#   deploy/pyg.sh
#
#   XDG_CACHE_HOME   where it is kept, shared by clones (default: ~/.cache)
#
# Exit code 3: pip cannot get the packages here.
set -euo pipefail

packages=(torch==2.11.0 torch_geometric==2.8.1 safetensors==0.7.0 packaging==25.0 numpy==2.4.6)
lock_seconds=3000

cache=${XDG_CACHE_HOME:-}
[[ $cache == /* ]] || cache=${HOME:?set HOME or XDG_CACHE_HOME: PyG is kept under it}/.cache
folder=$cache/kith/pyg-2.8.1-torch-2.11.0

mkdir -p "$cache/kith"
exec 9>"$folder.lock"
flock -w "$lock_seconds" 9 || {
    printf 'error: another process is making %s\n' "$folder" >&2
    exit 1
}
if [[ ! -e $folder/ready ]]; then
    rm -rf "$folder"
    # No build from source: what has no wheel for this machine is not there.
    if ! python3 -m venv "$folder" >&2 ||
        ! "$folder/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "${packages[@]}" >&2; then
        rm -rf "$folder"
        printf 'pip cannot get %s\n' "${packages[*]}" >&2
        exit 3
    fi
    touch "$folder/ready"
fi
printf '%s\n' "$folder/bin/python"
