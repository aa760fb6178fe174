//! One full-batch training step (forward, loss, backward, Adam), timed phase by phase; `deploy/bench/step.py` runs it
//! beside PyG. Prints the milliseconds of the median step and the peak resident memory, as JSON.
//!
//! `cargo bench -p kith-trainer --bench step -- STORE KIND[-FORM] HEADS FEATURES OUT_HEADS DROPOUT [STEPS]`

use std::{path::Path, time::Instant};

use kith_block::Subset;
use kith_run::{
    config::{EdgeLossConfig, Exclude, ModelConfig, OptimizerConfig, RunConfig},
    model_kind::ModelKind,
    run_file::RunFile,
};
use kith_store::Graph;
use kith_trainer::{
    data::input,
    engine::device,
    loss::NodeLoss,
    model::{Model, Pass},
    optimizer::Optimizer,
};
use tch::Device;

fn main() {
    device::start();
    rayon::scope(|_| run());
}

#[allow(clippy::print_stdout)]
fn run() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let [store, kind, heads, features, out_heads, dropout, rest @ ..] = args.as_slice() else {
        println!("usage: -- STORE KIND[-FORM] HEADS FEATURES OUT_HEADS DROPOUT [STEPS]");
        return;
    };
    let model = RunFile::of_model(kind).unwrap_or_else(|| panic!("no model is called {kind}"));
    let ModelConfig { kind, attention: form, .. } = model.resolve().expect("a model with its defaults").model;
    let number = |text: &String| text.parse::<usize>().expect("a number");
    let edge_loss = EdgeLossConfig {
        weight: 1.0,
        neg_sample_ratio: 0.5,
        edge_sampling_ratio: 0.8,
        exclude: Exclude::Directed,
        subset: Subset::Union,
    };
    let config = RunConfig {
        model: ModelConfig {
            kind,
            attention: form,
            n_layers: 2,
            heads: number(heads),
            hidden: number(features),
            out_heads: number(out_heads),
            dropout: dropout.parse().expect("a number"),
            ..ModelConfig::default()
        },
        optimizer: OptimizerConfig { weight_decay: 5e-4, ..OptimizerConfig::default() },
        edge_loss: (kind == ModelKind::Supergat).then_some(edge_loss),
        ..RunConfig::default()
    };
    let store = Graph::open(Path::new(store)).expect("a store");
    let input = input::load(&store, None).expect("a store to train on");
    drop(store); // All of it is in memory now; pages of its files would count as ours.
    let graph = &input.graphs[0];
    let model = Model::new(&config, input.dim, input.n_classes, 1, Device::Cpu).expect("a model");
    let mut optimizer = Optimizer::new(&config, model.weights().entries(), 1, Device::Cpu);
    let mut times = Vec::new();
    for step in 0..rest.first().map_or(20, number) as u64 {
        let started = Instant::now();
        let forward = model.forward(graph, Pass::Train { run_key: 1, step }).expect("a pass");
        let after_forward = started.elapsed();
        let mut loss =
            NodeLoss::default().of(&forward.logits, graph.labels.as_ref().unwrap(), &graph.train, graph.train.len());
        for edge_loss in forward.losses_of_layers() {
            loss += edge_loss;
        }
        let after_loss = started.elapsed();
        loss.backward();
        let after_backward = started.elapsed();
        let gradient = model.weights().gradient();
        optimizer.update(&mut model.weights().flat().shallow_clone(), &gradient).expect("an update");
        let all = started.elapsed();
        let phases =
            [after_forward, after_loss - after_forward, after_backward - after_loss, all - after_backward, all];
        times.push(phases.map(|time| time.as_secs_f64() * 1e3));
    }
    // The first steps fill caches and stocks.
    let mut times = times.split_off(times.len().min(2).min(times.len() - 1));
    times.sort_by(|a, b| a[4].total_cmp(&b[4]));
    let [forward, loss, backward, update, all] = times[times.len() / 2];
    println!(
        "{{\"step_ms\": {all:.3}, \"best_ms\": {:.3}, \"forward\": {forward:.3}, \"loss\": {loss:.3}, \
         \"backward\": {backward:.3}, \"update\": {update:.3}, \"peak_mib\": {}}}",
        times[0][4],
        peak_mib()
    );
}

/// The most memory this process ever held, as the kernel counts it.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) / 1024
}
