//! Aliases of keys and values: the spellings of 0.1.0, and short ones.

use toml::Value;

/// Keys of 0.1.0, and what they are called now.
pub const RENAMED: &[(&str, &str)] = &[
    ("model.form", "model.attention"),
    ("model.features", "model.hidden"),
    ("train.learning_rate", "optimizer.learning_rate"),
    ("train.weight_decay", "optimizer.weight_decay"),
    ("train.seeds_per_step", "train.batch_size"),
    ("edge_loss.negatives", "edge_loss.neg_sample_ratio"),
    ("edge_loss.kept", "edge_loss.edge_sampling_ratio"),
];

/// Values of 0.1.0, by the present names of their keys, and what they are called now.
pub const RENAMED_VALUES: &[(&str, &str, &str)] = &[
    ("train.mode", "full", "full-batch"),
    ("train.mode", "batches", "mini-batch"),
    ("train.split", "by-run-key", "by-seed"),
];

/// Spellings of other libraries.
const USUAL: &[(&str, &str)] = &[
    ("optimizer.lr", "optimizer.learning_rate"),
    ("train.lr", "optimizer.learning_rate"),
    ("model.layers", "model.n_layers"),
    ("model.num_layers", "model.n_layers"),
    ("model.hidden_channels", "model.hidden"),
];

/// The present name of a key, and whether 0.1.0 called it by this one.
pub(super) fn key(name: &str) -> (&str, bool) {
    let find = |names: &'static [(&str, &str)]| names.iter().find(|(other, _)| *other == name).map(|(_, now)| *now);
    match (find(RENAMED), find(USUAL)) {
        (Some(now), _) => (now, true),
        (None, Some(now)) => (now, false),
        (None, None) => (name, false),
    }
}

/// The present name of a key that was given in another spelling and without its section.
pub(super) fn by_short_name(name: &str) -> Option<&'static str> {
    let is_it = |(other, _): &&(&str, &str)| other.split_once('.').is_some_and(|(_, other)| other == name);
    RENAMED.iter().chain(USUAL).find(is_it).map(|(_, now)| *now)
}

/// The present name of a key's value, if 0.1.0 called it by another.
pub(super) fn value(key: &str, value: &Value) -> Option<&'static str> {
    let text = value.as_str()?;
    let is_it = |(of, before, _): &&(&str, &str, &str)| *of == key && *before == text;
    RENAMED_VALUES.iter().find(is_it).map(|(_, _, now)| *now)
}
