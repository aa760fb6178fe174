//! The resolved run file of 0.1.0, for comparison.

use std::fmt::Write;

use kith_sampler::Fanout;
use toml::Value;

use crate::{
    choice::Choice,
    config::{BY_SEED, CgatConfig, ConvergenceRule, EdgeLossConfig, Mode, RunConfig},
};

/// The text that 0.1.0 wrote of this run.
pub(super) fn text_0_1_0(config: &RunConfig) -> String {
    let RunConfig { model, optimizer, train, edge_loss, cgat, early_stop, schedule, links, evaluate } = config;
    assert!(schedule.is_none() && links.is_none() && evaluate.is_none(), "0.1.0 had none of them");
    let mut text = format!("[model]\nkind = \"{}\"\n", model.kind.name());
    let mut say = |line: String| writeln!(text, "{line}").expect("a string takes any text");
    let quoted = |text: &str| Value::String(text.to_owned()).to_string();
    if model.kind.has_attention() {
        say(format!("form = \"{}\"", model.attention.name()));
    }
    say(format!("n_layers = {}", model.n_layers));
    if model.kind.has_attention() {
        say(format!("heads = {}", model.heads));
    }
    say(format!("features = {}", model.hidden));
    if model.kind.has_attention() {
        say(format!("out_heads = {}", model.out_heads));
    }
    say(format!("dropout = {:?}\n\n[train]", model.dropout));
    say(format!("learning_rate = {:?}", optimizer.learning_rate));
    say(format!("weight_decay = {:?}", optimizer.weight_decay));
    say(format!("epochs = {}", train.epochs));
    if let Some(split) = &train.split {
        let split = if split == BY_SEED { "by-run-key" } else { split };
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
    if train.mode == Mode::MiniBatch {
        let fanouts = train.fanouts.iter().map(|fanout| match fanout {
            Fanout::All => quoted("all"),
            Fanout::AtMost(n) => n.to_string(),
        });
        say(format!("mode = \"batches\"\nfanouts = [{}]", fanouts.collect::<Vec<_>>().join(", ")));
        if let Some(n) = train.batch_size {
            say(format!("seeds_per_step = {n}"));
        }
        if let Some(n) = train.edge_seeds {
            say(format!("edge_seeds = {n}"));
        }
        say(format!("slices = {}", train.slices));
    }
    match edge_loss {
        Some(EdgeLossConfig { weight, neg_sample_ratio: negatives, edge_sampling_ratio: kept, exclude, subset }) => {
            say(format!("\n[edge_loss]\nweight = {weight:?}\nnegatives = {negatives:?}\nkept = {kept:?}"));
            say(format!("exclude = \"{}\"\nsubset = \"{}\"", exclude.name(), subset.name()));
        }
        None if model.kind.section() == Some("edge_loss") => say("\n[edge_loss]\nweight = 0.0".to_owned()),
        None => {}
    }
    if let Some(cgat) = cgat {
        let CgatConfig { graph_weight, graph_margin, top_k, negatives, .. } = cgat;
        say(format!("\n[cgat]\ngraph_weight = {graph_weight:?}\ngraph_margin = {graph_margin:?}"));
        if let Some((weight, margin)) = cgat.boundary() {
            say(format!("boundary_weight = {weight:?}\nboundary_margin = {margin:?}"));
        }
        if let Some(top_k) = top_k {
            say(format!("top_k = {top_k}"));
        }
        say(format!("negatives = {negatives}"));
    }
    let rule = early_stop.as_ref().and_then(|early_stop| early_stop.rule());
    if let Some(ConvergenceRule { burn_in, window, loss_threshold, metric_threshold }) = rule {
        say(format!("\n[early_stop]\nburn_in = {burn_in}\nwindow = {window}"));
        say(format!("loss_threshold = {loss_threshold:?}\nmetric_threshold = {metric_threshold:?}"));
    }
    text
}
