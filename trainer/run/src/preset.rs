//! Presets: run files that are part of the program, by name. They are in `presets/`, one folder per dataset.

use crate::{
    choice::Choice,
    model_kind::ModelKind,
    near::nearest,
    run_file::{RunFile, RunFileError},
};

/// One built-in run file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Dataset and model: `cora/supergat-mx`.
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
        self.name.split('/').next().unwrap_or(self.name)
    }

    /// Its description: the first line of the file.
    pub fn about(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches(['#', ' '])
    }
}

#[cfg(test)]
mod tests;
