#!/usr/bin/env bash
# Builds the images without a registry, and trains in them: two servers and two ranks, each in a container without root
# and capabilities that can write only /tmp and its volumes. The result must equal that of one process.
#
#   deploy/images/try.sh [--from-source]     --from-source: also compile the sampler inside its image, with this host's Rust
#
#   KITH_DEBIAN_MIRROR   mirror of Debian's packages (default: that of this host's apt)
#
# Needs root, `make build`, and podman, buildah, runc, debootstrap, iproute2 and binutils as packaged by Debian 12;
# exits with 77 and one sentence if something is missing. All its files are in one folder, which it removes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
repository=$PWD
file=deploy/images/Dockerfile
debian=$(sed -n 's/^ARG DEBIAN=//p' $file)
rust=$(sed -n 's/^ARG RUST=//p' $file)
revision=$(git rev-parse --short HEAD 2>/dev/null || printf 'unknown')
name=kith-images-$$
address=10.77.0.1 # In an isolated network.

say() { printf '\n== %s\n' "$*"; }
fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}
skip() {
    printf 'skipped: %s\n' "$*"
    exit 77
}

main() {
    local from_source=0
    case ${1:-} in
    "") ;;
    --from-source) from_source=1 ;;
    *) fail "unknown argument $1; deploy/images/try.sh takes only --from-source" ;;
    esac
    check
    work=$(mktemp -d "${TMPDIR:-/tmp}/$name.XXXXXX")
    trap clean EXIT
    trap 'exit 143' TERM
    trap 'exit 130' INT
    configure
    deploy/images/prebuilt.sh
    make_base
    local image
    for image in sampler trainer trainer-cuda; do
        say "build $image"
        SECONDS=0
        build prebuilt $image
        printf '%s: %d s\n' "$image" $SECONDS
    done
    say "sizes"
    podman images --format '{{.Repository}} {{.Size}}' | grep '^localhost/kith' | column -t
    look
    train
    if ((from_source)); then compile; fi
    say "all as expected"
}

