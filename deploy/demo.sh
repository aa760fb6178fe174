#!/usr/bin/env bash
# `make demo`: the whole path as far as it exists, on graphs made here. Needs no network and leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/.."
kith=${CARGO_TARGET_DIR:-target}/release/kith
work=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill "$server"; rm -rf "$work"' EXIT

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
    show train "partition-graph/$model" --store "$work/partition" --set train.epochs=200 --out "$work/$model"
done
show predict "$work/supergat-mx" --store "$work/partition" --what attention --out "$work/attention.csv"
head -3 "$work/attention.csv"

# The same graph, cut and behind a server.
show partition "$work/partition" --shards 3 --out "$work/shards"
printf '\n$ kith serve --cluster shards --listen 127.0.0.1:0 &\n'
"$kith" serve --cluster "$work/shards" --listen 127.0.0.1:0 >"$work/server.log" &
server=$!
for _ in {1..200}; do
    grep -q ' on ' "$work/server.log" && break
    sleep 0.05
done
cat "$work/server.log"
address=$(sed 's/.* on //' "$work/server.log")
show train partition-graph/supergat-mx --set train.mode=batches --set train.epochs=10 --out "$work/served" \
    --samplers "$address"
kill "$server"
wait "$server"
server=

# From the reports, so that the table shows what was kept.
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
printf '      kith train cora/supergat-mx --store stores/cora --out runs/cora-mx\n'
