//! Parity with PyG on the same weights and graphs: outputs, edge losses and gradients agree.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use kith_block::{Block, BlockError, Form, Subset};
use kith_draw::{Name, Purpose};
use kith_kernels::InputRows;
use kith_run::{
    choice::Choice,
    config::{
        Activation, EdgeLossConfig, Exclude, Jumping, Kernels, ModelConfig, Norm, Residual, RunConfig, TrainConfig,
    },
    model_kind::ModelKind,
};
use kith_trainer::{
    data::input::{self, GraphInput},
    engine::device,
    model::{LayerShape, Model, Pass, draw_pairs, oracle},
    output::interchange,
};
use serde_json::json;
use tch::{Device, Kind, Tensor};

use crate::kith::{finish_within, is_slow_asked_for, kith, python_with_pyg, real_files, root};

const RUN_LIMIT: Duration = Duration::from_secs(240);

const PASS: Pass = Pass::Train { run_key: 3, step: 0 };

/// One model on one graph.
struct Case {
    name: String,
    config: RunConfig,
    graph: Arc<GraphInput>,
    /// Edges as in a user's data, including self-loops: 2 × E.
    edges: Tensor,
    n_classes: usize,
}

impl Case {
    fn new(
        name: &str,
        (kind, form): (ModelKind, Form),
        sizes: Sizes,
        graph: &Arc<GraphInput>,
        edges: &Tensor,
        n_classes: usize,
    ) -> Case {
        let Sizes { n_layers, heads, features, out_heads } = sizes;
        let config = RunConfig {
            model: ModelConfig {
                kind,
                attention: form,
                n_layers,
                heads,
                hidden: features,
                out_heads,
                dropout: 0.0,
                root_weight: (kind == ModelKind::Sage).then_some(true),
                ..ModelConfig::default()
            },
            train: TrainConfig { kernels: Kernels::Reference, ..TrainConfig::default() },
            edge_loss: (kind == ModelKind::Supergat).then_some(EdgeLossConfig {
                weight: 3.0,
                neg_sample_ratio: 0.5,
                edge_sampling_ratio: 1.0,
                exclude: Exclude::Directed,
                subset: Subset::Union,
            }),
            ..RunConfig::default()
        };
        let name = format!("{name}-{}", kind.name_with(form));
        Case { name, config, graph: graph.clone(), edges: edges.shallow_clone(), n_classes }
    }

    fn model(&self, kernels: Kernels) -> Model {
        let mut config = self.config.clone();
        config.train.kernels = kernels;
        let model = Model::new(&config, self.graph.rows.dim(), self.n_classes, 1, Device::Cpu).unwrap();
        // Biases start at zero, which would hide a mix-up.
        let n_elements = model.weights().n_elements() as i64;
        let bits = Tensor::arange(n_elements, (Kind::Double, Device::Cpu)).sin() * 0.05;
        model.weights().set(&(model.weights().flat() + bits.to_kind(Kind::Float)));
        model
    }

    /// Gradient of the logits, in place of a node loss.
    fn logits_gradient(&self) -> Tensor {
        logits_gradient(&self.graph, self.n_classes)
    }

    fn write(&self, folder: &Path) {
        fs::create_dir(folder).unwrap();
        let model = self.model(Kernels::Reference);
        interchange::save(&model, &folder.join("weights.safetensors")).unwrap();
        let edge_loss_weight = self.config.edge_loss.as_ref().map_or(0.0, |edge_loss| edge_loss.weight);
        let (kind, form) = (self.config.model.kind.name(), self.config.model.attention.name());
        let case =
            json!({ "kind": kind, "form": form, "layers": shapes(&model), "edge_loss_weight": edge_loss_weight });
        fs::write(folder.join("case.json"), case.to_string()).unwrap();

        let mut tensors = graph_tensors(&self.graph, &self.edges, self.n_classes);
        for layer in 0..model.layers().len() {
            tensors.push((format!("negatives.{layer}"), self.negatives(layer)));
        }
        Tensor::write_safetensors(&tensors, folder.join("graph.safetensors")).unwrap();
    }

