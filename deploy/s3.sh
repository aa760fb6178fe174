#!/usr/bin/env bash
# Prints the path of a Python with an S3 server, for testing object storage (`python -m moto.server`); installs it
# outside the repository if missing.
#
#   deploy/s3.sh
#
# Exit code 3: pip cannot get the packages here, or no Python fits them. See deploy/peer.sh for its environment.
set -euo pipefail
source "$(dirname "$0")/peer.sh"

any_python() {
    printf 'python3'
}

peer moto any_python moto.server
