#!/usr/bin/env bash
# A run on a Slurm cluster: sampling servers on the first hosts of the job, ranks on the others.
#
#   kith partition stores/large --shards 4 --out clusters/large-4        # on a file system that all hosts see
#   KITH_CLUSTER=$PWD/clusters/large-4 KITH_OUT=$PWD/runs/large sbatch --nodes 6 deploy/slurm.sh \
#       partition-graph/supergat-mx --set train.mode=batches --set train.slices=4
#
# What follows the script goes to `kith train`. A host that trains has as many ranks as --ntasks-per-node says; with
# --device cuda, say as many as it has GPUs. The environment says the rest:
#
#   KITH_CLUSTER          the cluster's folder
#   KITH_OUT              the run's folder; a job that went back into the queue goes on from the last checkpoint in it
#   KITH_SAMPLERS         servers, one on each of the first hosts (default: on a third of them); where no host is left over,
#                         ranks are on all
#   KITH_REQUEUES         how often in a row the job may go back into the queue without a newer checkpoint (default: 5)
#   KITH_PORT             where ranks meet; servers take the ports behind it (default: by the number of the job)
#   KITH_TOKEN            the secret that ranks share (default: drawn anew at every start)
#   KITH_SECRETS          a folder that all hosts see, for the certificate and the token of the servers, made anew at every start
#                         and removed at the end (default: where the job was submitted)
#   KITH_SERVE            further options of kith-sampler; split at blanks. With options for TLS, tokens or --insecure in it, or
#                         after the script, nothing is made: pass --tls-cert, --tls-key and --token-file here, and --tls-ca and
#                         --token-file after the script's name
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
lost=75 # A rank or a server was lost: the one exit code after which starting again helps.
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

    # Two jobs on one host keep out of each other's way, below the ports that the system hands out.
    port=${KITH_PORT:-$((20000 + SLURM_JOB_ID % 700 * 16))}
    export MASTER_PORT=$port
    export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1} # Newer versions of srun do not take it from the job.
    # In the environment and on no command line, where all users of a host could read it.
    export KITH_TOKEN=${KITH_TOKEN:-$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')}
    read -ra serve <<<"${KITH_SERVE:-}"

    trap stop TERM INT
    trap forget EXIT
    if [[ ! " ${KITH_SERVE:-} $* " =~ \ --(tls-|token-file|insecure) ]]; then
        secrets=${KITH_SECRETS:-${SLURM_SUBMIT_DIR:-$PWD}}/.kith-secrets-$SLURM_JOB_ID
        rm -rf "$secrets" # Of this job, when it was killed and went back into the queue.
        mkdir -m 700 "$secrets"
        kith secrets "$secrets/made" --names "$(joined "${serving[@]}")" >/dev/null
        serve+=(--tls-cert "$secrets/made/tls.crt" --tls-key "$secrets/made/tls.key" --token-file "$secrets/made/sampler-token")
        ask+=(--tls-ca "$secrets/made/ca.crt" --token-file "$secrets/made/sampler-token")
    fi
    for ((number = 0; number < n_samplers; number++)); do
        local host=${serving[number % ${#serving[@]}]} place=$((port + 1 + number))
        addresses+=("$host:$place")
        step "server-$number" "$host" 1 kith-sampler --cluster "$KITH_CLUSTER" --listen "0.0.0.0:$place" \
            --shards "$(seq --separator , "$number" "$n_samplers" $((n_shards - 1)))" "${serve[@]}"
    done
    local servers=("${steps[@]}") n_ranks=$((${#training[@]} * ${SLURM_NTASKS_PER_NODE:-1})) ranks code=0
    say "$n_samplers servers on $(joined "${serving[@]}"), $n_ranks ranks on $(joined "${training[@]}")"
    # Servers that are not there yet are waited for, and so are ranks.
    step ranks "$(joined "${training[@]}")" "$n_ranks" kith train "$@" \
        --samplers "$(joined "${addresses[@]}")" "${ask[@]}" --out "$KITH_OUT" --resume --max-starts $((${KITH_REQUEUES:-5} + 1))
    ranks=${steps[-1]}
    wait "$ranks" || code=$?

    # Ranks that wait in vain for a server take it for lost; one that was refused would be refused again.
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
    # All ranks end by themselves when one is lost, and each says why; who does not is ended after a minute.
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

# The time of the job is nearly over: go on in the next. Ranks save a checkpoint first, and need servers for their last step.
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
    forget # Before the next start of this job makes its own.
    # A signal that is not ours took a rank, as when memory ran out. TERM and INT are how people end jobs.
    if ((code > 128 && code != 130 && code != 143)); then code=$lost; fi
    # Ranks refuse to start, with code 1, where KITH_REQUEUES starts were in vain.
    if ((code == lost && ${KITH_REQUEUES:-5} > 0)); then
        say "back into the queue, to go on from the last checkpoint in $KITH_OUT"
        scontrol requeue "$SLURM_JOB_ID" || say "it could not be put back: submit it again"
    fi
    exit "$code"
}

main "$@"