check() {
    local tool missing=()
    for tool in podman buildah runc debootstrap ip objdump strip; do
        PATH=$PATH:/usr/sbin command -v $tool >/dev/null || missing+=("$tool")
    done
    ((${#missing[@]} == 0)) || skip "there is no ${missing[*]}: apt-get install podman buildah runc debootstrap iproute2 binutils"
    ((EUID == 0)) || skip "only root makes a root file system: run it as root, on a machine that may be broken"
    ip netns add "$name" 2>/dev/null || skip "this machine lets nobody make a network namespace"
    ip netns del "$name"
    [[ -x target/release/kith && -x target/release/kith-trainer && -x target/release/kith-sampler ]] || skip "nothing is built: run \`make build\` first"
}

# Separate state, storage and settings: this host's podman is neither read nor changed.
configure() {
    mkdir -p "$work"/{storage,run,tmp,volumes/graph,volumes/runs}
    chown 10001:10001 "$work"/volumes/*
    cat >"$work/storage.conf" <<-END
	[storage]
	driver = "vfs"
	graphroot = "$work/storage"
	runroot = "$work/run"
	END
    # For hosts without their own systemd and cgroups, and where limits cannot be raised.
    cat >"$work/containers.conf" <<-END
	[containers]
	default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
	log_driver = "k8s-file"
	[engine]
	cgroup_manager = "cgroupfs"
	events_logger = "file"
	runtime = "runc"
	static_dir = "$work/storage/libpod"
	tmp_dir = "$work/run/libpod"
	END
    export CONTAINERS_STORAGE_CONF=$work/storage.conf CONTAINERS_CONF=$work/containers.conf TMPDIR=$work/tmp
}

clean() {
    local code=$?
    trap '' TERM INT
    if ((code)) && [[ -e $work/volumes ]]; then logs; fi
    podman rm --all --force --time 1 >/dev/null 2>&1 || true
    ip netns del "$name" 2>/dev/null || true
    grep -o " $work/[^ ]*" /proc/mounts | sort -r | xargs --no-run-if-empty umount --lazy || true
    rm -rf --one-file-system "$work" "$repository/target/images"
    exit $code
}

logs() {
    local container
    for container in $(podman ps --all --format '{{.Names}}' 2>/dev/null); do
        printf '\n%s said:\n' "$container"
        podman logs --tail 20 "$container" 2>&1 || true
    done
}

# The base image under the Dockerfile's name for it.
make_base() {
    local mirror=${KITH_DEBIAN_MIRROR:-} base=$work/base
    [[ -n $mirror ]] || mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' 2>/dev/null | head -n 1)
    say "make $debian with debootstrap"
    SECONDS=0
    debootstrap --variant=minbase bookworm "$base" ${mirror:+"$mirror"} >"$work/debootstrap.log" 2>&1 ||
        { tail -n 5 "$work/debootstrap.log" && fail "debootstrap failed"; }
    rm -rf "$base"/var/{cache/apt,lib/apt/lists,log}/* "$base"/usr/share/{doc,info,lintian,locale,man}/*
    tar --directory "$base" --create . | podman import --quiet - "$debian" >/dev/null
    printf '%s: %d s\n' "$debian" $SECONDS
}

# build PROGRAMS TARGET
build() {
    local image=kith-$2 options=(--isolation chroot --pull-never --format docker --build-arg REVISION="$revision")
    [[ $1 == prebuilt ]] || image+=-$1
    add_secret cargo "${CARGO_HOME:-$HOME/.cargo}/config.toml"
    add_secret pip /etc/pip.conf
    add_secret certificates /etc/ssl/certs/ca-certificates.crt
    buildah --storage-driver vfs bud "${options[@]}" --file $file --target "$2" --build-arg PROGRAMS="$1" --tag "$image" . \
        >"$work/build.log" 2>&1 || { tail -n 30 "$work/build.log" && fail "$image was not built"; }
}

# The build needs this host's configuration of cargo's and pip's registries, too.
add_secret() { [[ ! -e $2 ]] || options+=(--secret "id=$1,src=$2"); }

# contain OPTIONS... IMAGE ARGUMENTS...
contain() {
    # Podman's health checks need systemd; `healthy` replaces them.
    podman run --no-healthcheck --network "ns:/run/netns/$name" --read-only --cap-drop all --security-opt no-new-privileges \
        --volume "$work/volumes/graph:/graph" --volume "$work/volumes/runs:/runs" \
        --add-host sampler-0:$address --add-host sampler-1:$address --add-host rank-0:$address "$@"
}

# expect WORDS TEXT
expect() {
    [[ $2 == *"$1"* ]] || fail "\"$1\" is not in: $2"
    printf '%s\n' "$2"
}

look() {
    ip netns add "$name"
    ip -n "$name" link set lo up
    ip -n "$name" address add $address/32 dev lo

    say "what is in them"
    local version image
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
    expect "kith-sampler $version" "$(contain --rm kith-sampler --version)"
    expect "kith $version" "$(contain --rm kith-trainer --version)"
    expect "kith $version" "$(contain --rm kith-trainer-cuda --version)"
    contain --rm kith-trainer-cuda devices
    expect "uid=10001(10001) gid=10001(10001)" "$(contain --rm --entrypoint id kith-trainer)"
    expect "Read-only file system" "$(contain --rm --entrypoint touch kith-trainer /opt/file 2>&1 || true)"
    for image in kith-sampler kith-trainer kith-trainer-cuda; do
        expect "10001:10001" "$(podman inspect --format '{{.Config.User}}' $image)"
        expect "$version $revision" "$(podman inspect --format \
            '{{index .Labels "org.opencontainers.image.version"}} {{index .Labels "org.opencontainers.image.revision"}}' $image)"
    done
    expect "[CMD kith-sampler health 127.0.0.1:7000]" "$(podman inspect --format '{{.HealthCheck.Test}}' kith-sampler)"
    contain --name files kith-sampler --version >/dev/null
    podman export files | tar --list >"$work/files"
    podman rm files >/dev/null
    ! grep -E 'libtorch|bin/(sh|bash|apt)' "$work/files" || fail "the sampler has what it does not need"
}

train() {
    local run=(partition-graph/supergat-mx --set train.mode=mini-batch --set "train.fanouts=[5, 5]" --set train.slices=2
        --set train.batch_size=200 --set train.epochs=10 --set train.evaluate_every=5 --set early_stop=off)
    say "one process, in a container"
    contain --rm kith-trainer data generate power-law --nodes 5000 --degree 8 --classes 4 --dim 16 --out /graph/store >/dev/null
    contain --rm kith-trainer partition /graph/store --shards 2 --out /graph/cluster >/dev/null
    contain --rm kith-trainer train "${run[@]}" --graph /graph/store --out /runs/one

    say "two servers and two ranks, in four containers"
    local number code
    KITH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
    export KITH_TOKEN # Not on a command line.
    for number in 0 1; do
        contain --detach --name sampler-$number kith-sampler \
            --graph /graph/cluster --shards $number --listen $address:700$number --insecure >/dev/null
    done
    for number in 0 1; do
        contain --detach --name rank-$number --env "WORLD_SIZE=2" --env RANK=$number --env MASTER_ADDR=rank-0 --env KITH_TOKEN \
            kith-trainer train "${run[@]}" --graph grpc://sampler-0:7000,sampler-1:7001 --out /runs/two --resume >/dev/null
    done
    for number in 0 1; do
        healthy sampler-$number $address:700$number
    done
    for number in 0 1; do
        code=$(timeout 120 podman wait rank-$number) || fail "rank $number has not ended after 120 s"
        ((code == 0)) || fail "rank $number ended with code $code"
    done
    podman logs rank-0 2>&1 | tail -n 12
    same "$work/volumes/runs"

    say "servers end when they are told to, and so do ranks"
    contain --detach --name rank-alone --env "WORLD_SIZE=2" --env RANK=0 --env MASTER_ADDR=rank-0 --env KITH_TOKEN \
        kith-trainer train "${run[@]}" --graph grpc://sampler-0:7000,sampler-1:7001 >/dev/null
    SECONDS=0
    podman stop --time 30 sampler-0 sampler-1 rank-alone >/dev/null
    expect "0 0 75" "$(podman inspect --format '{{.State.ExitCode}}' sampler-0 sampler-1 rank-alone | xargs)"
    printf 'codes 0, 0 and 75 after %d s\n' $SECONDS
    ((SECONDS < 25)) || fail "they had to be killed"
}

# Runs the command of the image's health check until it succeeds.
healthy() {
    local attempt
    for ((attempt = 0; attempt < 60; attempt++)); do
        if podman exec "$1" kith-sampler health "$2" >/dev/null 2>&1; then return; fi
        sleep 0.5
    done
    fail "$1 did not become healthy"
}

# The same losses, digests and results, bit for bit; only times differ.
same() {
    local run
    for run in one two; do
        sed 's/,"micros":.*//' "$1/$run/steps.jsonl" >"$work/$run.steps"
        sed -n '/"results"/,/}/p' "$1/$run/report.json" | grep -v seconds >"$work/$run.results"
    done
    [[ -s $work/one.results && $(wc -l <"$work/one.steps") -ge 10 ]] || fail "the run of one process left no steps"
    cmp "$work/one.steps" "$work/two.steps"
    cmp "$work/one.results" "$work/two.results"
    printf 'the same %d steps and results as one process; the last: %s\n' \
        "$(wc -l <"$work/two.steps")" "$(tail -n 1 "$work/two.steps" | cut -c -120)"
}

compile() {
    local base=$work/base toolchain
    say "compile the sampler inside"
    SECONDS=0
    toolchain=$(rustc --print sysroot)
    mkdir -p "$base/usr/local/rustup/toolchains" "$base/usr/local/cargo"
    cp --archive "$toolchain" "$base/usr/local/rustup/toolchains/host"
    tar --directory "$base" --create . | podman import --quiet --change 'ENV CARGO_HOME=/usr/local/cargo' \
        --change 'ENV PATH=/usr/local/rustup/toolchains/host/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
        - "$rust" >/dev/null
    printf '%s: %d s\n' "$rust" $SECONDS
    SECONDS=0
    build compiled sampler
    printf 'sampler: %d s\n' $SECONDS
    contain --rm kith-sampler-compiled --version
}

main "$@"
