#!/usr/bin/env bash
# `make demo`: the whole path on graphs generated here. Needs no network and leaves no files.
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
show data generate power-law --nodes 100000 --degree 14 --classes 40 --dim 128 --dtype f16 --out "$work/power-law"
show data stats "$work/power-law"
show data verify "$work/power-law"

show data generate partition-graph --degree 10 --homophily 0.5 --out "$work/partition"
show data stats "$work/partition"
models=(gcn gat supergat-sd supergat-mx)
for model in "${models[@]}"; do
    show train "partition-graph/$model" --graph "$work/partition" --set train.epochs=200 --out "$work/$model"
done
show predict "$work/supergat-mx" --graph "$work/partition" --what attention --out "$work/attention.csv"
head -3 "$work/attention.csv"

show analyze graph "$work/partition"
show report "$work/supergat-mx" --graph "$work/partition"

# One of the paper's experiments on one of its graphs with a few settings; a second start has nothing left to do.
for _ in 1 2; do
    show bench synthetic --degrees 10 --homophilies 0.5 --weight-decays 1e-5 --edge-weights 0.1 --seeds 42..44 \
        --set train.epochs=100 --out "$work/bench"
done

# A distributed run: the same graph in two shards, two sampling servers, two ranks, each a process.
show partition "$work/partition" --shards 2 --out "$work/partition.shards"
show launch --ranks 2 --samplers 2 partition-graph/supergat-mx --graph "$work/partition.shards" --out "$work/ranks" \
    --set train.mode=mini-batch --set train.slices=2 --set train.epochs=10
printf '\nranks/report.json:\n'
sed -n '/"results"/,/}/p' "$work/ranks/report.json"

# From the reports, so that the table shows what they recorded.
field() {
    sed -n "s/^ *\"$1\": \([0-9.e-]*\),*$/\1/p" "$work/$2/report.json" | head -1
}
printf '\n%-12s  %7s  %7s  %9s\n' model valid test test_last
for model in "${models[@]}"; do
    printf '%-12s' "$model"
    for name in valid test test_last; do
        awk -v share="$(field "$name" "$model")" -v width="$((${#name} > 7 ? ${#name} : 7))" \
            'BEGIN { printf "  %" width ".1f", 100 * share }'
    done
    printf '\n'
done
printf '\nAccuracy in percent: at the best validation epoch, and at the last epoch (test_last).\n'
printf 'Next: kith data fetch cora; kith data import cora --from data/cora --out stores/cora;\n'
printf '      kith train cora/supergat-mx --graph stores/cora --out runs/cora-mx\n'
