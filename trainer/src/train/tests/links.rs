//! Link prediction: what is learned, by which kernels, and after a restart.

use kith_run::config::LinksConfig;
use tch::Kind;

use super::*;
use crate::{data::link_pairs::Links, loss::link_loss};

const OPTIONS: [&str; 4] = ["links.valid=0.1", "links.test=0.1", "links.dim=6", "train.epochs=40"];

fn links_of(config: &RunConfig) -> Data {
    let whole = graph(150, 0, 1);
    let (graph, links) = Links::to_predict(&whole, (config.links.as_ref().unwrap(), None), 7).unwrap();
    crate::engine::device::start();
    let graph = GraphInput { labels: None, train: vec![], valid: vec![], test: vec![], ..graph };
    Data::Full(Input {
        graphs: vec![graph],
        dim: 5,
        n_classes: 6,
        label_kind: kith_store::LabelKind::Classes,
        scales: Vec::new(),
        links: Some(links),
    })
}

#[test]
fn edges_are_learned_alike_by_all_kernels() {
    for (kind, more) in [
        (&["model=off", "model.kind=gcn", "edge_loss=off", "model.hidden=16"][..], "links.disjoint_train_ratio=0.3"),
        (&["model.kind=gat", "edge_loss=off"], "links.neg_sample_ratio=2"),
        (&["model.attention=mx"], "train.metric=hits@10"),
        (&["model=off", "model.kind=sage", "edge_loss=off", "model.norm=batch"], "train.metric=mrr"),
    ] {
        let [fused, reference] = KERNELS.map(|kernels| {
            let config = config(&[&OPTIONS[..], kind, &[kernels, more]].concat());
            to_the_end(plan(&links_of(&config), config, None, false))
        });
        let last = |records: &[StepRecord]| records.last().unwrap().measured.unwrap();
        let end = last(&fused);
        let mean = |records: &[StepRecord]| records.iter().map(|record| record.node_loss).sum::<f64>() / 5.0;
        assert!(mean(&fused[35..]) < mean(&fused[..5]), "{kind:?}");
        if !more.starts_with("train.metric") {
            assert!(end.test > 0.55, "{kind:?}: {end:?}");
        }
        let off = (end.valid_loss - last(&reference).valid_loss).abs();
        assert!(off < 2e-3, "{kind:?}: {end:?} {:?}", last(&reference));
        assert!(fused.iter().all(|record| record.n_seeds > 0));
    }
}

#[test]
fn a_resumed_run_predicts_the_same_links() {
    let config = config(&[&OPTIONS[..], &["train.epochs=9"]].concat());
    let data = links_of(&config);
    let temp = tempfile::tempdir().unwrap();
    let [whole, killed] = ["whole", "killed"].map(|name| temp.path().join(name));
    to_the_end(plan(&data, config.clone(), Some(&whole), false));
    kill(plan(&data, config.clone(), Some(&killed), false), 5);
    let resumed = to_the_end(plan(&data, config, Some(&killed), true));
    assert_eq!(resumed[0].step, 3);
    assert_eq!(left_behind(&killed), left_behind(&whole));
}

/// The mean binary cross-entropy of dot products, and its gradient.
#[test]
fn the_loss_is_that_of_dot_products() {
    let whole = graph(60, 0, 1);
    let config = LinksConfig { valid: 0.1, test: 0.1, ..LinksConfig::default() };
    let (_, links) = Links::to_predict(&whole, (&config, None), 1).unwrap();
    let pairs = links.train.unwrap().draw(1, 0, 2);
    let outputs = (Tensor::arange(180, (Kind::Double, Device::Cpu)).sin() * 2.0).view([60, 3]).set_requires_grad(true);
    let loss = link_loss(&outputs, &pairs, pairs.len());
    let products = outputs.matmul(&outputs.tr());
    let terms: Vec<Tensor> = pairs
        .each()
        .map(|(a, b, is_edge)| {
            let logit = products.get(i64::from(a)).get(i64::from(b));
            -(if is_edge { logit } else { -logit }).log_sigmoid()
        })
        .collect();
    let expected = Tensor::stack(&terms, 0).mean(Kind::Double);
    assert!((loss.double_value(&[]) - expected.double_value(&[])).abs() < 1e-12);
    let gradient = |loss: &Tensor| Tensor::run_backward(&[loss], &[&outputs], true, false).remove(0);
    let off = (gradient(&loss) - gradient(&expected)).abs().max().double_value(&[]);
    assert!(off < 1e-12, "{off}");
}
