//! Presets: run files that are part of the program, by name. They are in `presets/`, one folder per dataset; those in `presets/tuned/` are
//! for the table of `kith bench tuned`, those in `presets/leaderboard/` are plain models on OGB's datasets, five of
//! them entries of its leaderboards.

use crate::{
    choice::Choice,
    model_kind::ModelKind,
    near::nearest,
    run_file::{RunFile, RunFileError},
};

/// One built-in run file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Dataset and model, as in `cora/supergat-mx`, `tuned/cora/gat` or `leaderboard/ogbn-arxiv/gcn`.
    pub name: &'static str,
    /// The file.
    pub text: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/presets.rs")); // `PRESETS`, by name; see build.rs.

impl Preset {
    /// The preset of this name, or a sentence that says which was perhaps meant.
    pub fn get(name: &str) -> Result<&'static Preset, RunFileError> {
        PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| {
            let models = ModelKind::ALL.iter().map(|(name, _)| *name);
            let near = nearest(name, models.chain(PRESETS.iter().map(|preset| preset.name)));
            let hint = near.map_or(String::new(), |near| format!(": did you mean {near}?"));
            let names: Vec<&str> = ModelKind::ALL.iter().map(|(name, _)| *name).collect();
            let problem = format!(
                "no such model or preset{hint} (models: {}; `kith train --list-presets` lists the presets)",
                names.join(", ")
            );
            RunFileError { origin: name.to_owned(), problem }
        })
    }

    /// Parses its run file.
    pub fn run_file(&self) -> Result<RunFile, RunFileError> {
        RunFile::parse(self.text, &format!("preset {}", self.name))
    }

    /// The dataset it is for.
    pub fn dataset(&self) -> &'static str {
        self.name.rsplit('/').nth(1).unwrap_or(self.name)
    }

    /// True if it is one of the tuned ones, and not of the paper.
    pub fn is_tuned(&self) -> bool {
        self.name.starts_with("tuned/")
    }

    /// True if it is one of those for OGB's datasets in `presets/leaderboard/`, and not of the paper.
    pub fn is_of_leaderboard(&self) -> bool {
        self.name.starts_with("leaderboard/")
    }

    /// Its description: the first line of the file.
    pub fn about(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches(['#', ' '])
    }
}

#[cfg(test)]
mod tests;
