#!/usr/bin/env bash
# `make bench`: measures Kith's performance goals. Peers come from PyPI into a throw-away venv; ratios come from
# interleaved rounds of one run, because machines are noisy. Results are in docs/BENCHMARKS.md.
#
#   KITH_BENCH_DIR   folder for large files (default: a temporary folder; about 25 GB)
#   KITH_BENCH_EDGES edges of the large store (default: 1,000,000,000)
#   KITH_DATASETS    folder with the raw files of the datasets (default: ../shared/datasets)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source deploy/pip.sh

work=$(mktemp -d "${KITH_BENCH_DIR:-${TMPDIR:-/tmp}}/kith-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
kith=$PWD/target/release/kith

printf '== peers: numpy and scipy, in a throw-away venv\n'
python3 -m venv "$work/venv"
checked_pip "$work/venv/bin/python" install bench --quiet

printf '\n== lists from 100 M random directed edges, against scipy\n'
"$work/venv/bin/python" deploy/bench/lists.py --kith "$kith" --work "$work"

printf '\n== opening a large store, and reading random lists from it\n'
# Each drawn edge is stored in both directions; a few are self-loops or duplicates.
half=$((${KITH_BENCH_EDGES:-1000000000} * 51 / 100))
"$kith" data generate power-law --nodes 50000000 --edges "$half" --dim 0 --memory 2GiB --out "$work/large"
cargo bench --quiet --locked -p kith-store --bench neighbors -- "$work/large"
rm -r "$work/large"

printf '\n== a full-batch training step, against PyG\n'
step=$(cargo bench --quiet --locked -p kith-trainer --bench step --no-run --message-format=json |
    sed -n 's/.*"name":"step".*"executable":"\([^"]*\)".*/\1/p')
if pyg=$(deploy/pyg.sh); then
    "$pyg" deploy/bench/step.py --kith "$kith" --step "$step" --work "$work"
    printf '\n== a mini-batch training step, against PyG\n'
    "$pyg" deploy/bench/batches.py --kith "$kith" --work "$work"
    printf '\n== all-reduce between two processes, against Gloo\n'
    collective=$(cargo bench --quiet --locked -p kith-trainer --bench collective --no-run --message-format=json |
        sed -n 's/.*"name":"collective".*"executable":"\([^"]*\)".*/\1/p')
    "$pyg" deploy/bench/collective.py --collective "$collective"
    "$pyg" deploy/bench/collective.py --collective "$collective" --ranks 64 --rounds 5
else
    printf 'skipped: no PyG here\n'
fi

printf '\n== two ranks beside one, and checkpoints\n'
python3 deploy/bench/ranks.py --kith "$kith" --work "$work"

printf '\n== sampling, against DGL\n'
sampling=$(cargo bench --quiet --locked -p kith-client --bench sampling --no-run --message-format=json |
    sed -n 's/.*"name":"sampling".*"executable":"\([^"]*\)".*/\1/p')
if dgl=$(deploy/dgl.sh); then
    "$dgl" deploy/bench/sampling.py --kith "$kith" --sampling "$sampling" --work "$work"
    loader=$(cargo bench --quiet --locked -p kith-client --bench loader --no-run --message-format=json |
        sed -n 's/.*"name":"loader".*"executable":"\([^"]*\)".*/\1/p')
    printf '\n== sampling from two servers, against DGL\n'
    "$dgl" deploy/bench/distributed.py --kith "$kith" --loader "$loader" --work "$work"
    if [[ $EUID == 0 ]]; then
        printf '\n== mini-batches with features on disk, against GraphBolt\n'
        "$dgl" deploy/bench/disk.py --kith "$kith" --loader "$loader" --work "$work" --store "$work/store-products-like"
    else
        printf '\nskipped: mini-batches with features on disk need root, for a memory cgroup\n'
    fi
else
    printf 'skipped: no DGL here\n'
fi

printf '\n== a sampling server, against the same work in one process and against a bare socket\n'
remote=$(cargo bench --quiet --locked -p kith-client --bench remote --no-run --message-format=json |
    sed -n 's/.*"name":"remote".*"executable":"\([^"]*\)".*/\1/p')
"$kith" data generate power-law --nodes 169343 --edges 1157799 --dim 128 --classes 40 --exponent 2.5 --out "$work/served" >/dev/null
taskset -c 1 "$remote" "$work/served" "$PWD/target/release/kith-sampler"

printf '\n== one, two and four sampling servers\n'
servers=$(cargo bench --quiet --locked -p kith-client --bench servers --no-run --message-format=json |
    sed -n 's/.*"name":"servers".*"executable":"\([^"]*\)".*/\1/p')
for k in 1 2 4; do
    "$kith" partition "$work/served" --shards "$k" --out "$work/served-$k" >/dev/null
done
"$servers" "$PWD/target/release/kith-sampler" "$work/served-1" "$work/served-2" "$work/served-4"

printf '\n== partitioning, against pymetis\n'
if pymetis=$(deploy/pymetis.sh); then
    "$pymetis" deploy/bench/partition.py --kith "$kith" --work "$work"
else
    printf 'skipped: no pymetis here\n'
fi

printf '\n== importing computers\n'
raw=${KITH_DATASETS:-../shared/datasets}/computers
if [[ -d $raw ]]; then
    for round in 1 2 3 4 5; do
        "$kith" data import computers --from "$raw" --out "$work/computers-$round" --json 2>/dev/null
    done
else
    printf 'skipped: no raw files at %s\n' "$raw"
fi
