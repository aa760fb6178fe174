//! The layers of a model as fused passes over the edges, and their random draws.
//!
//! A `Block` holds the edges of one layer, [`InputRows`] the features that the first layer reads. Everything random is
//! a named draw: [`Dropout`] here, the pairs of the edge loss next to the block. Uses no files and no network.

mod aggregate_layer;
mod attention;
mod attention_layer;
mod bridge;
mod buffer;
pub mod cuda;
mod cut;
mod dropout;
mod edge_mask;
mod layer;
mod layout;
mod linear;
mod node_loss;
mod node_sums;
mod open_list;
mod product;
mod products;
mod rows;
mod simd;
mod sparse_product;
mod transition;
mod update;
mod weighted_rows;

pub use crate::{
    aggregate_layer::{AggregateLayer, AggregateWeights},
    attention_layer::{AttentionLayer, AttentionStep, AttentionWeights},
    bridge::{filled, is_plain, numbers, numbers_mut, prepare, trim},
    dropout::Dropout,
    edge_mask::{EdgeMask, sum_of_weights},
    layer::{LayerDraws, LayerInput},
    linear::linear,
    node_loss::{SoftTargets, class_loss, soft_class_loss},
    open_list::{LIST_PIECE, OpenList},
    products::{multiply, plain_products, product_len},
    rows::{InputRows, SparseRows},
    transition::{
        Activation, ColumnStatistics, NORM_EPSILON, NormKind, Passed, Transition, column_statistics,
        column_statistics_of,
    },
    update::{AdamStep, Rule, Update, average, norm},
};
