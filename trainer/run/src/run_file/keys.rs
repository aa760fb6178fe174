//! Everything a run file may say: name, values, default, meaning.

use std::fmt;

use kith_block::{Form, Subset};
use kith_sampler::Fanout;
use toml::Value;

use crate::{
    choice::Choice,
    config::{Exclude, Kernels, Supervision},
    model_kind::ModelKind,
};

/// One key of a run file.
#[derive(Debug)]
pub struct Key {
    /// Section and name: `train.learning_rate`.
    pub name: &'static str,
    /// The values it can have.
    pub takes: Takes,
    /// What it is where the file does not say, as TOML; `None`: it must say, or the meaning tells.
    pub default: Option<&'static str>,
    /// What it means.
    pub about: &'static str,
}

/// The values a key can have.
#[derive(Debug)]
pub enum Takes {
    /// Numbers, fractions included, that are above or at the first and below or at the second bound.
    Number(Bound, Bound),
    /// Whole numbers from the first to the second.
    Count(u64, u64),
    /// `true` or `false`.
    Flag,
    /// A text.
    Text,
    /// One of a few texts.
    OneOf(fn() -> Vec<&'static str>),
    /// A list of whole numbers from 1 on, each of which may be "all"; or "all" alone.
    Fanouts,
}

/// One end of a range of numbers.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// The number itself is in.
    At(f64),
    /// The number itself is out.
    Beyond(f64),
    /// There is no end.
    Open,
}

use Bound::{At, Beyond, Open};
use Takes::{Count, Fanouts, Flag, Number, OneOf, Text};

