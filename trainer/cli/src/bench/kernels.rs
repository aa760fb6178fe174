//! `kith bench kernels`: a training step on this machine's GPU, beside PyG's where that is asked for.

/// Time training steps on this machine's GPU: full batches on random graphs of the sizes of real ones.
#[derive(clap::Args)]
#[command(after_help = "\
All cases:            kith bench kernels
Beside PyG's layers:  kith bench kernels --peers python3")]
pub struct Args {
    /// Where to compute: cuda or cuda:N.
    #[arg(long, default_value = "cuda")]
    pub device: String,
    /// Only cases whose name has this in it, as in cora.
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Steps of which the median is taken.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Also time PyG's layers on the same graphs, with this Python, which has torch and torch_geometric.
    #[arg(long, value_name = "PYTHON")]
    pub peers: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
