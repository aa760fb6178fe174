//! The keys of a run file, from the schema of [`RunConfig`]: name, values, default, meaning.

use std::{fmt, sync::LazyLock};

use schemars::generate::SchemaSettings;
use serde_json::Value as Json;
use toml::Value;

use crate::{
    config::{
        Activation, CgatConfig, ClassWeights, EarlyStopConfig, EdgeLossConfig, EvaluateConfig, Jumping, LinksConfig,
        ModelConfig, NeighborSampling, NoDecay, Norm, OptimizerConfig, RegressionLoss, Residual, RunConfig,
        ScheduleConfig, TrainConfig,
    },
    measured::Metric,
};

/// One key of a run file.
#[derive(Clone, Debug)]
pub struct Key {
    /// Section and name: `optimizer.learning_rate`.
    pub name: String,
    /// Its valid values.
    pub takes: Takes,
    /// Its default as TOML; `None` if it has none, or if `about` describes it.
    pub default: Option<String>,
    /// Its meaning.
    pub about: String,
}

/// Valid values of a key.
#[derive(Clone, Debug)]
pub enum Takes {
    /// Finite numbers between two bounds.
    Number(Bound, Bound),
    /// Whole numbers from the first to the second.
    Count(u64, u64),
    /// `true` or `false`.
    Flag,
    /// A string.
    Text,
    /// One of these strings.
    OneOf(Vec<String>),
    /// A list of whole numbers from 1 and "all", or one of the two.
    Fanouts,
    /// One of these strings, or a list of numbers from 0.
    Weights(Vec<String>),
}

/// One end of a range of numbers.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// Included.
    At(f64),
    /// Excluded.
    Beyond(f64),
    /// Unbounded.
    Open,
}

use Bound::{At, Beyond, Open};
use Takes::{Count, Fanouts, Flag, Number, OneOf, Text, Weights};

/// All keys, section by section.
pub fn keys() -> &'static [Key] {
    static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
        let schema = schema();
        let find = |name: &String| {
            let (section, key) = name.split_once('.').expect("a name has a section");
            key_of(name, &properties(&schema["properties"][section])[key])
        };
        names().iter().map(find).collect()
    });
    &KEYS
}

/// The sections of a run file, in order.
pub fn sections() -> Vec<&'static str> {
    let mut sections: Vec<&str> = keys().iter().filter_map(|key| key.name.split('.').next()).collect();
    sections.dedup();
    sections
}

/// The meaning of a section.
pub(super) fn about_section(section: &str) -> String {
    one_line(schema()["properties"][section]["description"].as_str().unwrap_or_default())
}

/// The JSON Schema of run files.
pub fn schema() -> Json {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<RunConfig>().to_value()
}

pub(super) fn find(name: &str) -> Option<&'static Key> {
    keys().iter().find(|key| key.name == name)
}

/// The names of all keys in the order of the structs. JSON objects have no order, so the names come from a config in which every
/// optional key is set.
pub(super) fn names() -> Vec<String> {
    let some = Some(1);
    let config = RunConfig {
        model: ModelConfig {
            input_dropout: Some(0.0),
            attention_dropout: Some(0.0),
            edge_dropout: Some(0.0),
            edge_weights: Some(false),
            edge_dim: Some(1),
            self_loops: Some(true),
            norm: Some(Norm::None),
            residual: Some(Residual::None),
            activation: Some(Activation::Elu),
            input_linear: Some(true),
            output_linear: Some(true),
            jumping: Some(Jumping::None),
            root_weight: Some(true),
            bias: Some(true),
            ..ModelConfig::default()
        },
        optimizer: OptimizerConfig {
            no_decay: Some(NoDecay::None),
            momentum: Some(0.0),
            nesterov: Some(true),
            clip_norm: Some(1.0),
            ema: Some(0.5),
            ..OptimizerConfig::default()
        },
        schedule: Some(ScheduleConfig {
            min_factor: Some(0.0),
            factor: Some(0.0),
            every: Some(1),
            patience: Some(1),
            ..ScheduleConfig::default()
        }),
        train: TrainConfig {
            sampling: Some(NeighborSampling::Uniform),
            loss: Some(RegressionLoss::Mse),
            label_smoothing: Some(0.0),
            class_weights: Some(ClassWeights::Equal),
            label_input: Some(0.5),
            label_reuse: some,
            metric: Some(Metric::Accuracy),
            batch_size: some,
            batch_size_per_rank: some,
            edge_seeds: some,
            split: Some(String::new()),
            checkpoint_every_steps: Some(1),
            deterministic: Some(true),
            ..TrainConfig::default()
        },
        edge_loss: Some(EdgeLossConfig::default()),
        cgat: Some(CgatConfig { top_k: some, ..CgatConfig::default() }),
        links: Some(LinksConfig {
            exclude_targets: Some(true),
            pairs: Some(String::new()),
            pairs_digest: Some(String::new()),
            ..LinksConfig::default()
        }),
        evaluate: Some(EvaluateConfig::default()),
        early_stop: Some(EarlyStopConfig {
            patience: Some(1),
            burn_in: Some(1),
            window: some,
            loss_threshold: Some(0.0),
            metric_threshold: Some(0.0),
        }),
    };
    let text = toml::to_string(&config).expect("a config is TOML");
    let mut section = "";
    let mut names = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
        } else if let Some((name, _)) = line.split_once(" = ") {
            names.push(format!("{section}.{name}"));
        }
    }
    names
}

