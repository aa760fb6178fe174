#!/usr/bin/env bash
# Packs and unpacks corpora, `corpus/TARGET.tar.gz`. Equal inputs give equal bytes.
#   corpus.sh unpack TARGET FOLDER    writes the inputs of a target into a folder
#   corpus.sh pack TARGET FOLDER      makes the corpus of a target from the files of a folder
set -euo pipefail

[[ $# == 3 ]] || { sed -n '2,4s/^# //p' "$0" >&2; exit 1; }
packed=$(cd "$(dirname "$0")" && pwd)/corpus/$2.tar.gz
case $1 in
unpack)
    mkdir -p "$3"
    tar -xzf "$packed" -C "$3"
    ;;
pack)
    # No folders, times, owners or order of the file system: they differ between machines.
    (cd "$3" && find . -maxdepth 1 -type f -printf '%f\0' | LC_ALL=C sort -z) |
        tar -C "$3" --null --no-recursion --verbatim-files-from -T - --format=ustar --mtime=@0 --owner=0 --group=0 \
            --numeric-owner --mode=0644 -c | gzip -n9 >"$packed.draft"
    mv "$packed.draft" "$packed"
    ;;
*)
    sed -n '2,4s/^# //p' "$0" >&2
    exit 1
    ;;
esac
