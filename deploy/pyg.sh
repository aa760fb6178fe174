#!/usr/bin/env bash
# Prints the path of a Python with PyG to compare with, made outside the repository if it is not there yet.
#
#   deploy/pyg.sh
#
# Exit code 3: pip cannot get the packages here. What else it looks at: deploy/peer.sh.
set -euo pipefail
source "$(dirname "$0")/peer.sh"

any_python() {
    printf 'python3'
}

peer pyg any_python torch_geometric
