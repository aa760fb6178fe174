//! The run file: a run in TOML, and the only way to turn it into a [`RunConfig`].
//!
//! An error is one sentence: the key, its valid values, and the value that was found.

mod checks;
mod keys;
mod renamed;
mod text;

use std::path::Path;

use kith_block::Form;
use toml::{Table, Value};

use self::text::{MINI_BATCH, get};
pub use self::{
    keys::{Bound, Key, Takes, keys, schema, sections},
    renamed::{RENAMED, RENAMED_VALUES},
};
use crate::{
    choice::Choice,
    config::{EdgeLossConfig, Kernels, Mode, RunConfig},
    graph_size::GraphSize,
    model_kind::{Attention, ModelKind},
    near::nearest,
};

/// A run as written: known keys, each with a valid value. [`RunFile::resolve`] checks them together.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFile {
    origin: String,
    /// Sections by name; `false` for a section that was turned off.
    table: Table,
    notes: Vec<String>,
}

/// A mistake in a run file, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct RunFileError {
    /// The file, preset or option.
    pub origin: String,
    /// The mistake.
    pub problem: String,
}

/// The value of a section in `--set` that removes it.
const OFF: &str = "off";

impl RunFile {
    /// Parses the text of a run file. `origin` is for messages.
    pub fn parse(text: &str, origin: &str) -> Result<RunFile, RunFileError> {
        let wrong = |problem: String| RunFileError { origin: origin.to_owned(), problem };
        let written: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
            wrong(format!("line {line}: {}", error.message().replace('\n', ", ")))
        })?;
        let mut file = RunFile { origin: origin.to_owned(), table: Table::new(), notes: Vec::new() };
        for (section, values) in written {
            let values = match values {
                Value::Table(values) if sections().contains(&&*section) => values,
                _ => return Err(wrong(unknown(&section))),
            };
            file.table.entry(&section).or_insert_with(|| Value::Table(Table::new()));
            for (name, value) in values {
                let name = format!("{section}.{name}");
                let now = file.insert(&name, value, false).map_err(wrong)?;
                if let Some(twice) = now {
                    return Err(wrong(format!("`{name}` and `{twice}` are the same key: keep one of them")));
                }
            }
        }
        Ok(file)
    }

    /// Reads a run file.
    pub fn read(path: &Path) -> Result<RunFile, RunFileError> {
        let origin = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| RunFileError { origin: origin.clone(), problem: error.to_string() })?;
        RunFile::parse(&text, &origin)
    }

    /// Sets one key, as in `optimizer.learning_rate=0.01`; `early_stop=off` removes a section. A value that is not TOML is a string,
    /// so that strings need no quotes.
    pub fn set(&mut self, assignment: &str) -> Result<(), RunFileError> {
        let wrong = |problem: String| RunFileError { origin: format!("--set {assignment}"), problem };
        let Some((key, typed)) = assignment.split_once('=') else {
            return Err(wrong("expected KEY=VALUE, for example optimizer.learning_rate=0.01".to_owned()));
        };
        let (key, typed) = (key.trim(), typed.trim());
        if sections().contains(&key) && typed == OFF {
            self.table.insert(key.to_owned(), Value::Boolean(false));
            return Ok(());
        }
        let parsed: Option<Value> =
            format!("value = {typed}").parse::<Table>().ok().and_then(|mut t| t.remove("value"));
        let value = parsed.unwrap_or_else(|| Value::String(typed.to_owned()));
        self.insert(key, value, true).map(|_| ()).map_err(wrong)
    }

    /// The defaults of a model, by a name such as `gat`, `gat-dp` or `supergat-mx`, in any case; `None` if no model has this
    /// name. `graphsage` is `sage`, and `gatv2` is `gat-v2`.
    pub fn of_model(name: &str) -> Option<RunFile> {
        let name = &name.to_lowercase().replace("graphsage", "sage").replace("gatv2", "gat-v2");
        let named = |kind: ModelKind, attention: Option<Form>| {
            let mut file = RunFile { origin: name.to_owned(), table: Table::new(), notes: Vec::new() };
            file.put("model.kind", Value::String(kind.name().to_owned()));
            if let Some(attention) = attention {
                file.put("model.attention", Value::String(attention.name().to_owned()));
            }
            file
        };
        if let Some(kind) = ModelKind::from_name(name) {
            return Some(named(kind, None));
        }
        let (kind, attention) = name.rsplit_once('-')?;
        let (kind, attention) = (ModelKind::from_name(kind)?, Form::from_name(attention)?);
        matches!(kind.attention(), Attention::Said | Attention::GoUnlessSaid).then(|| named(kind, Some(attention)))
    }

    /// Keys that were given in another spelling, one sentence for each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The model.
    pub fn kind(&self) -> ModelKind {
        let name = get(&self.table, "model.kind").and_then(Value::as_str);
        name.and_then(ModelKind::from_name).unwrap_or(RunConfig::default().model.kind)
    }

    /// Predicts links instead of classes.
    pub fn predict_links(&mut self) {
        section_of(&mut self.table, LINKS);
    }

    /// True if it predicts links instead of classes.
    pub fn predicts_links(&self) -> bool {
        self.table.get(LINKS).is_some_and(Value::is_table)
    }

    /// True if the file does not set `train.mode`.
    pub fn is_mode_open(&self) -> bool {
        get(&self.table, "train.mode").is_none()
    }

    /// Sets `train.mode` if the file does not.
    pub fn set_mode_if_open(&mut self, mode: Mode) {
        if self.is_mode_open() {
            self.put("train.mode", Value::String(mode.name().to_owned()));
        }
    }

    /// Sets `train.mode` if the file does not: mini-batch if a key of mini-batches is set, otherwise full-batch.
    pub fn set_mode_by_keys(&mut self) {
        let is_mini_batch = self.mini_batch_key().is_some() && self.kind().trains_in_mini_batches();
        self.set_mode_if_open(if is_mini_batch { Mode::MiniBatch } else { Mode::FullBatch });
    }

    /// Chooses full-batch or mini-batch training by the size of the graph, if the file does not; the choice in one sentence.
    pub fn choose_mode(&mut self, graph: GraphSize) -> Result<Option<String>, RunFileError> {
        if !self.is_mode_open() {
            return Ok(None);
        }
        if let Some(key) = self.mini_batch_key().filter(|_| self.kind().trains_in_mini_batches()) {
            self.set_mode_if_open(Mode::MiniBatch);
            return Ok(Some(format!("mini-batch training, because `{key}` is set")));
        }
        let config = self.resolve()?;
        if config.train.label_reuse.is_some_and(|n_passes| n_passes > 0) {
            self.set_mode_if_open(Mode::FullBatch);
            return Ok(Some("full-batch training, because `train.label_reuse` supports nothing else".to_owned()));
        }
        let graph = match config.train.label_input {
            None => graph,
            Some(_) => GraphSize { dim: graph.dim.saturating_add(graph.n_classes), ..graph },
        };
        let graph = match &config.links {
            None => graph,
            Some(links) => GraphSize { n_classes: links.dim as u64, ..graph },
        };
        let (mode, why) = graph.mode(&config.model);
        self.set_mode_if_open(mode);
        Ok(Some(format!("{} training, because {why}", mode.name())))
    }

    /// A key that only mini-batches have, if one is set.
    fn mini_batch_key(&self) -> Option<&'static str> {
        MINI_BATCH.into_iter().find(|key| get(&self.table, key).is_some())
    }

    /// The run that the file describes.
    pub fn resolve(&self) -> Result<RunConfig, RunFileError> {
        let kind = self.kind();
        self.check_model(kind)?;
        self.check_mode(kind)?;
        self.check_sections(kind)?;
        let mut table = self.table.clone();
        table.retain(|_, section| section.is_table());
        let mut fill = |key: &str, value: Value| {
            if get(&table, key).is_none() {
                put(&mut table, key, value);
            }
        };
        fill("model.kind", Value::String(kind.name().to_owned()));
        match kind.attention() {
            Attention::None => fill("model.hidden", Value::Integer(WIDTH_WITHOUT_ATTENTION)),
            Attention::Go | Attention::GoUnlessSaid => {
                fill("model.attention", Value::String(Form::Go.name().to_owned()))
            }
            Attention::Said => {}
        }
        if !kind.has_fused_kernels() || self.reads_edges(kind) {
            fill("train.kernels", Value::String(Kernels::Reference.name().to_owned()));
        }
        if let Some(section) = kind.section() {
            table.entry(section).or_insert_with(|| Value::Table(Table::new()));
        }
        let mut config: RunConfig = Value::Table(table).try_into().map_err(|error: toml::de::Error| {
            self.wrong(error.message().replace('\n', ", ")) // Values are checked above: only a gap in those checks leads here.
        })?;
        config.edge_loss = config.edge_loss.filter(|EdgeLossConfig { weight, .. }| *weight > 0.0);
        self.check_layers(&config)?;
        self.check_early_stop(&config)?;
        self.check_evaluate(&config)?;
        self.check_optimizer(&config)?;
        self.check_schedule(&config)?;
        self.check_links(&config)?;
        self.check_label_input(&config)?;
        self.settle_fanouts(&mut config)?;
        Ok(config)
    }

    /// Sets a key, under whatever name it was given; its present name if it had a value and may not be set twice.
    fn insert(&mut self, given: &str, value: Value, replaces: bool) -> Result<Option<String>, String> {
        let (name, is_renamed) = renamed::key(given);
        let before = value.to_string();
        let value = match renamed::value(name, &value) {
            Some(now) => Value::String(now.to_owned()),
            None => value,
        };
        let Some(known) = keys::find(name) else { return Err(unknown(given)) };
        if !known.takes.accepts(&value) {
            return Err(format!("`{given}` must be {}, not {value}", known.takes));
        }
        if is_renamed {
            self.note(format!("`{given}` is now called `{name}`"));
        }
        if before != value.to_string() {
            self.note(format!("`{name} = {before}` is now written {value}"));
        }
        if !replaces && get(&self.table, name).is_some() {
            return Ok(Some(name.to_owned()));
        }
        self.put(name, value);
        Ok(None)
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn put(&mut self, key: &str, value: Value) {
        put(&mut self.table, key, value);
    }

    fn wrong(&self, problem: String) -> RunFileError {
        RunFileError { origin: self.origin.clone(), problem }
    }
}

