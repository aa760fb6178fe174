#!/usr/bin/env bash
# `make demo`: the whole path as far as it exists, on a graph made here. Needs no network and leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/.."
kith=${CARGO_TARGET_DIR:-target}/release/kith
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

show() {
    printf '\n$ kith %s\n' "${*//"$work"\//}"
    "$kith" "$@"
}

show devices
show data generate partition-graph --degree 10 --homophily 0.7 --out "$work/partition"
show data stats "$work/partition"
show data generate power-law --nodes 200000 --degree 14 --classes 40 --dim 128 --dtype f16 --out "$work/power-law"
show data stats "$work/power-law"
show data verify "$work/power-law"
printf '\nNext: kith data list, kith data fetch cora, kith data import cora --from data/cora --out stores/cora\n'