    /// The model's own negatives: 2 × n.
    fn negatives(&self, layer: usize) -> Tensor {
        let Pass::Train { run_key, step } = PASS else { unreachable!("a training pass") };
        let negatives = match &self.config.edge_loss {
            Some(edge_loss) => draw_pairs(edge_loss, &self.graph, run_key, step, layer).negatives().clone(),
            None => Default::default(),
        };
        let ends = [&negatives.sources, &negatives.destinations];
        let ends = ends.map(|ends| Tensor::from_slice(&ends.iter().map(|end| i64::from(*end)).collect::<Vec<_>>()));
        Tensor::stack(&ends, 0)
    }

    /// Compares with PyG's results in the folder.
    #[allow(clippy::print_stderr)]
    fn compare(&self, folder: &Path, kernels: Kernels) {
        let model = self.model(kernels);
        let forward = model.forward(&self.graph, PASS).unwrap();
        let mut total = (&forward.logits * self.logits_gradient()).sum(Kind::Float);
        for loss in forward.losses_of_layers() {
            total += loss * self.config.edge_loss.as_ref().unwrap().weight;
        }
        total.backward();
        let mut answers = vec![("logits".to_owned(), forward.logits.detach())];
        for (layer, loss) in forward.losses_of_layers().enumerate() {
            answers.push((format!("edge_loss.{layer}"), loss.detach().view([1])));
        }

        // Gradients by PyG's names, renamed in the same way as weights.
        let gradients = self.model(kernels);
        gradients.weights().set(&model.weights().gradient());
        let path = folder.join("our-gradients.safetensors");
        interchange::save(&gradients, &path).unwrap();

        let outputs = worst(answers.into_iter().collect(), tensors(&folder.join("answers.safetensors")));
        let [found, expected] = [path, folder.join("gradients.safetensors")].map(|path| {
            // Kith has one bias in GATv2's scores, and no ε in GIN's sums.
            let is_theirs =
                |name: &str| name.ends_with("eps") || self.config.model.is_dynamic() && name.ends_with("lin_l.bias");
            tensors(&path).into_iter().filter(|(name, _)| !is_theirs(name)).collect::<BTreeMap<_, _>>()
        });
        let gradients = worst(found, expected);
        eprintln!(
            "{} {kernels:?}: outputs {:.1e} ({}), gradients {:.1e} ({})",
            self.name, outputs.0, outputs.1, gradients.0, gradients.1
        );
        assert!(outputs.0 < 1e-5, "{} {kernels:?}: {outputs:?}", self.name);
        assert!(gradients.0 < 5e-5, "{} {kernels:?}: {gradients:?}", self.name);

        let returned = self.model(kernels);
        returned.weights().set(&returned.weights().flat().zeros_like());
        interchange::load(&returned, &folder.join("returned.safetensors")).unwrap();
        assert_eq!(returned.weights().flat(), model.weights().flat(), "{}: weights came back changed", self.name);

        interchange::load(&returned, &folder.join("theirs.safetensors")).unwrap();
        let logits = returned.forward(&self.graph, Pass::Evaluate).unwrap().logits;
        let theirs = worst([("logits".to_owned(), logits)].into(), tensors(&folder.join("their-answers.safetensors")));
        assert!(theirs.0 < 1e-5, "{} {kernels:?}: PyG's weights: {theirs:?}", self.name);
    }
}

#[derive(Clone, Copy)]
struct Sizes {
    n_layers: usize,
    heads: usize,
    features: usize,
    out_heads: usize,
}

fn tensors(path: &Path) -> BTreeMap<String, Tensor> {
    Tensor::read_safetensors(path).unwrap().into_iter().collect()
}

/// The largest error and its tensor; both sides must have the same names.
fn worst(found: BTreeMap<String, Tensor>, expected: BTreeMap<String, Tensor>) -> (f64, String) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    let errors = found.into_iter().map(|(name, tensor)| (oracle::error(&tensor, &expected[&name]), name));
    errors.max_by(|a, b| a.0.total_cmp(&b.0)).expect("something was computed")
}

/// Gradient of the logits, in place of a node loss.
fn logits_gradient(graph: &GraphInput, n_classes: usize) -> Tensor {
    let shape = [graph.n_nodes() as i64, n_classes as i64];
    let places = Tensor::arange(shape[0] * shape[1], (Kind::Double, Device::Cpu));
    ((places * 1.7).sin() / shape[0] as f64).to_kind(Kind::Float).view(shape)
}

/// Shapes of a model's layers, for PyG.
fn shapes(model: &Model) -> Vec<serde_json::Value> {
    let shape = |shape: &LayerShape| json!({ "dim": shape.dim, "heads": shape.heads, "features": shape.features, "concat": shape.concat });
    model.layers().iter().map(shape).collect()
}

