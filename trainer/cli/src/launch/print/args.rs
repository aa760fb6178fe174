//! Arguments of `kith launch --print`.

use super::name::name;

/// For other launchers.
#[derive(clap::Args)]
#[command(next_help_heading = "Elsewhere")]
pub(in crate::launch) struct PrintArgs {
    /// Start nothing; print the whole world for another launcher: manifests for `kubectl apply -f -`.
    #[arg(long)]
    print: Option<Launcher>,
    /// What all objects of the run are called; the name of the run file or preset unless said.
    #[arg(long, requires = "print", value_parser = name)]
    pub(super) name: Option<String>,
    /// What stands before the names of images, as in registry.example/team.
    #[arg(long, value_name = "PREFIX", requires = "print")]
    pub(super) images: Option<String>,
    /// CPUs of a rank.
    #[arg(long, value_name = "N", requires = "print", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rank_cpus: u32,
    /// CPUs of a sampling server.
    #[arg(long, value_name = "N", requires = "print", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) sampler_cpus: u32,
}

/// Who starts processes instead of us.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Launcher {
    Kubernetes,
}

impl PrintArgs {
    pub(in crate::launch) fn is_asked_for(&self) -> bool {
        self.print.is_some()
    }
}
