//! CGAT: a golden example, gradients, comparisons, and the largest scores.

use kith_run::config::CgatConfig;

use super::*;
use crate::model::kinds::largest;

fn small_cgat(cgat: CgatConfig) -> RunConfig {
    RunConfig { cgat: Some(cgat), edge_loss: None, ..small(ModelKind::Cgat, Form::Go, 2) }
}

/// Margins large enough that most terms count.
fn semi() -> CgatConfig {
    CgatConfig { graph_weight: 0.7, graph_margin: 1.3, top_k: Some(2), negatives: 3, ..CgatConfig::default() }
}

fn full() -> CgatConfig {
    CgatConfig { boundary_weight: 0.4, boundary_margin: 0.9, ..semi() }
}

/// Three nodes, two of a class; all are trained on. Node 1 has an edge to every node.
fn three() -> GraphInput {
    let lists = [vec![1], vec![0, 2], vec![1]];
    let block = Block::full(3, 4, |node| Ok::<_, BlockError>(lists[node as usize].iter().copied())).unwrap();
    let rows = vec![1.0, 0.0, 0.5, 0.5, 0.5, -1.0, 1.0, 0.0, -1.0, 2.0, 0.0, -0.5];
    GraphInput {
        block: Arc::new(block),
        rows: Arc::new(InputRows::Dense { dim: 4, values: rows }),
        labels: Some(Labels::Classes(vec![0, 0, 1])),
        ..random_graph(3, 1, 4, 2)
    }
}

/// One layer whose products are its rows.
fn golden_model(cgat: CgatConfig) -> Model {
    let mut config = small_cgat(cgat);
    config.model = ModelConfig { n_layers: 1, out_heads: 2, dropout: 0.0, ..config.model };
    let model = model(&config, 4, 2, 1);
    let weight: Vec<f32> = (0..16).map(|place| if place % 5 == 0 { 1.0 } else { 0.0 }).collect();
    let attention = [0.1, 0.2, -0.3, 0.4, 0.5, -0.5, 0.25, 1.0];
    model.weights().set(&Tensor::from_slice(&[&weight[..], &attention, &[0.0; 2]].concat()));
    model
}

/// The numbers are those of `trainer/tests/cgat_golden.py`, which loops over edges and knows nothing of this code.
#[test]
fn a_golden_example() {
    let (graph, pass) = (three(), Pass::Train { run_key: 1, step: 0 });
    let near = |found: &Tensor, expected: &[f64]| {
        let expected = Tensor::from_slice(expected).view_as(found);
        let error = (found.to_kind(Kind::Double) - expected).abs().max().double_value(&[]);
        assert!(error < 1e-6, "{error}: {found:?}");
    };
    for (boundary_weight, losses) in [(0.0, &[0.67325][..]), (0.4, &[0.701833, 0.147667])] {
        let cgat = CgatConfig {
            graph_weight: 0.7,
            graph_margin: 0.3,
            boundary_weight,
            boundary_margin: 0.15,
            top_k: Some(2),
            negatives: 4,
        };
        let model = golden_model(cgat.clone());
        let trained = model.forward(&graph, pass).unwrap();
        near(&trained.logits, &[0.727458, -0.100583, 0.127113, 0.872887, -0.040421, 0.611851]);
        let found: Vec<Tensor> = trained.losses_of_layers().map(Tensor::detach).collect();
        near(&Tensor::stack(&found, 0), losses);
        let weighted: f64 = [0.7, 0.4].iter().zip(losses).map(|(weight, loss)| weight * loss).sum();
        near(&trained.edge_loss(1).unwrap(), &[weighted]);

        let all = [0.727458, -0.100583, 0.172011, 0.546339, -0.040421, 0.611851];
        let evaluated = model.forward(&graph, Pass::Evaluate).unwrap();
        near(&evaluated.logits, &all);
        assert!(evaluated.edge_losses.is_empty() && evaluated.edge_loss(1).is_none());
        let plain = golden_model(CgatConfig { top_k: None, ..cgat });
        near(&plain.forward(&graph, pass).unwrap().logits, &all);
    }
}

#[test]
fn gradients_of_all_losses_agree_with_finite_differences() {
    let mut graph = random_graph(9, 25, 4, 3);
    for cgat in [semi(), full(), CgatConfig { top_k: None, ..full() }, CgatConfig { graph_weight: 0.0, ..full() }] {
        check_gradient(&small_cgat(cgat), &graph);
    }
    graph.train = vec![0, 1, 2, 4, 7];
    check_gradient(&small_cgat(full()), &graph);
}