/// A graph and the gradient of its logits, for PyG.
fn graph_tensors(graph: &GraphInput, edges: &Tensor, n_classes: usize) -> Vec<(String, Tensor)> {
    vec![
        ("rows".to_owned(), oracle::dense(&graph.rows)),
        ("edges".to_owned(), edges.shallow_clone()),
        ("logits_gradient".to_owned(), logits_gradient(graph, n_classes)),
    ]
}

/// A model that PyG computes too.
trait Compared {
    fn name(&self) -> &str;
    fn write(&self, folder: &Path);
    fn compare(&self, folder: &Path, kernels: Kernels);
}

impl Compared for Case {
    fn name(&self) -> &str {
        &self.name
    }

    fn write(&self, folder: &Path) {
        Case::write(self, folder);
    }

    fn compare(&self, folder: &Path, kernels: Kernels) {
        Case::compare(self, folder, kernels);
    }
}

impl Compared for Options {
    fn name(&self) -> &str {
        &self.name
    }

    fn write(&self, folder: &Path) {
        Options::write(self, folder);
    }

    fn compare(&self, folder: &Path, kernels: Kernels) {
        Options::compare(self, folder, kernels);
    }
}

/// Runs PyG on all cases, then compares all kernels with it.
fn check(cases: &[impl Compared]) {
    let Some(python) = python_with_pyg() else { return };
    device::start();
    let temp = tempfile::tempdir().unwrap();
    let folders: Vec<PathBuf> = cases.iter().map(|case| temp.path().join(case.name())).collect();
    cases.iter().zip(&folders).for_each(|(case, folder)| case.write(folder));
    let ran = finish_within(Command::new(python).arg(root().join("tests/parity.py")).args(&folders), RUN_LIMIT);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    for (case, folder) in cases.iter().zip(&folders) {
        for kernels in [Kernels::Reference, Kernels::Fused] {
            case.compare(folder, kernels);
        }
    }
}

const MODELS: [(ModelKind, Form); 6] = [
    (ModelKind::Supergat, Form::Mx),
    (ModelKind::Supergat, Form::Sd),
    (ModelKind::Gat, Form::Go),
    (ModelKind::Gat, Form::V2),
    (ModelKind::Sage, Form::Go),
    (ModelKind::Gin, Form::Go),
];

/// A directed graph with self-loops, duplicate edges, all-zero features and nodes without neighbors.
fn random_graph(key: u64, n_nodes: u64, n_edges: u64, dim: usize) -> (Arc<GraphInput>, Tensor) {
    let stream = Name { run_key: key, purpose: Purpose::Generator, step: 0, layer: 0 }.stream();
    let mut lists = vec![Vec::new(); n_nodes as usize];
    for edge in 0..n_edges {
        let mut draws = stream.draws(0, edge, 0);
        let destination = draws.below(n_nodes - n_nodes / 8);
        let source = if edge % 10 == 0 { destination } else { draws.below(n_nodes) };
        lists[destination as usize].push(source);
        if edge % 7 == 0 {
            lists[destination as usize].push(source);
        }
    }
    lists.iter_mut().for_each(|list| list.sort_unstable());
    let edges =
        edge_tensor(lists.iter().enumerate().flat_map(|(to, list)| list.iter().map(move |from| (*from, to as u64))));
    let n_edges = edges.size()[1] as u64;
    let sources_of = |node: u64| Ok::<_, BlockError>(lists[node as usize].iter().copied());
    let block = Block::full(n_nodes, n_edges, sources_of).unwrap();
    let value = |place: u64| {
        let is_zero = place / dim as u64 % 5 == 4;
        if is_zero { 0.0 } else { stream.draws(1, place, 0).normal() as f32 }
    };
    let rows = InputRows::Dense { dim, values: (0..n_nodes * dim as u64).map(value).collect() };
    let graph = GraphInput {
        block: Arc::new(block),
        rows: Arc::new(rows),
        labels: None,
        train: vec![],
        valid: vec![],
        test: vec![],
        is_symmetric: false,
        is_one_of_many: false,
    };
    (Arc::new(graph), edges)
}

