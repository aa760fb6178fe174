#!/usr/bin/env bash
# Prints the path of a Python with PyG, for comparisons; installs it outside the repository if missing.
#
#   deploy/pyg.sh [NAME]     (default: pyg; packages are those of deploy/wheels/NAME.txt)
#
# Exit code 3: pip cannot get the packages here. See deploy/peer.sh for its environment.
set -euo pipefail
source "$(dirname "$0")/peer.sh"

any_python() {
    printf 'python3'
}

peer "${1:-pyg}" any_python torch_geometric
