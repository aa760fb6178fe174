#!/usr/bin/env bash
# Trains on a graph of the size of ogbn-papers100M on one machine: generates it, cuts it into 4 shards, verifies them and
# deletes the store, trains one epoch of SuperGAT-MX in mini-batches, stops in the middle and resumes, evaluates all validation and test
# nodes, and predicts the test nodes. Prints a line per phase: wall seconds, peak private memory, peak scratch, bytes read and written.
#
#   deploy/bench/papers.sh WORK_DIR [SHARE] [DIM]     WORK_DIR new, empty or of an earlier call, SHARE of 111,059,956 nodes (default: 1), DIM features in f16 (default: 64)
#
# At SHARE 1, the store takes about 28 GB and the shards as much again. KITH names the program (default: target/release/kith);
# MEMORY is the limit of every command (default: 7680MiB).
set -euo pipefail

work=${1:?usage: papers.sh WORK_DIR [SHARE] [DIM]}
share=${2:-1}
dim=${3:-64}
kith=$(realpath "${KITH:-target/release/kith}")
memory=${MEMORY:-7680MiB}
mkdir -p "$work"
cd "$work"
# Folders are emptied below: only one that this script made, or found empty, is used.
marker=papers.sh.work
if [ ! -e "$marker" ]; then
    if [ -n "$(ls -A)" ]; then
        echo "papers.sh: $PWD holds files and no $marker: choose a new or empty WORK_DIR" >&2
        exit 1
    fi
    touch "$marker"
fi

of() { awk -v n="$1" -v share="$share" 'BEGIN { printf "%d", n * share + 0.5 }'; }
nodes=$(of 111059956)
edges=$(of 1615685872)

# Neighbors in both directions (4 bytes), their bounds, features, labels and parts; the shards as much again, and room for scratch.
needed=$(awk -v n="$nodes" -v e="$edges" -v d="$dim" 'BEGIN { printf "%d", 2.1 * (8 * e + n * (2 * d + 13)) + 8e9 * (e > 1e9) }')
free=$(df --output=avail -B1 . | tail -1)
if [ "$free" -lt "$needed" ]; then
    echo "papers.sh: needs $((needed / 1000000000)) GB in $PWD, $((free / 1000000000)) GB are free: choose another WORK_DIR, or a smaller SHARE" >&2
    exit 1
fi

# Runs a command; prints its name, seconds, peaks and bytes. Private memory, and files that have no name, are read from /proc every second.
phase() {
    local name=$1 begun ended peak=0 scratch=0 now status=0 io='' last='' pid
    shift
    begun=$(date +%s.%N)
    "$@" >"$name.log" 2>&1 &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        now=$(awk '/RssAnon/ { print $2 }' "/proc/$pid/status" 2>/dev/null || true)
        if [ "${now:-0}" -gt "$peak" ]; then peak=$now; fi
        now=$(find "/proc/$pid/fd" -lname "$PWD/* (deleted)" -exec stat -Lc %b {} + 2>/dev/null | awk '{ n += $1 } END { print n + 0 }' || true)
        if [ "${now:-0}" -gt "$scratch" ]; then scratch=$now; fi
        io=$(awk '/^(read|write)_bytes/ { printf "%s %.1f GB ", $1, $2 / 1e9 }' "/proc/$pid/io" 2>/dev/null || true)
        [ -n "$io" ] && last=$io
        sleep 1
    done
    wait "$pid" || status=$?
    ended=$(date +%s.%N)
    awk -v name="$name" -v s="$begun" -v e="$ended" -v peak="$peak" -v n="$scratch" -v io="${last:-}" -v status="$status" \
        'BEGIN { printf "%-10s %7.0f s  private %5.2f GiB  scratch %5.2f GB  %sexit %s\n", name, e - s, peak / 1048576, n * 512 / 1e9, io, status }'
    return "$status"
}

if [ ! -e graph.shards ]; then
    [ -e store ] || phase generate "$kith" data generate power-law --out store --nodes "$nodes" --edges "$edges" --dim "$dim" --dtype f16 \
        --classes 172 --homophily 0.6 --community 1000 --community-share 0.5 --memory "$memory" \
        --split 0.01086962/0.00112791/0.00192993
    phase partition "$kith" partition store --out graph.shards --shards 4 --method stream --memory "$memory"
    phase verify "$kith" partition verify graph.shards --graph store
    rm -r store
fi

cat >run.toml <<'RUN'
[model]
kind = "supergat"
attention = "mx"
n_layers = 2
heads = 8
hidden = 8
out_heads = 1

[train]
mode = "mini-batch"
epochs = 1
batch_size = 1024
fanouts = [15, 10]
checkpoint_every_steps = 100
RUN

# Stops in the middle: after the first checkpoint of the epoch.
rm -rf run
"$kith" train run.toml --graph graph.shards --out run --memory "$memory" >first.log 2>&1 &
pid=$!
until compgen -G 'run/checkpoints/*' >/dev/null; do
    kill -0 "$pid" || { cat first.log >&2; exit 1; }
    sleep 1
done
kill -TERM "$pid"
status=0
wait "$pid" || status=$?
case $status in
75) echo "stopped    $(wc -l <run/steps.jsonl) steps" ;;
0) echo "papers.sh: the run ended before it was stopped" >&2; exit 1 ;;
*) cat first.log >&2; echo "papers.sh: the run failed with exit code $status" >&2; exit 1 ;;
esac
phase train "$kith" train run.toml --graph graph.shards --out run --memory "$memory" --resume
phase predict "$kith" predict run --graph graph.shards --nodes test --out test.csv --memory "$memory"
echo "predicted  $(($(wc -l <test.csv) - 1)) test nodes"
grep -o '"valid": *[0-9.]*\|"test": *[0-9.]*\|"seconds_evaluating": *[0-9.]*' run/report.json | tr '\n' ' '
echo