/// The section of link prediction.
const LINKS: &str = "links";

/// `model.hidden` of models without attention: as wide as the default heads together.
const WIDTH_WITHOUT_ATTENTION: i64 = 128;

/// Sets a key in a table of sections; a section that was off is on again.
fn put(table: &mut Table, key: &str, value: Value) {
    let (section, name) = key.split_once('.').expect("known keys have a section");
    section_of(table, section).insert(name.to_owned(), value);
}

/// A section of a table, added if it is missing or off.
fn section_of<'t>(table: &'t mut Table, name: &str) -> &'t mut Table {
    let section = table.entry(name).or_insert_with(|| Value::Table(Table::new()));
    if !section.is_table() {
        *section = Value::Table(Table::new());
    }
    section.as_table_mut().expect("made above")
}

/// The key of this name, or of another spelling of it.
pub fn find_key(name: &str) -> Option<&'static Key> {
    keys::find(renamed::key(name).0)
}

fn unknown(key: &str) -> String {
    let names = || keys().iter().map(|key| &*key.name);
    // A key is most often right and its section forgotten, or the other way around.
    let by_name = names().find(|name| name.split_once('.').is_some_and(|(_, name)| name == key));
    match by_name.or_else(|| renamed::by_short_name(key)).or_else(|| nearest(key, names().chain(sections()))) {
        Some(near) => format!("a run file has no `{key}`: did you mean `{near}`?"),
        None => {
            let sections = sections();
            let (last, others) = sections.split_last().expect("there are sections");
            format!("a run file has no `{key}`: its sections are {} and {last}", others.join(", "))
        }
    }
}

#[cfg(test)]
mod tests;
