//! A config written as a run file.

use std::fmt::Write;

use toml::{Table, Value};

use crate::{
    config::{Mode, RunConfig},
    run_file::keys::{about_section, keys, sections},
};

/// Keys that only mini-batches have.
pub(super) const MINI_BATCH: [&str; 8] = [
    "train.fanouts",
    "train.sampling",
    "train.batch_size",
    "train.batch_size_per_rank",
    "train.edge_seeds",
    "train.slices",
    "links.exclude_targets",
    "evaluate.sample",
];

/// Keys that only attention has.
pub(super) const ATTENTION: [&str; 4] =
    ["model.attention", "model.heads", "model.out_heads", "model.attention_dropout"];

impl RunConfig {
    /// A run file that sets every key, defaults included.
    pub fn to_toml(&self) -> String {
        self.write(false)
    }

    /// The same with a comment for every key.
    pub fn to_commented_toml(&self) -> String {
        self.write(true)
    }

    fn write(&self, has_comments: bool) -> String {
        let table = Table::try_from(self).expect("a config is TOML");
        let mut text = String::new();
        for section in sections() {
            let mut lines = String::new();
            for key in keys().iter().filter(|key| key.name.split('.').next() == Some(section)) {
                let name = key.name.rsplit('.').next().unwrap_or_default();
                let Some(value) = table.get(section).and_then(|values| values.get(name)) else { continue };
                if !self.applies(&key.name) {
                    continue;
                }
                if has_comments {
                    lines += &comment(&format!("{} [{}]", key.about, key.takes));
                }
                writeln!(lines, "{name} = {value}").expect("strings take any text");
            }
            if section == "edge_loss" && self.has_no_edge_loss() {
                lines = "weight = 0.0\n".to_owned();
            }
            if lines.is_empty() {
                continue;
            }
            let about = if has_comments { comment(&about_section(section)) } else { String::new() };
            let gap = if text.is_empty() { "" } else { "\n" };
            text += &format!("{gap}{about}[{section}]\n{lines}");
        }
        text
    }

    /// True if a key has an effect with this model and mode.
    fn applies(&self, key: &str) -> bool {
        match key {
            "model.out_heads" => self.model.kind.has_attention() && !self.model.has_output_linear(),
            _ if ATTENTION.contains(&key) => self.model.kind.has_attention(),
            _ if MINI_BATCH.contains(&key) => self.train.mode == Mode::MiniBatch,
            "cgat.boundary_margin" => self.cgat.as_ref().is_some_and(|cgat| cgat.boundary_weight > 0.0),
            _ => true,
        }
    }

    /// True if this kind of model has an edge loss and the config switches it off.
    fn has_no_edge_loss(&self) -> bool {
        self.edge_loss.is_none() && self.model.kind.section() == Some("edge_loss")
    }
}

/// A comment of lines of at most 100 characters.
fn comment(text: &str) -> String {
    let mut lines = vec!["#".to_owned()];
    for word in text.split(' ') {
        if lines.last().is_some_and(|line| line.chars().count() + word.chars().count() >= 100) {
            lines.push("#".to_owned());
        }
        let line = lines.last_mut().expect("there is a line");
        *line = format!("{line} {word}");
    }
    lines.join("\n") + "\n"
}

/// The value of a key in a table of sections.
pub(super) fn get<'t>(table: &'t Table, key: &str) -> Option<&'t Value> {
    let (section, name) = key.split_once('.')?;
    table.get(section)?.get(name)
}
