#!/usr/bin/env bash
# Prints the path of a Python with pymetis, for comparing partitioning; installs it outside the repository if missing.
#
#   deploy/pymetis.sh
#
# Exit code 3: pip cannot get the packages here, or no Python fits them. See deploy/peer.sh for its environment.
set -euo pipefail
source "$(dirname "$0")/peer.sh"

any_python() {
    printf 'python3'
}

peer pymetis any_python pymetis
