//! One full-batch training step (forward, loss, backward, Adam's part left out), timed phase by phase.
//!
//! `cargo bench -p kith-trainer --bench step -- STORE KIND[-FORM] HEADS FEATURES OUT_HEADS DROPOUT [STEPS]`

use std::{path::Path, time::Instant};

use kith_kernels::{Form, Subset};
use kith_store::Graph;
use kith_trainer::{
    config::{EdgeLossConfig, Exclude, Kernels, ModelConfig, ModelKind, RunConfig, Supervision, TrainConfig},
    device, input,
    loss::node_loss,
    model::{Model, Pass},
};
use tch::Device;

#[allow(clippy::print_stdout)]
fn main() {
    device::start();
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let [store, kind, heads, features, out_heads, dropout, rest @ ..] = args.as_slice() else {
        println!("usage: -- STORE KIND[-FORM] HEADS FEATURES OUT_HEADS DROPOUT [STEPS]");
        return;
    };
    let (kind, form) = match kind.as_str() {
        "gat" => (ModelKind::Gat, Form::Go),
        "supergat-mx" => (ModelKind::Supergat, Form::Mx),
        "supergat-sd" => (ModelKind::Supergat, Form::Sd),
        "gcn" => (ModelKind::Gcn, Form::Go),
        _ => (ModelKind::Sage, Form::Go),
    };
    let number = |text: &String| text.parse::<usize>().expect("a number");
    let edge_loss =
        EdgeLossConfig { weight: 1.0, negatives: 0.5, kept: 0.8, exclude: Exclude::Directed, subset: Subset::Union };
    let config = RunConfig {
        model: ModelConfig {
            kind,
            form,
            n_layers: 2,
            heads: number(heads),
            features: number(features),
            out_heads: number(out_heads),
            dropout: dropout.parse().expect("a number"),
        },
        train: TrainConfig {
            learning_rate: 0.01,
            weight_decay: 0.0,
            max_epochs: 1,
            split: None,
            supervision: Supervision::Split,
            kernels: Kernels::Fused,
            checkpoint_every: 1,
        },
        edge_loss: (kind == ModelKind::Supergat).then_some(edge_loss),
        early_stop: None,
    };
    let store = Graph::open(Path::new(store)).expect("a store");
    let input = input::load(&store, None).expect("a store to train on");
    let graph = &input.graphs[0];
    let model = Model::new(&config, input.dim, input.n_classes, 1, Device::Cpu).expect("a model");
    let mut times = Vec::new();
    for step in 0..rest.first().map_or(20, number) as u64 {
        let started = Instant::now();
        let forward = model.forward(graph, Pass::Train { run_key: 1, step }).expect("a pass");
        let after_forward = started.elapsed();
        let mut loss = node_loss(&forward.logits, &graph.labels, &graph.train);
        for edge_loss in &forward.edge_losses {
            loss += edge_loss;
        }
        let after_loss = started.elapsed();
        loss.backward();
        let _gradient = model.weights().gradient();
        let all = started.elapsed();
        times.push(
            [after_forward, after_loss - after_forward, all - after_loss, all].map(|time| time.as_secs_f64() * 1e3),
        );
    }
    times.sort_by(|a, b| a[3].total_cmp(&b[3]));
    let [forward, loss, backward, all] = times[times.len() / 2];
    println!(
        "forward {forward:.2} ms, loss {loss:.2} ms, backward {backward:.2} ms: {all:.2} ms (best {:.2})",
        times[0][3]
    );
}
