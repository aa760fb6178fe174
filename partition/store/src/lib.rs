//! The graph store: one folder of immutable columns, described by `manifest.json`.
//!
//! Write it with [`StoreWriter`], read it with [`Graph`], read every byte of it with [`verify`].
//!
//! A store that was cut is a folder of the same kind: a [`Cluster`] with the owner of every node, and in it one folder
//! per [`Shard`] with the columns of its nodes, row by row in ascending order of their ids.
//!
//! | column | items | holds |
//! |---|---|---|
//! | `indptr`, `indices` | `n_nodes + 1`, `n_edges` | for each destination its sources, ascending |
//! | `out_indptr`, `out_indices` | the same | for each source its destinations, unless the store is symmetric |
//! | `out_edges` | `n_edges` | where each edge of the second lists stands in the first |
//! | `rows` | `n_nodes * dim` | dense feature rows |
//! | `row_indptr`, `row_indices`, `row_values` | `n_nodes + 1`, values | sparse feature rows |
//! | `labels` or `label_bits` | `n_nodes` | the class of each node, or 64 classes per word |
//! | `split.NAME` | `n_nodes` | 0 none, 1 train, 2 valid, 3 test |
//! | `ids` or `id_indptr`, `id_bytes` | `n_nodes` | what the user calls each node |
//! | `graph_of_node` | `n_nodes` | the graph of each node, in a set of several |
//! | `owner` | `n_nodes` | of a cluster: the shard that owns each node |
//! | `inclusion` | `n_nodes` | of a cluster: how probably each node is in a batch |
//! | `owned` | 2 per 64 nodes | of a shard: 64 bits, whether it owns each; the nodes it owns before them |
//! | `checksums` | blocks | CRC-32 of every MiB of every column above, in the manifest's order |

mod blocks;
mod cluster;
mod cluster_writer;
mod column;
mod error;
mod graph;
mod item;
mod lists;
mod manifest;
mod mapped;
mod marker;
mod node_columns;
mod nodes_by_shard;
mod opening;
mod owned;
mod rows;
mod shard;
mod unfinished;
mod verify;
mod work_folder;
mod writer;

pub use crate::{
    blocks::{BLOCK_BYTES, Verify},
    cluster::{Cluster, Owners},
    cluster_writer::{Cut, write_cluster},
    column::{Column, ColumnWriter, FinishedColumn},
    error::{Result, StoreError},
    graph::Graph,
    item::{Dtype, Item},
    lists::{Lists, Neighbors},
    manifest::{
        ClusterEntry, ColumnEntry, Contents, CutEntry, FORMAT_VERSION, GraphsEntry, IdsEntry, LabelsEntry, Manifest,
        Provenance, RowsEntry, RowsForm, ShardEntry, ShardSummary,
    },
    node_columns::{Graphs, Ids, Labels, NO_CLASS, Split, SplitPart, split_column},
    owned::NodeRows,
    rows::{Rows, SparseRow},
    shard::Shard,
    unfinished::{Unfinished, remove, remove_unfinished},
    verify::{Finding, Verified, verify},
    work_folder::WorkFolder,
    writer::StoreWriter,
};