/// 2 × E: sources, destinations.
fn edge_tensor(edges: impl Iterator<Item = (u64, u64)>) -> Tensor {
    let (sources, destinations): (Vec<i64>, Vec<i64>) = edges.map(|(from, to)| (from as i64, to as i64)).unzip();
    Tensor::stack(&[Tensor::from_slice(&sources), Tensor::from_slice(&destinations)], 0)
}

#[test]
fn slow_pyg_agrees_on_random_graphs() {
    if !is_slow_asked_for() {
        return;
    }
    let mut cases = Vec::new();
    for (key, (n_nodes, n_edges, dim), sizes, n_classes) in [
        (1, (10, 20, 3), Sizes { n_layers: 1, heads: 1, features: 1, out_heads: 1 }, 2),
        (2, (200, 1500, 17), Sizes { n_layers: 2, heads: 8, features: 8, out_heads: 8 }, 7),
        (3, (1000, 20_000, 50), Sizes { n_layers: 4, heads: 3, features: 5, out_heads: 2 }, 40),
        (4, (3000, 9000, 128), Sizes { n_layers: 2, heads: 8, features: 16, out_heads: 1 }, 40),
    ] {
        let (graph, edges) = random_graph(key, n_nodes, n_edges, dim);
        cases.extend(MODELS.map(|model| Case::new(&format!("random-{key}"), model, sizes, &graph, &edges, n_classes)));
    }
    check(&cases);
}

#[test]
fn slow_pyg_agrees_on_cora() {
    if !is_slow_asked_for() {
        return;
    }
    let Some(Cora { graph, edges, n_classes }) = cora() else { return };
    let sizes = Sizes { n_layers: 2, heads: 8, features: 8, out_heads: 8 };
    // The degrees of PyG's GCN are Kith's on a symmetric graph.
    let models = MODELS.into_iter().chain([(ModelKind::Gcn, Form::Go)]);
    let cases = models.map(|model| Case::new("cora", model, sizes, &graph, &edges, n_classes));
    check(&cases.collect::<Vec<_>>());
}

struct Cora {
    graph: Arc<GraphInput>,
    edges: Tensor,
    n_classes: usize,
}

/// The real dataset, if it is here.
fn cora() -> Option<Cora> {
    let raw = real_files("cora")?;
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("cora");
    kith(["data", "import", "cora", "--from", raw.to_str().unwrap(), "--out", store.to_str().unwrap()]);
    let store = kith_store::Graph::open(&store).unwrap();
    let lists = (0..store.n_nodes()).flat_map(|to| {
        let sources: Vec<u64> = store.lists().of(to).unwrap().iter().collect();
        sources.into_iter().map(move |from| (from, to))
    });
    let edges = edge_tensor(lists);
    let mut input = input::load(&store, None).unwrap();
    Some(Cora { graph: Arc::new(input.graphs.remove(0)), edges, n_classes: input.n_classes })
}

/// One model with options of layers, on a symmetric graph, where the degrees of PyG's GCN are Kith's.
struct Options {
    name: String,
    config: RunConfig,
    graph: Arc<GraphInput>,
    edges: Tensor,
    n_classes: usize,
}

impl Options {
    fn model(&self, kernels: Kernels) -> Model {
        let mut config = self.config.clone();
        config.train.kernels = kernels;
        let model = Model::new(&config, self.graph.rows.dim(), self.n_classes, 1, Device::Cpu).unwrap();
        let n_elements = model.weights().n_elements() as i64;
        let bits = Tensor::arange(n_elements, (Kind::Double, Device::Cpu)).sin().abs() * 0.05;
        model.weights().set(&(model.weights().flat() + bits.to_kind(Kind::Float)));
        model
    }

    fn logits_gradient(&self) -> Tensor {
        logits_gradient(&self.graph, self.n_classes)
    }

