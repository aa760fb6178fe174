//! Models on real data: counts of the published settings on Cora.

use std::{process::Command, time::Duration};

use kith_block::Subset;
use kith_kernels::InputRows;
use kith_run::config::{EdgeLossConfig, Exclude};
use kith_store::Graph;
use kith_trainer::{data::input, model::draw_pairs};

use crate::kith::{finish_within, is_slow_asked_for, kith, program, real_files};

#[test]
fn pairs_of_cora() {
    let Some(raw) = real_files("cora") else { return };
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("cora");
    kith(["data", "import", "cora", "--from", raw.to_str().unwrap(), "--out", store.to_str().unwrap()]);
    let input = input::load(&Graph::open(&store).unwrap(), None).unwrap();
    assert_eq!((input.graphs.len(), input.dim, input.n_classes), (1, 1433, 7));
    let graph = &input.graphs[0];
    assert_eq!((graph.n_nodes(), graph.block.n_edges()), (2708, 13_264));
    assert_eq!((graph.train.len(), graph.valid.len(), graph.test.len()), (140, 500, 1000));
    assert!(matches!(*graph.rows, InputRows::Sparse(_)), "bags of words are sparse");
    assert!(graph.is_symmetric && !graph.is_one_of_many);

    let edge_loss = EdgeLossConfig {
        weight: 1.0,
        neg_sample_ratio: 0.5,
        edge_sampling_ratio: 0.8,
        exclude: Exclude::Directed,
        subset: Subset::Union,
    };
    let union = draw_pairs(&edge_loss, graph, 42, 0, 0);
    assert_eq!((union.n_pairs(), union.negatives().n_left_out), (15_916, 0));
    let all = draw_pairs(&EdgeLossConfig { edge_sampling_ratio: 1.0, ..edge_loss.clone() }, graph, 42, 0, 0);
    assert_eq!((all.n_pairs(), all.negatives().len()), (19_896, 6632));
    let each = draw_pairs(&EdgeLossConfig { subset: Subset::Each, ..edge_loss }, graph, 42, 0, 0);
    assert_eq!((each.n_pairs(), each.negatives().len()), (10_611 + 5305, 5305));
}

/// With the published settings, on the CPU, without a kernels option.
#[test]
fn slow_a_cgat_learns_cora() {
    let Some(raw) = real_files("cora").filter(|_| is_slow_asked_for()) else { return };
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("cora");
    kith(["data", "import", "cora", "--from", raw.to_str().unwrap(), "--out", store.to_str().unwrap()]);
    let mut train = Command::new(program());
    train.args(["train", "cora/cgat", "--graph", store.to_str().unwrap(), "--json"]);
    let report = finish_within(&mut train, Duration::from_secs(900)).json();
    let test = report["test"].as_f64().unwrap();
    assert!(test > 0.78, "{report}");
}
