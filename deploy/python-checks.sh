#!/usr/bin/env bash
# Prints the path of a Python with mypy, ruff and nbclient; installs it outside the repository if missing.
#
#   deploy/python-checks.sh
#
# Exit code 3: pip cannot get the packages here. See deploy/peer.sh for its environment.
set -euo pipefail
source "$(dirname "$0")/peer.sh"

any_python() {
    printf 'python3'
}

peer python-checks any_python nbclient
