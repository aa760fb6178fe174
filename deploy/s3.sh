#!/usr/bin/env bash
# Prints the path of a Python with a server of S3 to test object storage with (`python -m moto.server`), made outside the
# repository if it is not there yet.
#
#   deploy/s3.sh
#
# Exit code 3: pip cannot get the packages here, or no Python fits them. What else it looks at: deploy/peer.sh.
set -euo pipefail
source "$(dirname "$0")/peer.sh"

any_python() {
    printf 'python3'
}

peer moto any_python moto.server
