//! `kith devices`: hardware and libraries of this machine.

/// Show libtorch, instruction set, threads, CUDA devices and CUDA libraries of this machine.
#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}
