# What the reader of a document has: made in the folder where its commands run, if it is named there.
#
#   DOCUMENT    the file
#   DATASETS    the folder with the raw files of datasets, where this machine has them

mentions() { grep -q -- "$1" "$DOCUMENT"; }

# A graph as small as commands for large ones can be tried on.
made() { kith data generate power-law --nodes 4000 --degree 6 --classes 4 --dim 16 --seed 7 --out "$1" >/dev/null; }

for dataset in cora pubmed; do
    if mentions "data fetch $dataset" && [[ -d $DATASETS/$dataset ]]; then
        mkdir -p data && cp -r "$DATASETS/$dataset" data/ && chmod -R u+w data # Fetching finds them there.
    fi
done
if mentions stores/cora && ! mentions "--out stores/cora"; then
    if [[ -d $DATASETS/cora ]]; then
        kith data import cora --from "$DATASETS/cora" --out stores/cora >/dev/null
    else
        made stores/cora
    fi
fi
for store in mine arxiv products; do
    if mentions "stores/$store" && ! mentions "--out stores/$store"; then made "stores/$store"; fi
done
if mentions my.toml; then
    cat >my.toml <<'END'
[model]
kind = "supergat"
attention = "mx"

[optimizer]
learning_rate = 0.01
weight_decay = 1e-5

[train]
epochs = 3
mode = "mini-batch"
slices = 2

[edge_loss]
weight = 0.1
END
fi

# Tables of one's own: a ring of 64 nodes in two classes, with two features each.
if mentions "--edges "; then
    for node in {0..63}; do
        printf '%d,%d\n' "$node" $(((node + 1) % 64)) >>edges.csv
        printf '%d,%d\n' "$node" $((node % 2)) >>labels.csv
        if ((node % 8 < 6)); then part=train; elif ((node % 8 < 7)); then part=valid; else part=test; fi
        printf '%d,%s\n' "$node" "$part" >>parts.csv
    done
    mkdir edges && cp edges.csv edges/one.csv
    header="{'descr': '<f4', 'fortran_order': False, 'shape': (64, 2), }"
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "$header" >features.npy
    head -c $((64 * 2 * 4)) /dev/zero >>features.npy
fi
