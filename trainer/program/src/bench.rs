//! `kith bench`, except for the subcommands that need no tensors: `cache`, `constants` and `scale`.

mod kernels;
mod paper;

use kith_cli::{
    bench::{Args, Command},
    programs,
};

pub(crate) fn run(args: Args) -> anyhow::Result<u8> {
    match args.command {
        Command::Kernels(args) => return kernels::run(&args),
        Command::Cache(_) | Command::Constants(_) | Command::Scale(_) => Err(programs::not_here()),
        Command::Attention(args) => paper::run_attention(&args),
        Command::Links(args) => paper::run_links(&args),
        Command::Sensitivity(args) => paper::run_sensitivity(&args),
        Command::Supervised(args) => paper::run_supervised(&args),
        Command::Synthetic(args) => paper::run_synthetic(&args),
        Command::Table(args) => paper::run_table(&args),
        Command::Tuned(args) => paper::run_tuned(&args),
        Command::Wallclock(args) => paper::run_wallclock(&args),
    }?;
    Ok(0)
}
