//! Starting one program from another.

use std::{io, os::unix::process::CommandExt, path::PathBuf, process::Command};

use anyhow::{Context, anyhow};

const KITH: &str = "kith";
const TRAINER: &str = "kith-trainer";

/// File of `kith`, the program of all processes started here.
pub fn kith() -> anyhow::Result<PathBuf> {
    beside(KITH)
}

/// Replaces this process by `kith-trainer` with the same arguments; returns only on an error.
pub fn become_trainer() -> anyhow::Error {
    let program = match beside(TRAINER) {
        Ok(program) => program,
        Err(error) => return error,
    };
    let error = Command::new(&program).arg0(KITH).args(std::env::args_os().skip(1)).exec();
    match error.kind() {
        io::ErrorKind::NotFound => {
            anyhow!("{} not found: install {TRAINER} in the folder of {KITH}", program.display())
        }
        _ => anyhow!("{}: {error}", program.display()),
    }
}

/// Error of `kith-trainer` for commands of `kith`.
pub fn not_here() -> anyhow::Error {
    anyhow!("{TRAINER} is a part of {KITH}: start {KITH} instead")
}

/// File of a program in the same folder.
fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("the program does not know its own file")?;
    Ok(own.with_file_name(name))
}
