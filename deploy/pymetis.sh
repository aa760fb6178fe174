#!/usr/bin/env bash
# Prints the path of a Python with pymetis to compare partitioning with, made outside the repository if it is not there yet.
#
#   deploy/pymetis.sh
#
# Exit code 3: pip cannot get the packages here, or no Python fits them. What else it looks at: deploy/peer.sh.
set -euo pipefail
source "$(dirname "$0")/peer.sh"

any_python() {
    printf 'python3'
}

peer pymetis any_python pymetis
