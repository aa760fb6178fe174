//! Arguments of `kith launch --print`.

use super::name::name;

/// Output for other launchers.
#[derive(clap::Args)]
#[command(next_help_heading = "Elsewhere")]
pub(in crate::launch) struct PrintArgs {
    /// Start nothing; print manifests of all ranks and sampling servers, for `kubectl apply -f -`.
    #[arg(long)]
    print: Option<Launcher>,
    /// Name of all Kubernetes objects of the run (default: the name of the run file or preset).
    #[arg(long, requires = "print", value_parser = name)]
    pub(super) name: Option<String>,
    /// Prefix of image names, as in registry.example/team (default: none).
    #[arg(long, value_name = "PREFIX", requires = "print")]
    pub(super) images: Option<String>,
    /// CPUs per rank (default: 4).
    #[arg(long, value_name = "N", requires = "print", default_value_t = 4, hide_default_value = true,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rank_cpus: u32,
    /// CPUs per sampling server (default: 2).
    #[arg(long, value_name = "N", requires = "print", default_value_t = 2, hide_default_value = true,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) sampler_cpus: u32,
}

/// Another launcher.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Launcher {
    Kubernetes,
}

impl PrintArgs {
    pub(in crate::launch) fn is_asked_for(&self) -> bool {
        self.print.is_some()
    }
}