/// The properties of a section, which may be optional.
pub(super) fn properties(section: &Json) -> &Json {
    match section["anyOf"].as_array() {
        Some(options) => {
            options.iter().map(properties).find(|properties| properties.is_object()).unwrap_or(&Json::Null)
        }
        None => &section["properties"],
    }
}

fn key_of(name: &str, schema: &Json) -> Key {
    Key {
        name: name.to_owned(),
        takes: Takes::of(schema),
        default: match &schema["default"] {
            Json::Null => None,
            Json::String(text) => Some(text.clone()),
            list @ Json::Array(_) => Some(list.to_string().replace(',', ", ")),
            other => Some(other.to_string()),
        },
        about: one_line(schema["description"].as_str().unwrap_or_default()),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A number of a run file; 4 and 4.0 are the same.
pub(super) fn as_number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
}

fn is_weight(value: &Value) -> bool {
    as_number(value).is_some_and(|weight| weight.is_finite() && weight >= 0.0)
}

fn are_fanouts(value: &Value) -> bool {
    let is_one = |value: &Value| match value {
        Value::String(text) => text == "all",
        _ => value.as_integer().is_some_and(|n| (1..=i64::from(u32::MAX)).contains(&n)),
    };
    match value {
        Value::Array(list) => !list.is_empty() && list.iter().all(is_one),
        _ => is_one(value),
    }
}

impl Takes {
    fn of(schema: &Json) -> Takes {
        let has_type = |name: &str| match &schema["type"] {
            Json::Array(types) => types.iter().any(|one| one == name),
            one => one == name,
        };
        if let Some(names) = schema["enum"].as_array() {
            return OneOf(names.iter().filter_map(Json::as_str).map(str::to_owned).collect());
        }
        if has_type("number") {
            let bound = |at: &str, beyond: &str| match (schema[at].as_f64(), schema[beyond].as_f64()) {
                (Some(at), _) => At(at),
                (None, Some(beyond)) => Beyond(beyond),
                (None, None) => Open,
            };
            return Number(bound("minimum", "exclusiveMinimum"), bound("maximum", "exclusiveMaximum"));
        }
        if has_type("integer") {
            let number = |name: &str, otherwise| schema[name].as_f64().map_or(otherwise, |number| number as u64);
            return Count(number("minimum", 0), number("maximum", i64::MAX as u64));
        }
        let parts = &schema["anyOf"];
        if let Some(names) = parts[0]["enum"].as_array().filter(|_| parts[1]["items"]["type"] == "number") {
            return Weights(names.iter().filter_map(Json::as_str).map(str::to_owned).collect());
        }
        match (has_type("boolean"), has_type("string")) {
            (true, _) => Flag,
            (_, true) => Text,
            _ => Fanouts,
        }
    }

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
            OneOf(names) => value.as_str().is_some_and(|text| names.iter().any(|name| name == text)),
            Fanouts => are_fanouts(value),
            Weights(names) => match value {
                Value::Array(list) => !list.is_empty() && list.iter().all(is_weight),
                _ => value.as_str().is_some_and(|text| names.iter().any(|name| name == text)),
            },
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
            Text => write!(f, "a string"),
            Fanouts => write!(f, "\"all\", or a list of whole numbers from 1 and \"all\", as in [10, 10]"),
            Weights(names) => write!(f, "{}, or a list of numbers from 0, as in [1.0, 2.5]", names.join(", ")),
            OneOf(names) => match names.split_last() {
                Some((last, [])) => write!(f, "{last}"),
                Some((last, others)) => write!(f, "{} or {last}", others.join(", ")),
                None => Ok(()),
            },
        }
    }
}
