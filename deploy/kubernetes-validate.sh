#!/usr/bin/env bash
# Prints the path of a Python with kubernetes-validate, which knows the schemas of Kubernetes, made outside the repository if it
# is not there yet.
#
#   deploy/kubernetes-validate.sh
#
# Exit code 3: pip cannot get the packages here. What else it looks at: deploy/peer.sh.
set -euo pipefail
source "$(dirname "$0")/peer.sh"

any_python() {
    printf 'python3'
}

peer kubernetes-validate any_python kubernetes_validate