    fn write(&self, folder: &Path) {
        fs::create_dir(folder).unwrap();
        let model = self.model(Kernels::Reference);
        interchange::save_named(&model, &folder.join("weights.safetensors")).unwrap();
        let own = &self.config.model;
        let case = json!({
            "kind": own.kind.name(),
            "form": own.attention.name(),
            "dim": self.graph.rows.dim(),
            "n_classes": self.n_classes,
            "layers": shapes(&model),
            "options": {
                "norm": own.norm().name(),
                "residual": own.residual().name(),
                "activation": own.activation().name(),
                "jumping": own.jumping().name(),
                "input_linear": own.has_input_linear(),
                "output_linear": own.has_output_linear(),
                "bias": own.has_bias(),
                "self_loops": own.has_self_loops(),
                "edge_weights": own.has_edge_weights(),
                "edge_dim": own.edge_dim(),
            },
        });
        fs::write(folder.join("case.json"), case.to_string()).unwrap();
        let mut tensors = graph_tensors(&self.graph, &self.edges, self.n_classes);
        let block = &self.graph.block;
        let dim = block.edge_features().len() / block.n_edges();
        let columns =
            [("weights", block.weights().unwrap_or_default(), 1), ("edge_features", block.edge_features(), dim)];
        for (name, values, width) in columns.into_iter().filter(|(_, values, _)| !values.is_empty()) {
            // All but the loop at the end of each list.
            let lists = block.indptr().windows(2);
            let values: Vec<f32> =
                lists.flat_map(|bounds| &values[bounds[0] * width..(bounds[1] - 1) * width]).copied().collect();
            tensors.push((name.to_owned(), Tensor::from_slice(&values).view([-1, width as i64])));
        }
        Tensor::write_safetensors(&tensors, folder.join("graph.safetensors")).unwrap();
    }

    #[allow(clippy::print_stderr)]
    fn compare(&self, folder: &Path, kernels: Kernels) {
        let model = self.model(kernels);
        let evaluated = model.forward(&self.graph, Pass::Evaluate).unwrap().logits;
        let forward = model.forward(&self.graph, PASS).unwrap();
        (&forward.logits * self.logits_gradient()).sum(Kind::Float).backward();
        let answers = [("logits", forward.logits.detach()), ("evaluated", evaluated)];
        let answers = answers.map(|(name, tensor)| (name.to_owned(), tensor)).into_iter().collect();
        let gradients = self.model(kernels);
        let n_trained = model.weights().n_trained() as i64;
        let mut flat = model.weights().gradient();
        if let Some(statistics) = &forward.statistics {
            // Running statistics after a step, as PyTorch keeps them.
            let before = model.weights().flat().narrow(0, n_trained, statistics.size()[0]);
            flat = Tensor::cat(&[flat.narrow(0, 0, n_trained), before * 0.9 + statistics * 0.1], 0);
        }
        gradients.weights().set(&flat);
        let path = folder.join("our-gradients.safetensors");
        interchange::save_named(&gradients, &path).unwrap();
        let outputs = worst(answers, tensors(&folder.join("answers.safetensors")));
        let (found, expected) = (tensors(&path), tensors(&folder.join("gradients.safetensors")));
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        // Gradients of biases before a norm over nodes are zero, or nearly so, but for rounding.
        let size = |tensor: &Tensor| tensor.abs().max().double_value(&[]);
        let least = expected.values().map(size).fold(0.0, f64::max) * 1e-3;
        let error = |name: &String| size(&(&found[name] - &expected[name])) / size(&expected[name]).max(least);
        let gradients = found.keys().map(|name| (error(name), name.clone()));
        let gradients = gradients.max_by(|a, b| a.0.total_cmp(&b.0)).expect("a model has weights");
        eprintln!(
            "{} {kernels:?}: outputs {:.1e} ({}), gradients {:.1e} ({})",
            self.name, outputs.0, outputs.1, gradients.0, gradients.1
        );
        assert!(outputs.0 < 1e-5, "{} {kernels:?}: {outputs:?}", self.name);
        // The gradients of a destination's scores sum to zero: little is left of them in that of GATv2's bias.
        let limit = if self.config.model.is_dynamic() { 5e-4 } else { 1e-4 };
        assert!(gradients.0 < limit, "{} {kernels:?}: {gradients:?}", self.name);
    }
}

