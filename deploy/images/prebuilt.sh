#!/usr/bin/env bash
# Lays out the result of `make build` as target/images, for `--build-arg PROGRAMS=prebuilt`: stripped programs,
# libtorch's CPU libraries, and CUDA's if set-up fetched them (KITH_CUDA=1 make build).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
release=${CARGO_TARGET_DIR:-target}/release
out=target/images
glibc=2.36 # Of the base image, Debian 12.

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

programs=(kith kith-trainer kith-sampler)
[[ -d .libtorch/lib ]] || fail "there is no .libtorch: run \`make build\` first"
for program in "${programs[@]}"; do
    [[ -x $release/$program ]] || fail "$release has no $program: run \`make build\` first"
    needed=$(objdump -T "$release/$program" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -V | tail -n 1)
    [[ $(printf '%s\n' "$needed" "$glibc" | sort -V | tail -n 1) == "$glibc" ]] ||
        fail "$program was built for glibc $needed and the images have $glibc: build inside, with PROGRAMS=compiled"
done

rm -rf "$out"
mkdir -p "$out/lib" "$out/cuda"
for program in "${programs[@]}"; do strip -o "$out/$program" "$release/$program"; done
copy() { cp --archive --link "$1/." "$2" 2>/dev/null || cp --archive "$1/." "$2"; } # Hard links on the same file system.
copy "$(readlink -f .libtorch)/lib" "$out/lib"
if [[ -d .libtorch/cuda ]]; then copy "$(readlink -f .libtorch)/cuda" "$out/cuda"; fi
du -sh "$out"/*
