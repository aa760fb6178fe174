#!/usr/bin/env bash
# Builds the wheel of `import kith` into target/wheels, and prints its path.
#
#   deploy/wheel.sh
#
# Exit code 3: pip cannot get maturin here. See deploy/peer.sh for its environment.
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
source "$repository/deploy/peer.sh"

any_python() {
    printf 'python3'
}

python=$(peer maturin any_python maturin)
out=${CARGO_TARGET_DIR:-$repository/target}/wheels
"$python" -m maturin build --release --locked --strip --quiet --interpreter "$python" \
    --manifest-path "$repository/sampler/python/Cargo.toml" --out "$out" >&2
find "$out" -name 'kith-*.whl' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2-
