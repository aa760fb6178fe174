#!/usr/bin/env bash
# Prints the path of a Python with DGL, for comparing sampling; installs it outside the repository if missing.
#
#   deploy/dgl.sh
#
# Exit code 3: pip cannot get the packages here, or no Python fits them. See deploy/peer.sh for its environment.
set -euo pipefail
source "$(dirname "$0")/peer.sh"

# torch 2.2.1 has wheels up to Python 3.12, this torchdata up to 3.11; `import kith` needs 3.10.
fitting_python() {
    local name
    for name in python3.11 python3.10 python3; do
        if "$name" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 11))' 2>/dev/null; then
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
    printf 'DGL 2.1.0 needs a Python between 3.10 and 3.11\n' >&2
    return 1
}

peer dgl fitting_python dgl
