//! `kith devices`: what this machine computes with.

/// Show what this machine computes with: libtorch, instruction set, threads, CUDA devices and libraries.
#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
