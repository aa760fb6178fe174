//! Which run is meant: a preset, a file, or what a folder holds; then what the options change.

use std::path::Path;

use anyhow::bail;
use kith_run::{
    choice::Choice, config::RunConfig, file_error::FileError, preset::Preset, report::RUN_FILE, run_file::RunFile,
};

use super::args::Args;

/// What the options change.
pub fn resolve(file: &mut RunFile, args: &Args) -> anyhow::Result<RunConfig> {
    for assignment in &args.assignments {
        file.set(assignment)?;
    }
    if let Some(kernels) = args.kernels {
        file.set(&format!("train.kernels={}", kernels.name()))?;
    }
    Ok(file.resolve()?)
}

/// A run as it was typed, before anybody looked at a graph.
pub struct Typed {
    /// Of the preset, or of the file without its ending.
    pub name: String,
    /// The run file's text, to the letter.
    pub text: String,
    /// What it means, with what the options change.
    pub config: RunConfig,
}

/// The run that was typed.
pub fn typed(args: &Args) -> anyhow::Result<Typed> {
    if args.attention.is_some() {
        bail!("--attention auto looks at the whole graph, which is not here: name a preset or a run file");
    }
    let Some(run) = args.preset.as_ref().or(args.run.as_ref()) else {
        bail!("nothing to train: name a preset (`kith train --list-presets` shows them) or a run file");
    };
    let (name, text, mut file) = match named(args)?.expect("one of them was named") {
        Named::Preset(preset) => (preset.name.to_owned(), preset.text.to_owned(), preset.run_file()?),
        Named::File(file) => {
            let path = Path::new(run);
            let text = std::fs::read_to_string(path).map_err(FileError::io(path))?;
            (path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), text, file)
        }
    };
    let config = resolve(&mut file, args)?;
    Ok(Typed { name, text, config })
}

/// A run that was named.
pub enum Named {
    /// A preset.
    Preset(&'static Preset),
    /// A run file.
    File(RunFile),
}

/// The run that was named, if one was.
pub fn named(args: &Args) -> anyhow::Result<Option<Named>> {
    if let Some(name) = &args.preset {
        return Ok(Some(Named::Preset(Preset::get(name)?)));
    }
    if let Some(run) = &args.run {
        return Ok(Some(find(run)?));
    }
    let kept = args.out.as_ref().filter(|_| args.resume).map(|out| out.join(RUN_FILE)).filter(|path| path.exists());
    Ok(kept.map(|path| RunFile::read(&path)).transpose()?.map(Named::File))
}

fn find(run: &str) -> anyhow::Result<Named> {
    let is_file = Path::new(run).is_file() || run.ends_with(".toml");
    Ok(match is_file {
        true => Named::File(RunFile::read(Path::new(run))?),
        false => Named::Preset(Preset::get(run)?),
    })
}

/// A run file by its path, or that of a preset by its name.
pub fn run_file(run: &str) -> anyhow::Result<RunFile> {
    match find(run)? {
        Named::Preset(preset) => Ok(preset.run_file()?),
        Named::File(file) => Ok(file),
    }
}