/// Every kind with a norm, a residual, an activation, linear layers and a way of jumping; all of each, not all together.
fn options(name: &str, graph: &Arc<GraphInput>, edges: &Tensor, n_classes: usize, hidden: usize) -> Vec<Options> {
    let mut all = Vec::new();
    let edge_dim = graph.block.edge_features().len() / graph.block.n_edges();
    for (kind, attention) in [
        (ModelKind::Gcn, Form::Go),
        (ModelKind::Sage, Form::Go),
        (ModelKind::Gin, Form::Go),
        (ModelKind::Gat, Form::Go),
        (ModelKind::Gat, Form::V2),
    ] {
        for place in 0..8 {
            let has_linear = place % 4 > 0;
            let model = ModelConfig {
                kind,
                attention,
                n_layers: 3,
                heads: 2,
                hidden,
                out_heads: if has_linear { ModelConfig::default().out_heads } else { 2 },
                dropout: 0.0,
                norm: Some(Norm::ALL[place % 4].1),
                residual: Some(Residual::ALL[place % 3].1),
                activation: Some(Activation::ALL[place % 5].1),
                jumping: Some(if has_linear { Jumping::ALL[place / 2].1 } else { Jumping::None }),
                input_linear: Some(place % 2 == 1),
                output_linear: Some(has_linear),
                root_weight: Some(kind == ModelKind::Sage),
                bias: Some(place != 6),
                self_loops: Some(kind == ModelKind::Gin || place % 3 != 1),
                edge_weights: Some(graph.block.weights().is_some() && (kind != ModelKind::Gat || place != 3)),
                edge_dim: (kind == ModelKind::Gat && place != 5).then_some(edge_dim).filter(|dim| *dim > 0),
                ..ModelConfig::default()
            };
            let config = RunConfig { model, edge_loss: None, ..RunConfig::default() };
            let name = format!("{name}-{}-{place}", kind.name_with(attention));
            all.push(Options { name, config, graph: Arc::clone(graph), edges: edges.shallow_clone(), n_classes });
        }
    }
    all
}

/// Edges in both directions, none twice.
fn symmetric_graph(n_nodes: u64, n_edges: u64, dim: usize) -> (Arc<GraphInput>, Tensor) {
    let stream = Name { run_key: 8, purpose: Purpose::Generator, step: 0, layer: 0 }.stream();
    let mut lists = vec![std::collections::BTreeSet::new(); n_nodes as usize];
    for edge in 0..n_edges {
        let mut draws = stream.draws(0, edge, 0);
        let (a, b) = (draws.below(n_nodes), draws.below(n_nodes));
        if a != b {
            lists[a as usize].insert(b);
            lists[b as usize].insert(a);
        }
    }
    let edges =
        edge_tensor(lists.iter().enumerate().flat_map(|(to, list)| list.iter().map(move |from| (*from, to as u64))));
    let sources_of = |node: u64| Ok::<_, BlockError>(lists[node as usize].iter().copied());
    let block = Block::full(n_nodes, edges.size()[1] as u64, sources_of).unwrap();
    let values = (0..n_nodes * dim as u64).map(|place| stream.draws(1, place, 0).normal() as f32).collect();
    let graph = GraphInput {
        block: Arc::new(block),
        rows: Arc::new(InputRows::Dense { dim, values }),
        labels: None,
        train: vec![],
        valid: vec![],
        test: vec![],
        is_symmetric: true,
        is_one_of_many: false,
    };
    (Arc::new(graph), edges)
}

#[test]
fn slow_pyg_agrees_on_options_of_layers() {
    if !is_slow_asked_for() {
        return;
    }
    let (graph, edges) = symmetric_graph(400, 1500, 17);
    let graph_of = |block: Block| Arc::new(GraphInput { block: Arc::new(block), ..GraphInput::clone(&graph) });
    check(&options("random", &graph, &edges, 7, 11));
    // The same in both directions, as PyG's degrees are by destination; some are zero.
    let weight = |a: u64, b: u64| ((a + b) % 7) as f32 / 3.0;
    let block = &graph.block;
    let of_edge = |destination: usize, edge: usize| match block.sources()[edge] as usize {
        source if source == destination => 1.0,
        source => weight(source as u64, destination as u64),
    };
    let others = |node: usize| block.edges_into(node).take(block.edges_into(node).len() - 1);
    let data: Vec<f32> = (0..block.n_destinations())
        .flat_map(|node| others(node).map(move |edge| (node, edge)))
        .flat_map(|(node, edge)| {
            let own = of_edge(node, edge);
            [own, (node % 5) as f32 / 4.0, own * 0.3 - (edge % 3) as f32, ((node + edge) % 4) as f32 / 2.0]
        })
        .collect();
    let with_data = Block::clone(block).with_data(&data, (true, 3));
    check(&options("weighted", &graph_of(with_data), &edges, 7, 11));
}

#[test]
fn slow_pyg_agrees_on_options_of_layers_on_cora() {
    if !is_slow_asked_for() {
        return;
    }
    let Some(cora) = cora() else { return };
    check(&options("cora", &cora.graph, &cora.edges, cora.n_classes, 16));
}
