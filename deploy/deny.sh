#!/usr/bin/env bash
# Checks Kith's dependencies: licenses, banned crates and sources by deny.toml, and known vulnerabilities if the
# advisory database is on this machine (`cargo deny fetch db` gets it). Run by `make lint`; fetches nothing.
#
#   deploy/deny.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo deny --locked check --hide-inclusion-graph licenses bans sources
databases=("${CARGO_HOME:-$HOME/.cargo}"/advisory-dbs/*/.git)
if [[ -e ${databases[0]} ]]; then
    cargo deny --locked check --hide-inclusion-graph --disable-fetch advisories
else
    printf 'advisories were not checked: their database is not here (`cargo deny fetch db` gets it)\n'
fi
