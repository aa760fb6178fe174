//! A run as a run file.

use std::fmt::Write;

use kith_sampler::Fanout;
use toml::Value;

use crate::{
    choice::Choice,
    config::{BatchesConfig, BoundaryConfig, CgatConfig, EarlyStopConfig, EdgeLossConfig, Mode, RunConfig},
};

impl RunConfig {
    /// A run file that says all of it, defaults included.
    pub fn to_toml(&self) -> String {
        let RunConfig { model, train, edge_loss, cgat, early_stop } = self;
        let mut text = format!("[model]\nkind = \"{}\"\n", model.kind.name());
        let mut say = |line: String| writeln!(text, "{line}").expect("a string takes any text");
        let quoted = |text: &str| Value::String(text.to_owned()).to_string();
        if model.kind.has_attention() {
            say(format!("form = \"{}\"", model.form.name()));
        }
        say(format!("n_layers = {}", model.n_layers));
        if model.kind.has_attention() {
            say(format!("heads = {}", model.heads));
        }
        say(format!("features = {}", model.features));
        if model.kind.has_attention() {
            say(format!("out_heads = {}", model.out_heads));
        }
        say(format!("dropout = {:?}\n\n[train]", model.dropout));
        say(format!("learning_rate = {:?}", train.learning_rate));
        say(format!("weight_decay = {:?}", train.weight_decay));
        say(format!("epochs = {}", train.epochs));
        if let Some(split) = &train.split {
            say(format!("split = {}", quoted(split)));
        }
        say(format!("supervision = \"{}\"", train.supervision.name()));
        say(format!("kernels = \"{}\"", train.kernels.name()));
        say(format!("checkpoint_every = {}", train.checkpoint_every));
        if let Some(n_steps) = train.checkpoint_every_steps {
            say(format!("checkpoint_every_steps = {n_steps}"));
        }
        say(format!("checkpoint_minutes = {:?}", train.checkpoint_minutes));
        say(format!("checkpoints_kept = {}", train.checkpoints_kept));
        if let Some(is_deterministic) = train.deterministic {
            say(format!("deterministic = {is_deterministic}"));
        }
        say(format!("evaluate_every = {}", train.evaluate_every));
        if let Mode::Batches(BatchesConfig { fanouts, seeds_per_step, edge_seeds, slices }) = &train.mode {
            let fanouts = fanouts.iter().map(|fanout| match fanout {
                Fanout::All => quoted("all"),
                Fanout::AtMost(n) => n.to_string(),
            });
            say(format!("mode = \"batches\"\nfanouts = [{}]", fanouts.collect::<Vec<_>>().join(", ")));
            if let Some(n) = seeds_per_step {
                say(format!("seeds_per_step = {n}"));
            }
            if let Some(n) = edge_seeds {
                say(format!("edge_seeds = {n}"));
            }
            say(format!("slices = {slices}"));
        }
        match edge_loss {
            Some(EdgeLossConfig { weight, negatives, kept, exclude, subset }) => {
                say(format!("\n[edge_loss]\nweight = {weight:?}\nnegatives = {negatives:?}\nkept = {kept:?}"));
                say(format!("exclude = \"{}\"\nsubset = \"{}\"", exclude.name(), subset.name()));
            }
            None if model.kind.traits().section == Some("edge_loss") => say("\n[edge_loss]\nweight = 0.0".to_owned()),
            None => {}
        }
        if let Some(CgatConfig { graph_weight, graph_margin, boundary, top_k, negatives }) = cgat {
            say(format!("\n[cgat]\ngraph_weight = {graph_weight:?}\ngraph_margin = {graph_margin:?}"));
            if let Some(BoundaryConfig { weight, margin }) = boundary {
                say(format!("boundary_weight = {weight:?}\nboundary_margin = {margin:?}"));
            }
            if let Some(top_k) = top_k {
                say(format!("top_k = {top_k}"));
            }
            say(format!("negatives = {negatives}"));
        }
        if let Some(EarlyStopConfig { burn_in, window, loss_threshold, metric_threshold }) = early_stop {
            say(format!("\n[early_stop]\nburn_in = {burn_in}\nwindow = {window}"));
            say(format!("loss_threshold = {loss_threshold:?}\nmetric_threshold = {metric_threshold:?}"));
        }
        text
    }
}