/// All keys, section by section.
pub const KEYS: &[Key] = &[
    Key {
        name: "model.kind",
        takes: OneOf(names::<ModelKind>),
        default: None,
        about: "the model: see the table of models",
    },
    Key {
        name: "model.form",
        takes: OneOf(names::<Form>),
        default: None,
        about: "how attention scores a neighbor; must be said for a supergat, and is go for a gat unless said",
    },
    Key { name: "model.n_layers", takes: Count(1, 64), default: Some("2"), about: "layers, the last included" },
    Key {
        name: "model.heads",
        takes: Count(1, 1024),
        default: Some("8"),
        about: "heads of a hidden layer, side by side (attention only)",
    },
    Key {
        name: "model.features",
        takes: Count(1, 65_536),
        default: Some("8"),
        about: "features of each head; without attention the width of a hidden layer, 64 unless said",
    },
    Key {
        name: "model.out_heads",
        takes: Count(1, 1024),
        default: Some("8"),
        about: "heads of the last layer, averaged (attention only)",
    },
    Key {
        name: "model.dropout",
        takes: Number(At(0.0), Beyond(1.0)),
        default: Some("0.6"),
        about: "the share of each layer's inputs, and of attention, that a training step leaves out",
    },
    Key {
        name: "train.learning_rate",
        takes: Number(Beyond(0.0), Open),
        default: None,
        about: "Adam's step size, constant",
    },
    Key {
        name: "train.weight_decay",
        takes: Number(At(0.0), Open),
        default: None,
        about: "λ_2: the share of each weight, biases included, that is added to its gradient",
    },
    Key {
        name: "train.epochs",
        takes: Count(1, 1_000_000_000),
        default: None,
        about: "epochs, unless the run stops early",
    },
    Key {
        name: "train.split",
        takes: Text,
        default: None,
        about: "the name of the split to follow; the store's first unless said; by-run-key: its splits in turn",
    },
    Key {
        name: "train.supervision",
        takes: OneOf(names::<Supervision>),
        default: Some("\"split\""),
        about: "split: train on the split's train part; full: on every labeled node that neither validates nor tests; \
                full-and-valid: on every labeled node that does not test, so that validation says little",
    },
    Key {
        name: "train.kernels",
        takes: OneOf(names::<Kernels>),
        default: Some("\"fused\""),
        about: "fused: kernels of our own; reference: plain tensor operations, slower, on any device, and all that a \
                cgat has",
    },
    Key {
        name: "train.checkpoint_every",
        takes: Count(1, 1_000_000_000),
        default: Some("50"),
        about: "epochs from one checkpoint to the next; the last epoch always has one",
    },
    Key {
        name: "train.checkpoint_every_steps",
        takes: Count(1, 1_000_000_000_000),
        default: None,
        about: "steps from one checkpoint to the next, beside those of `checkpoint_every`; none unless said",
    },
    Key {
        name: "train.checkpoint_minutes",
        takes: Number(At(0.0), At(1e6)),
        default: Some("10"),
        about: "minutes from one checkpoint to the next, beside those of epochs and steps; 0: none by time",
    },
    Key {
        name: "train.checkpoints_kept",
        takes: Count(1, 1_000_000),
        default: Some("2"),
        about: "how many checkpoints are kept, the newest",
    },
    Key {
        name: "train.deterministic",
        takes: Flag,
        default: None,
        about: "true: gradients are added in the order of slices, so that any number of ranks gives the same bits; \
                false: by all-reduce; true on the CPU and false on GPUs unless said",
    },
    Key {
        name: "train.evaluate_every",
        takes: Count(1, 1_000_000_000),
        default: Some("1"),
        about: "epochs from one measuring of valid and test nodes to the next; the last epoch is always measured",
    },
    Key {
        name: "train.mode",
        takes: OneOf(|| vec!["full", "batches"]),
        default: Some("\"full\""),
        about: "full: every step looks at the whole graph; batches: at some seeds and a sample of what is around them",
    },
    Key {
        name: "train.fanouts",
        takes: Fanouts,
        default: Some("[10, 10]"),
        about: "neighbors drawn per node, from the seeds outwards, the last repeated for deeper models (batches only)",
    },
    Key {
        name: "train.seeds_per_step",
        takes: Count(1, 1_000_000_000),
        default: None,
        about: "seeds of a step; 1024 unless said, or all if there are fewer (batches only)",
    },
    Key {
        name: "train.edge_seeds",
        takes: Count(0, 1_000_000_000),
        default: None,
        about: "further nodes of a step, which only the edge loss looks at; unless said, 1024 where an edge loss is \
                learned and fewer than one node in ten is a seed, else 0 (batches only)",
    },
    Key {
        name: "train.slices",
        takes: Count(1, 65_536),
        default: Some("1"),
        about: "pieces of a step, each sampled on its own: as many ranks can share it, with the same result \
                (batches only)",
    },
    Key {
        name: "edge_loss.weight",
        takes: Number(At(0.0), Open),
        default: None,
        about: "λ_E: how much each layer's edge loss weighs beside the node loss; 0 switches it off",
    },
    Key {
        name: "edge_loss.negatives",
        takes: Number(Beyond(0.0), At(1000.0)),
        default: Some("0.5"),
        about: "p_n: pairs without an edge, per edge",
    },
    Key {
        name: "edge_loss.kept",
        takes: Number(Beyond(0.0), At(1.0)),
        default: Some("0.8"),
        about: "p_e: the share of pairs that a step looks at",
    },
    Key {
        name: "edge_loss.exclude",
        takes: OneOf(names::<Exclude>),
        default: Some("\"symmetric\""),
        about: "pairs never drawn as negatives: edges in their own direction (directed), or in either (symmetric)",
    },
    Key {
        name: "edge_loss.subset",
        takes: OneOf(names::<Subset>),
        default: Some("\"union\""),
        about: "what `kept` is a share of: edges and negatives together (union), or each of them (each, fewer draws)",
    },
    Key {
        name: "cgat.graph_weight",
        takes: Number(At(0.0), Open),
        default: None,
        about: "how much each layer's loss of the graph's structure weighs beside the node loss; 0 switches it off",
    },
    Key {
        name: "cgat.graph_margin",
        takes: Number(At(0.0), Open),
        default: None,
        about: "by how much an edge is to be scored above pairs without one",
    },
    Key {
        name: "cgat.boundary_weight",
        takes: Number(At(0.0), Open),
        default: Some("0.0"),
        about: "how much each layer's loss of the boundary between classes weighs; above 0, the structure too is learned \
                only from edges within a class, both ends trained on",
    },
    Key {
        name: "cgat.boundary_margin",
        takes: Number(At(0.0), Open),
        default: None,
        about: "by how much edges within a class are to be scored above others of the same node",
    },
    Key {
        name: "cgat.top_k",
        takes: Count(1, 1_000_000),
        default: None,
        about: "how many of the largest scores a node listens to in a training step, per head; all, with dropout, unless \
                said",
    },
    Key {
        name: "cgat.negatives",
        takes: Count(1, 1000),
        default: Some("5"),
        about: "pairs without an edge, for each edge",
    },
    Key {
        name: "early_stop.burn_in",
        takes: Count(0, 1_000_000_000),
        default: None,
        about: "the run can stop from the second epoch after this many on",
    },
    Key {
        name: "early_stop.window",
        takes: Count(1, 1_000_000),
        default: None,
        about: "epochs that the moving means of validation loss and metric look back on",
    },
    Key {
        name: "early_stop.loss_threshold",
        takes: Number(At(0.0), Open),
        default: None,
        about: "the run stops when the loss is nearer to its mean than this, relative to the mean",
    },
    Key {
        name: "early_stop.metric_threshold",
        takes: Number(At(0.0), Open),
        default: None,
        about: "the run stops when the metric is nearer to its mean than this, relative to the mean",
    },
];

pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// A number as a person writes it: 4 is as good as 4.0.
pub(super) fn as_number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
}

/// Fanouts as a person writes them: `[10, 10]`, `["all", 5]`, `"all"`.
pub(super) fn as_fanouts(value: &Value) -> Option<Vec<Fanout>> {
    let one = |value: &Value| match value {
        Value::String(text) => (text == "all").then_some(Fanout::All),
        _ => Fanout::at_most(u32::try_from(value.as_integer()?).ok()?).ok(),
    };
    match value {
        Value::Array(list) if !list.is_empty() => list.iter().map(one).collect(),
        Value::Array(_) => None,
        _ => Some(vec![one(value)?]),
    }
}

fn names<T: Choice>() -> Vec<&'static str> {
    T::ALL.iter().map(|(name, _)| *name).collect()
}

impl Takes {
    pub(super) fn accepts(&self, value: &Value) -> bool {
        match self {
            Number(low, high) => as_number(value).is_some_and(|number| {
                let is_above = match low {
                    At(low) => number >= *low,
                    Beyond(low) => number > *low,
                    Open => true,
                };
                let is_below = match high {
                    At(high) => number <= *high,
                    Beyond(high) => number < *high,
                    Open => true,
                };
                number.is_finite() && is_above && is_below
            }),
            Count(low, high) => {
                value.as_integer().is_some_and(|n| u64::try_from(n).is_ok_and(|n| (*low..=*high).contains(&n)))
            }
            Flag => value.as_bool().is_some(),
            Text => value.as_str().is_some_and(|text| !text.is_empty()),
            OneOf(names) => value.as_str().is_some_and(|text| names().contains(&text)),
            Fanouts => as_fanouts(value).is_some(),
        }
    }
}

impl fmt::Display for Takes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number(low, high) => {
                let low = match low {
                    At(low) => format!(" from {low}"),
                    Beyond(low) => format!(" above {low}"),
                    Open => String::new(),
                };
                let high = match high {
                    At(high) => format!(" to {high}"),
                    Beyond(high) => format!(" below {high}"),
                    Open => String::new(),
                };
                write!(f, "a number{low}{high}")
            }
            Count(low, high) => write!(f, "a whole number from {low} to {high}"),
            Flag => write!(f, "true or false"),
            Text => write!(f, "a text"),
            Fanouts => write!(f, "\"all\", or a list of whole numbers from 1 on and \"all\", as in [10, 10]"),
            OneOf(names) => match names().split_last() {
                Some((last, others)) => write!(f, "{} or {last}", others.join(", ")),
                None => Ok(()),
            },
        }
    }
}
