#!/usr/bin/env bash
# Prepares this machine for building Kith: checks the tools, finds or fetches libtorch, links it as .libtorch.
#
#   deploy/setup.sh [--tests] [--lint]     also what `make test` and `make lint` need
#   deploy/setup.sh --docs                 only what `make docs` needs
#
#   LIBTORCH         folder of a libtorch 2.11.0 to use unchanged
#   XDG_CACHE_HOME   parent folder of a fetched libtorch, shared by clones (default: ~/.cache)
#   KITH_CUDA        1: fetch the CUDA libraries too, 0: skip them (default: 1 with an NVIDIA driver, else 0)
set -euo pipefail

version=2.11.0
nextest=0.9.143
deny=0.20.2
mdbook=0.5.4
lock_seconds=3600
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
unpack=$repository/deploy/unpack.py
source "$repository/deploy/pip.sh"

say() { printf 'setup: %s\n' "$*"; }
fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

main() {
    local tests=0 lint=0 argument
    for argument in "$@"; do
        case $argument in
        --tests) tests=1 ;;
        --lint) lint=1 ;;
        --docs)
            command -v python3 >/dev/null || fail "the book needs python3 (for example \`apt install python3\`); then run make again"
            install_tool mdbook "$mdbook" "which builds the book" --no-default-features --features search
            return
            ;;
        *) fail "unknown argument $argument; deploy/setup.sh takes only --tests, --lint and --docs" ;;
        esac
    done

    local folder parts=()
    if [[ -n ${LIBTORCH:-} ]]; then
        check_given "$LIBTORCH"
        folder=$(readlink -f "$LIBTORCH")
        check_tools "$tests"
    else
        folder=$(cache_home)/kith/libtorch-$version
        [[ $(problem_with "$folder") == "" ]] || parts+=(base)
        if wants_cuda; then
            [[ $(problem_with "$folder/cuda") == "" ]] || parts+=(cuda)
        fi
        check_tools "$tests" "${parts[@]}"
        if ((${#parts[@]})); then fetch "$folder" "${parts[@]}"; fi
    fi
    link "$folder"
    if ((tests)); then
        install_tool cargo-nextest "$nextest" "which runs the tests"
        make_peer s3.sh "no server of S3 for the tests of object storage"
        make_peer pyg.sh "no PyG for the tests of \`import kith\`"
        make_peer python-checks.sh "no mypy, ruff and nbclient for the tests of Python code"
    fi
    if ((lint)); then install_tool cargo-deny "$deny" "which checks dependencies"; fi
}

cache_home() {
    # The XDG standard says to ignore a relative XDG_CACHE_HOME.
    if [[ ${XDG_CACHE_HOME:-} == /* ]]; then
        printf '%s' "$XDG_CACHE_HOME"
    else
        [[ -n ${HOME:-} ]] || fail "neither HOME nor XDG_CACHE_HOME is set: set one, libtorch is kept under it"
        printf '%s' "$HOME/.cache"
    fi
}

check_given() {
    local given=$1 found
    [[ $given == /* ]] || fail "LIBTORCH=$given is a relative path: give the whole path, or unset it to fetch libtorch $version"
    [[ -d $given/include && -e $given/lib/libtorch_cpu.so && -e $given/lib/libc10.so ]] ||
        fail "LIBTORCH=$given has no include/ and lib/libtorch_cpu.so: point it at libtorch $version, or unset it to fetch one"
    found=$(sed -n 's/^ *"\([0-9.]*\)".*/\1/p' "$given/include/torch/headeronly/version.h" 2>/dev/null || true)
    [[ $found == "$version" ]] ||
        fail "LIBTORCH=$given is libtorch ${found:-of an unknown version}, Kith needs $version: unset LIBTORCH to fetch it"
}

# Prints one sentence with everything that is missing and how to get it.
check_tools() {
    local tests=$1 missing=() rust_wanted rust_found
    shift
    rust_wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$repository/Cargo.toml")
    if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
        missing+=("cargo $rust_wanted or newer (install Rust with rustup, see https://rustup.rs)")
    else
        rust_found=$(cd "$repository" && rustc --version | cut -d' ' -f2)
        [[ $(printf '%s\n' "$rust_wanted" "${rust_found%%-*}" | sort -V | head -n 1) == "$rust_wanted" ]] ||
            missing+=("Rust $rust_wanted or newer (this one is $rust_found; run \`rustup update stable\`)")
    fi
    has_cpp17 || missing+=("a C++17 compiler (install g++, for example with \`apt install g++\`, or set CXX to another)")
    command -v make >/dev/null || missing+=("make (for example \`apt install make\`)")
    if (($#)); then # Something must be fetched.
        python3 -c 'import pip, sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null ||
            missing+=("python3 (3.9 or newer) with pip (for example \`apt install python3-pip\`)")
        command -v flock >/dev/null || missing+=("flock (for example \`apt install util-linux\`)")
        [[ $(uname -sm) == "Linux x86_64" ]] || missing+=("libtorch $version for $(uname -sm) (set LIBTORCH to its folder)")
        has_glibc || missing+=("glibc 2.28 or newer, for libtorch $version (set LIBTORCH to one that was built for this machine)")
    fi
    ((${#missing[@]} == 0)) || fail "Kith needs $(joined "${missing[@]}"); then run make again"
}

joined() {
    local text=$1
    shift
    while (($# > 1)); do
        text+=", $1"
        shift
    done
    printf '%s' "$text${1:+ and $1}"
}

has_cpp17() {
    local compiler
    read -ra compiler <<<"${CXX:-c++}"
    "${compiler[@]}" -std=c++17 -x c++ -fsyntax-only - &>/dev/null <<<'
        #include <optional>
        int main() { if constexpr (std::optional<int> one = 1; true) return *one - 1; }'
}

has_glibc() {
    local found
    found=$(getconf GNU_LIBC_VERSION 2>/dev/null) && [[ $(printf '%s\n' "glibc 2.28" "$found" | sort -V | head -n 1) == "glibc 2.28" ]]
}

wants_cuda() {
    case ${KITH_CUDA:-} in
    0) return 1 ;;
    1) return 0 ;;
    "") [[ -e /proc/driver/nvidia/version ]] || nvidia-smi &>/dev/null || has_driver_library ;;
    *) fail "KITH_CUDA=$KITH_CUDA means nothing: 1 fetches the CUDA libraries, 0 leaves them out" ;;
    esac
}

has_driver_library() { [[ $(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null) == *libcuda.so.1* ]]; }

# Prints nothing if every library of the folder's stamp exists with its size; else the problem.
problem_with() {
    local folder=$1 size path found
    [[ -d $folder ]] || { printf 'absent' && return; }
    [[ -s $folder/stamp ]] || { printf 'it has no stamp' && return; }
    while read -r size _ path; do
        found=$(stat -Lc %s "$folder/$path" 2>/dev/null || printf 'none')
        [[ $found == "$size" ]] || { printf '%s has %s bytes, not %s' "$path" "$found" "$size" && return; }
    done <"$folder/stamp"
}

# Fetches missing libraries under a lock: writes a draft, and publishes it by a rename.
fetch() {
    local folder=$1 part goal problem
    shift
    mkdir -p "$(dirname "$folder")" 2>/dev/null && [[ -w $(dirname "$folder") ]] ||
        fail "$(dirname "$folder") cannot be written: set XDG_CACHE_HOME to a folder that can be written"
    exec 9>"$folder.lock"
    if ! flock --nonblock 9; then
        say "another set-up is fetching libtorch; waiting for it"
        flock --timeout $lock_seconds 9 ||
            fail "another set-up has held $folder.lock for $lock_seconds s: end it (fuser $folder.lock names it), then run make again"
    fi
    draft=$folder.draft # The lock protects the draft; a killed set-up may have left one.
    trap 'rm -rf "$draft"' EXIT
    for part in "$@"; do
        goal=$folder
        [[ $part == base ]] || goal=$folder/cuda
        problem=$(problem_with "$goal")
        [[ -n $problem ]] || continue # Another set-up has made it.
        rm -rf "$draft"
        mkdir -p "$draft/wheels" "$draft/tmp" "$draft/$part"
        "fetch_$part"
        if [[ $problem != absent ]]; then
            say "$goal is damaged ($problem): putting the new one in its place"
            mv "$goal" "$draft/damaged"
            # Complete parts are moved over.
            [[ $part == cuda || ! -d $draft/damaged/cuda ]] || mv "$draft/damaged/cuda" "$draft/base/cuda"
        fi
        sync -f "$draft"
        mv -T "$draft/$part" "$goal"
        say "$goal is ready ($(du -sh "$goal" | cut -f1))"
    done
    rm -rf "$draft"
    exec 9>&-
}

fetch_base() {
    check_space 2
    say "fetching libtorch $version with pip (about 550 MB), once for all clones"
    pip_download libtorch
    say "unpacking"
    python3 "$unpack" base "$draft/base" "$draft"/wheels/*.whl || fail "libtorch could not be unpacked into $draft"
}

fetch_cuda() {
    check_space 7
    say "fetching the CUDA libraries of libtorch $version with pip (about 2.5 GB), once for all clones"
    pip_download libtorch-cuda
    say "unpacking"
    python3 "$unpack" cuda "$draft/cuda" "$draft"/wheels/*.whl || fail "the CUDA libraries could not be unpacked into $draft"
}

# pip_download NAME: downloads the wheels of deploy/wheels/NAME.txt for one fixed Python: only their libraries are used.
pip_download() {
    local minor code=0 options=(--no-deps --dest "$draft/wheels" --python-version 3.12 --implementation cp --abi cp312)
    for minor in {28..5}; do options+=(--platform "manylinux_2_${minor}_x86_64"); done
    options+=(--platform manylinux2014_x86_64 --platform manylinux2010_x86_64 --platform manylinux1_x86_64)
    [[ -t 1 ]] || options+=(--quiet)
    TMPDIR=$draft/tmp checked_pip python3 download "$1" --no-cache-dir "${options[@]}" || code=$?
    case $code in
    0) ;;
    4) exit 1 ;;
    *) fail "pip could not fetch the wheels of deploy/wheels/$1.txt (its own words are above): check the network, or set LIBTORCH to a folder with libtorch $version" ;;
    esac
}

check_space() {
    local wanted_gb=$1 free_kb
    free_kb=$(df -Pk "$draft" | awk 'NR == 2 { print $4 }')
    ((free_kb >= wanted_gb * 1000 * 1000)) ||
        fail "$(dirname "$draft") has $((free_kb / 1000)) MB free and $wanted_gb GB are needed: set XDG_CACHE_HOME to a folder with more"
}

link() {
    local folder=$1 name=$repository/.libtorch
    [[ $(readlink "$name" || true) != "$folder" ]] || return 0
    [[ -L $name || ! -e $name ]] || fail "$name is in the way: it should be a link that set-up makes; move it"
    ln -s "$folder" "$name.$$" && mv -T "$name.$$" "$name" # Atomically: another cargo may be reading it.
    say "libtorch $version is $folder"
}

# install_tool NAME VERSION JOB OPTION…: installs exactly this version, unless a newer one exists, which stays, with a note.
install_tool() {
    local name=$1 wanted=$2 job=$3 found command=("$1")
    shift 3
    [[ $name != cargo-* ]] || command=(cargo "${name#cargo-}")
    found=$("${command[@]}" --version 2>/dev/null | sed -n "1s/^$name v\{0,1\}\([0-9.]*\).*/\1/p" || true)
    [[ $found != "$wanted" ]] || return 0
    if [[ -n $found && $(printf '%s\n' "$wanted" "$found" | sort -V | tail -n 1) == "$found" ]]; then
        say "using $name $found, which is newer than $wanted, with which Kith is tested"
        return
    fi
    say "installing $name $wanted, $job (up to ten minutes on two cores, once)"
    cargo install "$name" --version "=$wanted" --locked --quiet "$@" ||
        fail "$name could not be installed: run \`cargo install $name --version =$wanted --locked\` and see why"
}

# make_peer SCRIPT NONE: installs what tests need; those that need it print a note without it.
make_peer() {
    local code=0
    "$repository/deploy/$1" >/dev/null || code=$?
    case $code in
    0) ;;
    3) say "$2: they will be skipped" ;;
    *) fail "deploy/$1 failed: run it and see why" ;;
    esac
}

main "$@"
