//! `kith bench kernels`: a training step on this machine's GPU, beside PyG's where that is asked for.

/// Time training on this machine's GPU, on random graphs of the sizes of real datasets: full-batch steps, whole runs, mini-batch
/// epochs and sampling.
#[derive(clap::Args)]
#[command(after_help = "\
All cases:            kith bench kernels
Beside PyG's layers:  kith bench kernels --peers python3")]
pub struct Args {
    /// Device: cuda or cuda:N (default: cuda).
    #[arg(long, default_value = "cuda", hide_default_value = true)]
    pub device: String,
    /// Run only the cases whose name contains TEXT, as in cora (default: all cases).
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Number of timed steps, of which the median is printed (default: 40).
    #[arg(long, value_name = "N", default_value_t = 40, hide_default_value = true,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Also time PyG's layers on the same graphs, with this Python interpreter; it needs torch and torch_geometric.
    #[arg(long, value_name = "PYTHON")]
    pub peers: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