/// Rounds of "keep the largest, take it away": what is equal is kept together, and takes one round.
#[test]
fn equal_scores_are_kept_together() {
    let lists: [&[u64]; 5] = [&[1, 2, 3, 4], &[], &[], &[0], &[]];
    let block = Block::full(5, 5, |node| Ok::<_, BlockError>(lists[node as usize].iter().copied())).unwrap();
    let edges = Edges::new(&block, Device::Cpu);
    let scores =
        Tensor::from_slice(&[3.0, 1.0, 3.0, 2.0, 0.5, /* lists of one or two */ 7.0, 7.0, 4.0, 4.0, -9.0]);
    let kept = |k| Vec::<f64>::try_from(largest(&edges, &scores.view([10, 1]), k).view([10])).unwrap();
    assert_eq!(kept(1), [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    assert_eq!(kept(2), [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    assert_eq!(kept(3), [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    assert_eq!(kept(100), [1.0; 10]);
}

#[test]
fn negatives_are_no_edges_and_every_edge_has_some() {
    let graph = random_graph(30, 120, 1, 3);
    let block = &graph.block;
    let drawn = Contrast::draw(&semi(), &graph, 1, 0, 0);
    assert_eq!(drawn.edges.len() + drawn.n_left_out, 3 * block.n_edges());
    assert!(drawn.n_left_out < 10 && drawn.crossing.is_empty());
    for (edge, node) in drawn.edges.iter().zip(&drawn.nodes) {
        assert!(!block.has_edge(block.sources()[*edge as usize], *node));
    }
    let of = |run_key, step, layer| Contrast::draw(&semi(), &graph, run_key, step, layer);
    assert_eq!(drawn, of(1, 0, 0));
    assert!([of(2, 0, 0), of(1, 1, 0), of(1, 0, 1)].iter().all(|other| other.nodes != drawn.nodes));
    // Node 1 has an edge to every node; the others have one node left.
    let drawn = Contrast::draw(&semi(), &three(), 1, 0, 0);
    assert_eq!((drawn.edges, drawn.n_left_out), (vec![1, 1, 1, 2, 2, 2, 3, 3, 3, 6, 6, 6], 9));
    assert_eq!(drawn.nodes, [2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0]);
}

/// Classes count where they are known, and draws do not depend on which those are.
#[test]
fn only_nodes_that_are_trained_on_have_a_class() {
    let mut graph = random_graph(30, 120, 1, 3);
    let all = Contrast::draw(&semi(), &graph, 1, 0, 0);
    graph.train = (0..30).filter(|position| position % 4 != 0).collect();
    let drawn = Contrast::draw(&full(), &graph, 1, 0, 0);
    let ends = |edge: u32| {
        let destination = graph.block.indptr().partition_point(|start| *start <= edge as usize) - 1;
        (graph.block.sources()[edge as usize], destination as u32)
    };
    let is_known = |edge: u32| ends(edge).0 % 4 != 0 && ends(edge).1 % 4 != 0;
    let is_within = |edge: u32| is_known(edge) && ends(edge).0 % 3 == ends(edge).1 % 3;
    let is_crossing = |edge: u32| is_known(edge) && ends(edge).0 % 3 != ends(edge).1 % 3;
    let pairs = |contrast: &Contrast| contrast.edges.iter().copied().zip(contrast.nodes.clone()).collect::<Vec<_>>();
    let expected: Vec<(u32, u32)> = pairs(&all).into_iter().filter(|(edge, _)| is_within(*edge)).collect();
    assert_eq!(pairs(&drawn), expected);

    let found: BTreeSet<(u32, u32)> = drawn.crossing.iter().copied().zip(drawn.within.iter().copied()).collect();
    let edges = || 0..graph.block.n_edges() as u32;
    let expected: BTreeSet<(u32, u32)> = edges()
        .filter(|edge| is_crossing(*edge))
        .flat_map(|crossing| edges().map(move |within| (crossing, within)))
        .filter(|(crossing, within)| is_within(*within) && ends(*crossing).0 == ends(*within).0)
        .collect();
    assert!(found.len() > 20 && found.len() == drawn.crossing.len());
    assert_eq!(found, expected);
}

#[test]
fn nodes_of_several_classes_are_alike_where_all_are() {
    let bits = vec![true, false, true, false, true, true];
    let labels = Some(Labels::Bits { n_classes: 2, bits });
    let expected = Contrast::draw(&full(), &three(), 1, 0, 0);
    assert_eq!(Contrast::draw(&full(), &GraphInput { labels, ..three() }, 1, 0, 0), expected);
    assert_eq!((expected.crossing.len(), expected.within.len()), (3, 3));
}

#[test]
fn a_step_has_the_same_bits_twice() {
    let graph = random_graph(60, 400, 9, 4);
    let step = |step, n_threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        pool.install(|| {
            let model = model(&small_cgat(full()), 9, 4, 1);
            let loss = total_loss(&model, &graph, Pass::Train { run_key: 1, step });
            loss.backward();
            (loss.double_value(&[]).to_bits(), Vec::<f32>::try_from(model.weights().gradient()).unwrap())
        })
    };
    assert_eq!(step(5, 1), step(5, 1));
    assert_eq!(step(5, 1), step(5, 3));
    assert_ne!(step(5, 1).0, step(6, 1).0);
}
