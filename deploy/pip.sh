# pip for wheels with a SHA-256 in deploy/wheels/; sourced by the scripts that fetch them.

wheels=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/wheels

# checked_pip PYTHON COMMAND NAME OPTION...: `pip install` or `pip download` of deploy/wheels/NAME.txt. Builds nothing
# from source: a package without a wheel for this machine is an error. Exit code 4, with a sentence: a wheel has another
# hash.
checked_pip() {
    local python=$1 command=$2 requirements=$wheels/$3.txt said code=0
    shift 3
    said=$(mktemp)
    "$python" -m pip "$command" --disable-pip-version-check --only-binary :all: --require-hashes --requirement "$requirements" "$@" \
        2>"$said" || code=$?
    cat "$said" >&2
    if ((code)) && grep -q 'DO NOT MATCH THE HASHES' "$said"; then
        printf 'error: pip was offered a wheel with another SHA-256 than deploy/wheels/%s says (above: expected, got): %s\n' \
            "${requirements##*/}" "do not use it; check which index pip asks (\`pip config list\`), then try again" >&2
        code=4
    fi
    rm -f "$said"
    return $code
}
