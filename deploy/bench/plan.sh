#!/usr/bin/env bash
# Step times that `kith plan` predicts, beside measured ones: one core per process, five rounds of each configuration.
#
#   KITH=target/release/kith deploy/bench/plan.sh WORK
#
# WORK is a folder for the generated graph and the results (under 1 GB). Needs the programs kith and kith-trainer in one folder, with
# the libraries they were built with, taskset, and at most 8 minutes. WORK/plan.txt gets every table as it is measured, and a last line
# with the number of configurations that agree: within 20% of the median of the rounds, or inside their spread.
#
# MINUTES (default: 8) ends the bench before another configuration starts. ROUNDS (default: 5). CONSTANTS names a file of constants, if they
# are not to be measured. Throttled lines need root, or user namespaces, for a loopback device of their own.
set -euo pipefail
kith=${KITH:?KITH names the program kith}
work=${1:?expected a folder for the results}
mkdir -p "$work"
work=$(cd "$work" && pwd)
constants=${CONSTANTS:-$work/constants.json}
rounds=${ROUNDS:-5}
seconds=$((${MINUTES:-8} * 60 - 20))
cores=$(nproc)
out=$work/plan.txt
: >"$out"
tell() { printf '%s\n' "$*" | tee -a "$out"; }

tell "$("$kith" --version), $cores cores, $(date -u +%F)"
if [[ ! -e $constants ]]; then
    "$kith" bench constants --models gat,supergat --out "$constants" 2>"$work/constants.log" | tee -a "$out"
    tell "constants took $SECONDS s"
fi

n_all=0 n_agree=0
# model, servers, ranks, line
compare() {
    local model=$1 servers=$2 ranks=$3 line=${4:-} name=$1-$2-$3${4:+-$4} batch=256 steps=15 warm_up=3
    # Behind a slow line, the mini-batches of all prefetch threads arrive at the same time.
    if [[ -n $line ]]; then steps=40 warm_up=8; fi
    if [[ $line == *Mb ]]; then batch=64; fi
    local -a options=(--like arxiv --work "$work" --method hash --model "$model" --fanouts 10,10 --pin --rounds "$rounds"
        --shards "$((servers > 0 ? servers : 1))" --servers "$servers" --ranks "$ranks" --batch-size "$((batch * ranks))"
        --warm-up "$warm_up" --steps "$steps" --constants "$constants")
    local -a enter=()
    if ((servers + ranks > cores)); then
        tell "$name: left out, $((servers + ranks)) processes on $cores cores"
        return
    fi
    if ((SECONDS > seconds)); then
        tell "$name: left out, no time"
        return
    fi
    if [[ -n $line ]]; then
        options+=(--loopback-rate "$line")
        # The last word is the command's $0.
        enter=(unshare --net --map-root-user bash -c
            "ip link set lo up && ip link set lo mtu 1500 && tc qdisc add dev lo root tbf rate ${line}it burst 128kb latency 200ms && exec \"\$0\" \"\$@\"")
        if ! "${enter[@]}" true 2>/dev/null; then
            tell "$name: left out, the loopback device cannot be throttled here"
            return
        fi
    fi
    if ! "${enter[@]}" "$kith" bench scale "${options[@]}" >"$work/$name.txt" 2>"$work/$name.log"; then
        tell "$name: failed: $(tail -n 1 "$work/$name.log")"
        return
    fi
    local table
    table=$(tail -n 2 "$work/$name.txt")
    tell "$model"$'\n'"$table"
    n_all=$((n_all + 1))
    if [[ $table == *yes ]]; then n_agree=$((n_agree + 1)); fi
}

for ranks in 1 2 4 8; do
    for model in gat supergat-mx; do
        compare "$model" 0 "$ranks"
    done
done
compare gat 1 1
compare supergat-mx 1 1
compare gat 1 1 100Mb
compare gat 1 1 1Gb
compare gat 1 4
compare supergat-mx 2 4
compare gat 4 8
compare supergat-mx 4 8
compare gat 2 2
compare supergat-mx 1 2
tell "$n_agree of $n_all configurations agree, after $SECONDS s"
