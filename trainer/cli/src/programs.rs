//! From one program to the other.

use std::{io, os::unix::process::CommandExt, path::PathBuf, process::Command};

use anyhow::{Context, anyhow};

const KITH: &str = "kith";
const TRAINER: &str = "kith-trainer";

/// The file of `kith`, which all processes that we start are.
pub fn kith() -> anyhow::Result<PathBuf> {
    beside(KITH)
}

/// This process goes on as `kith-trainer`, with the same arguments: only an error comes back.
pub fn become_trainer() -> anyhow::Error {
    let program = match beside(TRAINER) {
        Ok(program) => program,
        Err(error) => return error,
    };
    let error = Command::new(&program).arg0(KITH).args(std::env::args_os().skip(1)).exec();
    match error.kind() {
        io::ErrorKind::NotFound => {
            anyhow!("{} is not there: {KITH} needs it beside itself to compute with tensors", program.display())
        }
        _ => anyhow!("{}: {error}", program.display()),
    }
}

/// What `kith` does, and never leaves to its trainer.
pub fn not_here() -> anyhow::Error {
    anyhow!("{TRAINER} is a part of {KITH}: start that")
}

/// Programs stand in one folder.
fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("the program does not know its own file")?;
    Ok(own.with_file_name(name))
}
