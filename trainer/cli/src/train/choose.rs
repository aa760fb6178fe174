//! The run of a command: a model, a preset, a file, or the file in a run's folder, with the settings of the options.

use std::path::Path;

use anyhow::bail;
use kith_run::{
    choice::Choice,
    config::{Mode, RunConfig},
    file_error::FileError,
    preset::Preset,
    report::RUN_FILE,
    run_file::RunFile,
};

use super::args::Args;
use crate::progress::say;

/// Applies the settings of the options.
pub fn apply(file: &mut RunFile, args: &Args, says_notes: bool) -> anyhow::Result<()> {
    match args.settings.task.as_deref() {
        Some("links") => file.predict_links(),
        Some(_) => file.set("links=off")?,
        None => {}
    }
    for assignment in args.settings.assignments().iter().chain(&args.assignments) {
        file.set(assignment)?;
    }
    if let Some(kernels) = args.kernels {
        file.set(&format!("train.kernels={}", kernels.name()))?;
    }
    file.notes().iter().filter(|_| says_notes).for_each(|note| say(&format!("note: {note}")));
    Ok(())
}

/// Error of a command without a run.
pub const NOTHING: &str = "nothing to train: name a model (`kith train gat --graph PLACE`), a preset (`kith train --list-presets` \
    lists them) or a run file (`kith config init PLACE` writes one)";

/// A run as typed, independent of a graph.
pub struct Typed {
    /// Name of the preset, or of the file without its extension.
    pub name: String,
    /// Text of the run file, unchanged.
    pub text: String,
    /// The resolved config, including the options.
    pub config: RunConfig,
}

/// The run of the arguments.
pub fn typed(args: &Args) -> anyhow::Result<Typed> {
    if args.settings.is_by_recipe() {
        bail!(
            "--attention auto needs the whole graph, which is not on this machine: name a model, a preset or a run file"
        );
    }
    let Some(run) = args.preset.as_ref().or(args.run.as_ref()) else {
        bail!(NOTHING);
    };
    let (name, text, mut file) = match named(args)?.expect("one of them was named") {
        Named::Preset(preset) => (preset.name.to_owned(), preset.text.to_owned(), preset.run_file()?),
        Named::File(file) if !is_file(run) => (run.clone(), String::new(), file),
        Named::File(file) => {
            let path = Path::new(run);
            let text = std::fs::read_to_string(path).map_err(FileError::io(path))?;
            (path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), text, file)
        }
    };
    apply(&mut file, args, true)?;
    file.set_mode_if_open(Mode::MiniBatch);
    let config = file.resolve()?;
    let text = if text.is_empty() { config.to_toml() } else { text };
    Ok(Typed { name, text, config })
}

/// The config of the arguments as far as it is known without the graph; mini-batch training if the graph decides the mode.
/// `None` without a run, or if the recipe chooses it.
pub fn config_without_graph(args: &Args) -> anyhow::Result<Option<RunConfig>> {
    let mut file = match named(args)? {
        Some(Named::Preset(preset)) => preset.run_file()?,
        Some(Named::File(file)) => file,
        None => return Ok(None),
    };
    if args.settings.is_by_recipe() {
        return Ok(None);
    }
    apply(&mut file, args, false)?;
    file.set_mode_if_open(Mode::MiniBatch);
    Ok(Some(file.resolve()?))
}

/// A run by name.
pub enum Named {
    /// A preset.
    Preset(&'static Preset),
    /// A run file, or a model with defaults.
    File(RunFile),
}

/// The named run, if any.
pub fn named(args: &Args) -> anyhow::Result<Option<Named>> {
    if let Some(name) = &args.preset {
        return Ok(Some(Named::Preset(Preset::get(name)?)));
    }
    if let Some(run) = &args.run {
        return Ok(Some(find(run)?));
    }
    let kept = args.out.as_ref().filter(|_| args.resume).map(|out| out.join(RUN_FILE)).filter(|path| path.exists());
    let mut kept = kept.map(|path| RunFile::read(&path)).transpose()?;
    // A kept file is resolved. Those of 0.1.0 have a mode for mini-batches only.
    kept.iter_mut().for_each(|file| file.set_mode_if_open(Mode::FullBatch));
    Ok(kept.map(Named::File))
}

/// The run file at a path, or of a model, or the preset of this name.
pub fn find(run: &str) -> anyhow::Result<Named> {
    if is_file(run) {
        return Ok(Named::File(RunFile::read(Path::new(run))?));
    }
    match RunFile::of_model(run) {
        Some(file) => Ok(Named::File(file)),
        None => Ok(Named::Preset(Preset::get(run)?)),
    }
}

fn is_file(run: &str) -> bool {
    Path::new(run).is_file() || run.ends_with(".toml")
}

/// The run file at a path, or of a model or preset.
pub fn run_file(run: &str) -> anyhow::Result<RunFile> {
    match find(run)? {
        Named::Preset(preset) => Ok(preset.run_file()?),
        Named::File(file) => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        train: Args,
    }

    /// 0.1.0 kept no mode of full-batch runs: a graph of any size must not change it.
    #[test]
    fn a_kept_run_file_keeps_its_mode() {
        let temp = tempfile::tempdir().unwrap();
        let out = temp.path().to_str().unwrap();
        let named_with = |text: &str, options: &[&str]| {
            std::fs::write(temp.path().join(RUN_FILE), text).unwrap();
            let command = Command::parse_from([&["train", "--out", out], options].concat());
            named(&command.train).unwrap()
        };
        for (text, mode) in [
            ("[model]\nkind = \"gat\"\n", Mode::FullBatch),
            ("[model]\nkind = \"gat\"\n[train]\nmode = \"batches\"\n", Mode::MiniBatch),
        ] {
            let Some(Named::File(file)) = named_with(text, &["--resume"]) else { panic!("a run file was kept") };
            assert!(!file.is_mode_open());
            assert_eq!(file.resolve().unwrap().train.mode, mode);
        }
        assert!(named_with("", &[]).is_none(), "only a resumed run has one");
        let Some(Named::File(gat)) = named_with("", &["gat"]) else { panic!("a model was named") };
        assert!(gat.is_mode_open(), "a new run follows its graph");
    }
}
