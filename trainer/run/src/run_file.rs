//! The run file: a run as typed, in TOML, and its one way to become a [`RunConfig`].
//!
//! [`KEYS`] lists everything a run file may say. A mistake is one sentence that names the key.

mod keys;
mod text;

use std::path::Path;

use kith_block::Form;
use kith_sampler::fanouts_of_layers;
use toml::{Table, Value};

pub use self::keys::{KEYS, Key, Takes};
use crate::{
    choice::Choice,
    config::{
        BatchesConfig, BoundaryConfig, CgatConfig, EarlyStopConfig, EdgeLossConfig, Kernels, Mode, ModelConfig,
        RunConfig, TrainConfig,
    },
    model_kind::{Attention, ModelKind, Traits},
    near::nearest,
};

/// A run as typed: known keys, each with a value it can have. What belongs together is checked by
/// [`RunFile::resolve`].
#[derive(Clone, Debug, PartialEq)]
pub struct RunFile {
    origin: String,
    table: Table,
}

/// What is wrong with a run file, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct RunFileError {
    /// The file, preset or option.
    pub origin: String,
    /// What is wrong with it.
    pub problem: String,
}

/// A section's value on the command line that takes the section away.
const OFF: &str = "off";

impl RunFile {
    /// Understands the text of a run file; `origin` is for messages.
    pub fn parse(text: &str, origin: &str) -> Result<RunFile, RunFileError> {
        let wrong = |problem: String| RunFileError { origin: origin.to_owned(), problem };
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
            wrong(format!("line {line}: {}", error.message().replace('\n', ", ")))
        })?;
        for (section, values) in &table {
            let Value::Table(values) = values else { return Err(wrong(unknown(section))) };
            if !sections().any(|known| known == section) {
                return Err(wrong(unknown(section)));
            }
            for (name, value) in values {
                check(&format!("{section}.{name}"), value).map_err(wrong)?;
            }
        }
        Ok(RunFile { origin: origin.to_owned(), table })
    }

    /// Reads a run file.
    pub fn read(path: &Path) -> Result<RunFile, RunFileError> {
        let origin = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| RunFileError { origin: origin.clone(), problem: error.to_string() })?;
        RunFile::parse(&text, &origin)
    }

    /// Changes one key, as in `train.learning_rate=0.01`; `early_stop=off` takes a whole section away. A value that is
    /// no TOML is a text, so that texts need no quotes.
    pub fn set(&mut self, assignment: &str) -> Result<(), RunFileError> {
        let wrong = |problem: String| RunFileError { origin: format!("--set {assignment}"), problem };
        let Some((key, typed)) = assignment.split_once('=') else {
            return Err(wrong("write it as key=value, for example train.learning_rate=0.01".to_owned()));
        };
        let (key, typed) = (key.trim(), typed.trim());
        if sections().any(|section| section == key) && typed == OFF {
            self.table.remove(key);
            return Ok(());
        }
        let parsed: Option<Value> =
            format!("value = {typed}").parse::<Table>().ok().and_then(|mut t| t.remove("value"));
        let value = parsed.unwrap_or_else(|| Value::String(typed.to_owned()));
        check(key, &value).map_err(wrong)?;
        let (section, name) = key.split_once('.').expect("known keys have a section");
        let values = self.table.entry(section).or_insert_with(|| Value::Table(Table::new()));
        values.as_table_mut().expect("checked when parsed").insert(name.to_owned(), value);
        Ok(())
    }

    /// The run that is meant.
    pub fn resolve(&self) -> Result<RunConfig, RunFileError> {
        let kind: ModelKind = self.choice("model.kind")?;
        let model = self.resolve_model(kind)?;
        let train = TrainConfig {
            learning_rate: self.number("train.learning_rate")?,
            weight_decay: self.number("train.weight_decay")?,
            epochs: self.count("train.epochs")?,
            split: self.get("train.split").and_then(Value::as_str).map(str::to_owned),
            supervision: self.choice("train.supervision")?,
            kernels: self.resolve_kernels(kind)?,
            checkpoint_every: self.count("train.checkpoint_every")?,
            checkpoint_every_steps: match self.get("train.checkpoint_every_steps") {
                None => None,
                Some(_) => Some(self.count("train.checkpoint_every_steps")?),
            },
            checkpoint_minutes: self.number("train.checkpoint_minutes")?,
            checkpoints_kept: self.count("train.checkpoints_kept")?,
            deterministic: self.get("train.deterministic").and_then(Value::as_bool),
            evaluate_every: self.count("train.evaluate_every")?,
            mode: self.resolve_mode(kind, model.n_layers)?,
        };
        self.check_sections(kind)?;
        Ok(RunConfig {
            train,
            edge_loss: self.resolve_edge_loss()?,
            cgat: self.resolve_cgat()?,
            model,
            early_stop: match self.table.contains_key("early_stop") {
                false => None,
                true => Some(EarlyStopConfig {
                    burn_in: self.count("early_stop.burn_in")?,
                    window: self.count("early_stop.window")? as usize,
                    loss_threshold: self.number("early_stop.loss_threshold")?,
                    metric_threshold: self.number("early_stop.metric_threshold")?,
                }),
            },
        })
    }

    fn resolve_model(&self, kind: ModelKind) -> Result<ModelConfig, RunFileError> {
        let Traits { attention, features, .. } = kind.traits();
        if attention == Attention::None {
            for key in ["model.form", "model.heads", "model.out_heads"] {
                if self.get(key).is_some() {
                    return Err(self.wrong(format!("`{key}` is for attention: a {} has none", kind.name())));
                }
            }
        }
        let form = self.get("model.form");
        if attention == Attention::Go && form.is_some_and(|form| form.as_str() != Some(Form::Go.name())) {
            return Err(self.wrong(format!("`model.form`: a {} scores by go alone", kind.name())));
        }
        Ok(ModelConfig {
            kind,
            form: match form.is_some() || attention == Attention::Said {
                true => self.choice("model.form")?,
                false => Form::Go,
            },
            n_layers: self.count("model.n_layers")? as usize,
            heads: self.count("model.heads")? as usize,
            features: match self.get("model.features") {
                None => features as usize,
                Some(_) => self.count("model.features")? as usize,
            },
            out_heads: self.count("model.out_heads")? as usize,
            dropout: self.number("model.dropout")?,
        })
    }

    /// A kind without kernels of its own takes tensor operations, and nothing else may be asked for.
    fn resolve_kernels(&self, kind: ModelKind) -> Result<Kernels, RunFileError> {
        match self.get("train.kernels") {
            _ if kind.traits().has_fused_kernels => self.choice("train.kernels"),
            Some(kernels) if kernels.as_str() == Some(Kernels::Fused.name()) => {
                let name = kind.name();
                Err(self.wrong(format!("`train.kernels`: a {name} has no fused kernels: say reference, or nothing")))
            }
            _ => Ok(Kernels::Reference),
        }
    }

    fn resolve_mode(&self, kind: ModelKind, n_layers: usize) -> Result<Mode, RunFileError> {
        if self.value("train.mode")?.as_str() == Some("full") {
            for key in ["train.fanouts", "train.seeds_per_step", "train.edge_seeds", "train.slices"] {
                if self.get(key).is_some() {
                    return Err(self.wrong(format!("`{key}` is for batches: say train.mode = \"batches\" too")));
                }
            }
            return Ok(Mode::Full);
        }
        if !kind.traits().trains_in_batches {
            return Err(self.wrong(format!("`train.mode`: a {} trains on whole graphs: say full", kind.name())));
        }
        let count = |key: &str| match self.get(key) {
            None => Ok(None),
            Some(_) => self.count(key).map(|count| Some(count as usize)),
        };
        let fanouts = keys::as_fanouts(&self.value("train.fanouts")?).expect("checked when parsed");
        // Only what a person wrote can be too much: the default has as many as the smallest usual model.
        let fanouts = match self.get("train.fanouts") {
            None => fanouts[..fanouts.len().min(n_layers)].to_vec(),
            Some(_) => fanouts,
        };
        fanouts_of_layers(&fanouts, n_layers).map_err(|error| self.wrong(format!("`train.fanouts`: {error}")))?;
        Ok(Mode::Batches(BatchesConfig {
            fanouts,
            seeds_per_step: count("train.seeds_per_step")?,
            edge_seeds: count("train.edge_seeds")?,
            slices: self.count("train.slices")? as usize,
        }))
    }

    /// A section that belongs to one kind of model stands in its run files, and in no others.
    fn check_sections(&self, kind: ModelKind) -> Result<(), RunFileError> {
        for (section, owner) in ModelKind::sections() {
            let (name, owner_name) = (kind.name(), owner.name());
            let problem = match (kind == owner, self.table.contains_key(section)) {
                (true, false) => format!("`{section}` is missing: a {name} learns from edges (a gat does not)"),
                (false, true) => format!("`{section}` is for a {owner_name}: a {name} learns without it"),
                _ => continue,
            };
            return Err(self.wrong(problem));
        }
        Ok(())
    }

    fn resolve_edge_loss(&self) -> Result<Option<EdgeLossConfig>, RunFileError> {
        if !self.table.contains_key("edge_loss") {
            return Ok(None);
        }
        let weight = self.number("edge_loss.weight")?;
        Ok((weight > 0.0).then_some(EdgeLossConfig {
            weight,
            negatives: self.number("edge_loss.negatives")?,
            kept: self.number("edge_loss.kept")?,
            exclude: self.choice("edge_loss.exclude")?,
            subset: self.choice("edge_loss.subset")?,
        }))
    }

    fn resolve_cgat(&self) -> Result<Option<CgatConfig>, RunFileError> {
        if !self.table.contains_key("cgat") {
            return Ok(None);
        }
        let weight = self.number("cgat.boundary_weight")?;
        if weight == 0.0 && self.get("cgat.boundary_margin").is_some() {
            let problem = "`cgat.boundary_margin` is for a boundary loss: say cgat.boundary_weight too";
            return Err(self.wrong(problem.to_owned()));
        }
        Ok(Some(CgatConfig {
            graph_weight: self.number("cgat.graph_weight")?,
            graph_margin: self.number("cgat.graph_margin")?,
            boundary: match weight > 0.0 {
                true => Some(BoundaryConfig { weight, margin: self.number("cgat.boundary_margin")? }),
                false => None,
            },
            top_k: match self.get("cgat.top_k") {
                None => None,
                Some(_) => Some(self.count("cgat.top_k")? as usize),
            },
            negatives: self.count("cgat.negatives")? as usize,
        }))
    }

    fn get(&self, key: &str) -> Option<&Value> {
        let (section, name) = key.split_once('.')?;
        self.table.get(section)?.get(name)
    }

    /// The value of a key, or its default.
    fn value(&self, key: &str) -> Result<Value, RunFileError> {
        if let Some(value) = self.get(key) {
            return Ok(value.clone());
        }
        match keys::find(key).and_then(|known| known.default) {
            Some(default) => {
                let mut table: Table = format!("value = {default}").parse().expect("defaults are TOML");
                Ok(table.remove("value").expect("just written"))
            }
            None => Err(self.wrong(format!("`{key}` is missing"))),
        }
    }

    fn number(&self, key: &str) -> Result<f64, RunFileError> {
        Ok(keys::as_number(&self.value(key)?).expect("checked when parsed"))
    }

    fn count(&self, key: &str) -> Result<u64, RunFileError> {
        let value = self.value(key)?.as_integer().expect("checked when parsed");
        Ok(u64::try_from(value).expect("checked when parsed"))
    }

    fn choice<T: Choice>(&self, key: &str) -> Result<T, RunFileError> {
        let value = self.value(key)?;
        Ok(value.as_str().and_then(T::from_name).expect("checked when parsed"))
    }

    fn wrong(&self, problem: String) -> RunFileError {
        RunFileError { origin: self.origin.clone(), problem }
    }
}

/// The sections of a run file, in order.
fn sections() -> impl Iterator<Item = &'static str> {
    ["model", "train", "edge_loss", "cgat", "early_stop"].into_iter()
}

fn check(key: &str, value: &Value) -> Result<(), String> {
    let Some(known) = keys::find(key) else { return Err(unknown(key)) };
    if known.takes.accepts(value) {
        return Ok(());
    }
    Err(format!("`{key}` must be {}, not {value}", known.takes))
}

fn unknown(key: &str) -> String {
    let known = KEYS.iter().map(|key| key.name).chain(sections());
    // A key is most often right and its section forgotten, or the other way around.
    let by_name =
        KEYS.iter().map(|key| key.name).find(|name| name.split_once('.').is_some_and(|(_, name)| name == key));
    match by_name.or_else(|| nearest(key, known)) {
        Some(near) => format!("a run file has no `{key}`: did you mean `{near}`?"),
        None => format!("a run file has no `{key}`: its sections are model, train, edge_loss, cgat and early_stop"),
    }
}

#[cfg(test)]
mod tests;
