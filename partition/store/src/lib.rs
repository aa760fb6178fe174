//! Graph store: one folder of immutable columns, described by `manifest.json`.
//!
//! [`StoreWriter`] writes it, [`Graph`] reads it, [`verify`] checks every byte of it.
//!
//! A partitioned graph is a folder of the same kind: a [`Cluster`] with the owner of every node, and in it one folder
//! per [`Shard`] with the columns of its nodes, in ascending order of their ids.
//!
//! | column | items | holds |
//! |---|---|---|
//! | `indptr`, `indices` | `n_nodes + 1`, `n_edges` | for each destination its sources, ascending |
//! | `out_indptr`, `out_indices` | the same | for each source its destinations, unless the store is symmetric |
//! | `out_edges` | `n_edges` | position of each edge of `out_indices` in `indices` |
//! | `edge_weights` | `n_edges` | weight of each edge of `indices`, f32 |
//! | `edge_features` | `n_edges * dim` | dense features of each edge of `indices` |
//! | `features` | `n_nodes * dim` | dense features |
//! | `feature_indptr`, `feature_indices`, `feature_values` | `n_nodes + 1`, values | sparse features |
//! | `labels` or `label_bits` | `n_nodes` | class of each node (u32), numbers to predict (f32), or 64 classes per word |
//! | `split.NAME` | `n_nodes` | 0 none, 1 train, 2 valid, 3 test |
//! | `ids` or `id_indptr`, `id_bytes` | `n_nodes` | the user's own id of each node |
//! | `graph_of_node` | `n_nodes` | the graph of each node, in a set of several |
//! | `owner` | `n_nodes` | of a partitioned graph: the shard that owns each node |
//! | `inclusion` | `n_nodes` | of a partitioned graph: probability that each node is in a mini-batch |
//! | `owned` | 2 per 64 nodes | of a shard: 64 bits, 1 for each node it owns; number of nodes it owns before them |
//! | `checksums` | blocks | CRC-32 of every MiB of every column above, in the manifest's order |

mod blocks;
mod cluster;
mod cluster_writer;
mod column;
mod edge_weights;
mod error;
mod exit;
mod features;
mod first_format;
mod folders;
mod graph;
mod item;
mod lists;
mod manifest;
mod manifest_file;
mod mapped;
mod marker;
pub mod memory;
mod node_columns;
mod opening;
mod owned;
mod presence;
mod shard;
mod shard_group;
mod shard_list;
mod source_columns;
mod transfer;
mod unfinished;
mod upgrade;
mod verify;
mod work_folder;
mod writer;

pub use crate::{
    blocks::{BLOCK_BYTES, Verify},
    cluster::{Cluster, Owners},
    cluster_writer::{Cut, write_cluster},
    column::{Column, ColumnWriter, FinishedColumn},
    edge_weights::{EdgeWeights, MAX_WEIGHT, check_weight, is_weight},
    error::{Result, StoreError},
    exit::exit_at_once,
    features::{Features, MAX_EDGE_DIM, SparseRow},
    folders::{make_folder, sync_folder},
    graph::Graph,
    item::{Dtype, Item},
    lists::{Lists, Neighbors},
    manifest::{
        ClusterEntry, ColumnEntry, Contents, CutEntry, FORMAT_VERSION, FeatureLayout, FeaturesEntry, GraphsEntry,
        IdsEntry, LabelKind, LabelsEntry, Manifest, Provenance, ShardEntry, ShardSummary,
    },
    node_columns::{Graphs, Ids, Labels, NO_CLASS, Split, SplitPart, split_column},
    owned::NodeRows,
    presence::Presence,
    shard::Shard,
    shard_list::{parse_shard_list, shard_list},
    transfer::{Outcome, Step, Transfer, TransferKind, Transferred, Watch},
    unfinished::{Unfinished, remove},
    upgrade::upgrade,
    verify::{Finding, Verified, verify},
    work_folder::WorkFolder,
    writer::StoreWriter,
};
