#!/usr/bin/env bash
# Prints the path of a Python with kubernetes-validate, which has the schemas of Kubernetes; installs it outside the
# repository if missing.
#
#   deploy/kubernetes-validate.sh
#
# Exit code 3: pip cannot get the packages here. See deploy/peer.sh for its environment.
set -euo pipefail
source "$(dirname "$0")/peer.sh"

any_python() {
    printf 'python3'
}

peer kubernetes-validate any_python kubernetes_validate
