#!/usr/bin/env bash
# A run on a Slurm cluster: sampling servers on the first hosts of the job, ranks on the others.
#
#   kith partition stores/large --shards 4 --out graphs/large-4.shards        # on a file system that all hosts see
#   KITH_CLUSTER=$PWD/graphs/large-4.shards KITH_OUT=$PWD/runs/large sbatch --nodes 6 deploy/slurm.sh \
#       partition-graph/supergat-mx --set train.mode=mini-batch --set train.slices=4
#
# Arguments after the script go to `kith train`. A training host runs --ntasks-per-node ranks; with --device cuda, set
# it to the host's number of GPUs. Environment:
#
#   KITH_CLUSTER          folder of the partitioned graph
#   KITH_OUT              folder of the run; a requeued job resumes from the last checkpoint in it
#   KITH_SAMPLERS         number of servers, one on each of the first hosts (default: a third of the hosts); if no host
#                         is left, ranks run on all hosts
#   KITH_REQUEUES         maximum number of requeues in a row without a newer checkpoint (default: 5)
#   KITH_PORT             port on which ranks meet; servers use the following ports (default: by the job's number)
#   KITH_TOKEN            secret shared by all ranks (default: drawn at every start)
#   KITH_SECRETS          shared folder for the servers' certificate and token, which are created at every start and
#                         removed at the end (default: the folder where the job was submitted)
#   KITH_SERVE            further options of kith-sampler, separated by blanks. With options for TLS or tokens,
#                         or --insecure, here or after the script, no secrets are created: pass --tls-cert, --tls-key
#                         and --token-file here, and --tls-ca and --token-file after the script's name
#
#SBATCH --job-name=kith
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
set -euo pipefail

secrets=
lost=75 # A rank or a server was lost: the only exit code after which a restart helps.
steps=()

say() { printf 'slurm: %s\n' "$*"; }
fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

main() {
    (($#)) || fail "nothing to train: name a preset or a run file behind the script"
    [[ -n ${SLURM_JOB_ID:-} ]] || fail "this is no job of Slurm: submit it with sbatch"
    [[ -n ${KITH_CLUSTER:-} && -n ${KITH_OUT:-} ]] || fail "set KITH_CLUSTER to the cluster's folder and KITH_OUT to the run's"
    [[ -d $KITH_CLUSTER/shard-0 ]] || fail "KITH_CLUSTER=$KITH_CLUSTER has no shard-0: make it with kith partition"

    local hosts serving training n_samplers n_shards number port addresses=() serve=() ask=()
    mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
    ((${#hosts[@]})) || fail "scontrol names no hosts for $SLURM_JOB_NODELIST"
    n_shards=$(find "$KITH_CLUSTER" -maxdepth 1 -name 'shard-*' | wc -l)
    n_samplers=$(((${#hosts[@]} + 2) / 3))
    ((n_samplers <= n_shards)) || n_samplers=$n_shards
    n_samplers=${KITH_SAMPLERS:-$n_samplers}
    ((n_samplers > 0 && n_samplers <= n_shards)) || fail "KITH_SAMPLERS is $n_samplers: from 1 to the $n_shards shards there are"
    serving=("${hosts[@]:0:n_samplers}")
    training=("${hosts[@]:n_samplers}")
    ((${#training[@]})) || training=("${hosts[@]}")

    # Different ports for two jobs on one host, below the system's ephemeral ports.
    port=${KITH_PORT:-$((20000 + SLURM_JOB_ID % 700 * 16))}
    export MASTER_PORT=$port
    export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1} # Newer versions of srun do not inherit it from the job.
    # In the environment: all users of a host can read command lines.
    export KITH_TOKEN=${KITH_TOKEN:-$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')}
    read -ra serve <<<"${KITH_SERVE:-}"

    trap stop TERM INT
    trap forget EXIT
    if [[ ! " ${KITH_SERVE:-} $* " =~ \ --(tls-|token-file|insecure) ]]; then
        secrets=${KITH_SECRETS:-${SLURM_SUBMIT_DIR:-$PWD}}/.kith-secrets-$SLURM_JOB_ID
        rm -rf "$secrets" # Left by this job when it was killed and requeued.
        mkdir -m 700 "$secrets"
        kith secrets "$secrets/made" --names "$(joined "${serving[@]}")" >/dev/null
        serve+=(--tls-cert "$secrets/made/tls.crt" --tls-key "$secrets/made/tls.key" --token-file "$secrets/made/sampler-token")
        ask+=(--tls-ca "$secrets/made/ca.crt" --token-file "$secrets/made/sampler-token")
    fi
    for ((number = 0; number < n_samplers; number++)); do
        local host=${serving[number % ${#serving[@]}]} place=$((port + 1 + number))
        addresses+=("$host:$place")
        step "server-$number" "$host" 1 kith-sampler --graph "$KITH_CLUSTER" --listen "0.0.0.0:$place" \
            --shards "$(seq --separator , "$number" "$n_samplers" $((n_shards - 1)))" "${serve[@]}"
    done
    local servers=("${steps[@]}") n_ranks=$((${#training[@]} * ${SLURM_NTASKS_PER_NODE:-1})) ranks code=0
    say "$n_samplers servers on $(joined "${serving[@]}"), $n_ranks ranks on $(joined "${training[@]}")"
    # Ranks wait for servers and for each other to start.
    step ranks "$(joined "${training[@]}")" "$n_ranks" kith train "$@" \
        --graph "grpc://$(joined "${addresses[@]}")" "${ask[@]}" --out "$KITH_OUT" --resume --max-starts $((${KITH_REQUEUES:-5} + 1))
    ranks=${steps[-1]}
    wait "$ranks" || code=$?

    # Ranks exit with 75 if a server is missing; one that exited with 1 would fail again.
    for number in "${servers[@]}"; do
        if ((code == lost)) && ! kill -0 "$number" 2>/dev/null && ended_with "$number" 1; then code=1; fi
    done
    stop_steps
    finish "$code"
}

# step NAME HOST,HOST,... TASKS COMMAND...
step() {
    local name=$1 list=$2 n_tasks=$3 n_commas
    shift 3
    n_commas=$(tr -cd , <<<"$list" | wc -c)
    # All ranks end by themselves when one is lost, and each prints the reason; after a minute, the others are killed.
    srun --job-name "$name" --label --overlap --nodelist "$list" --nodes $((n_commas + 1)) --ntasks "$n_tasks" \
        --kill-on-bad-exit=0 --wait 60 "$@" &
    steps+=($!)
}

joined() {
    local IFS=,
    printf '%s' "$*"
}

forget() {
    if [[ -n $secrets ]]; then rm -rf "$secrets"; fi
}

ended_with() {
    local code=0
    wait "$1" || code=$?
    ((code == $2))
}

stop_steps() {
    local step
    for step in "${steps[@]}"; do kill -TERM "$step" 2>/dev/null || true; done
    for step in "${steps[@]}"; do wait "$step" || true; done
}

# The job's time is nearly over: continue in the next. Ranks save a checkpoint first, and need servers for their last
# step.
stop() {
    trap '' TERM INT
    say "told to stop"
    local code=0
    if [[ -n ${ranks:-} ]]; then
        kill -TERM "$ranks" 2>/dev/null || true
        wait "$ranks" || code=$?
    fi
    stop_steps
    finish $((code == 0 || code == 1 || code == 70 ? code : lost))
}

finish() {
    local code=$1
    forget # Before the next start of this job creates its own.
    # A foreign signal killed a rank, such as the OOM killer's. People end jobs with TERM and INT.
    if ((code > 128 && code != 130 && code != 143)); then code=$lost; fi
    # Ranks refuse to start, with exit code 1, after KITH_REQUEUES starts without progress.
    if ((code == lost && ${KITH_REQUEUES:-5} > 0)); then
        say "back into the queue, to go on from the last checkpoint in $KITH_OUT"
        scontrol requeue "$SLURM_JOB_ID" || say "it could not be put back: submit it again"
    fi
    exit "$code"
}

main "$@"
