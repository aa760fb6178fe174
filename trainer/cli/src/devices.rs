//! `kith devices`: hardware and libraries of this machine, and GPU kernels compiled ahead.

use std::path::PathBuf;

/// Show libtorch, instruction set, threads, CUDA devices and CUDA libraries of this machine, or compile GPU kernels ahead (--warm).
#[derive(clap::Args)]
#[command(after_help = "\
Kernels of two presets:    kith devices --warm cora/gat cora/gcn
In the build of an image:  kith devices --warm ogbn-arxiv/sage --arch sm_80,sm_90
Kernels of a run file:     kith devices --warm my.toml --graph stores/mine")]
pub struct Args {
    /// Compile the GPU kernels of these models, presets or run files into the kernel cache, so that training starts at once.
    #[arg(long, value_name = "MODEL|PRESET|FILE", num_args = 1..)]
    pub warm: Vec<String>,
    /// Architectures to compile for, comma-separated, as in sm_90 (default: those of this machine's GPUs). With this option, no
    /// GPU is needed.
    #[arg(long, value_name = "SM,…", value_delimiter = ',', requires = "warm", value_parser = architecture)]
    pub arch: Vec<String>,
    /// The graph to train, a store or a partitioned graph in a folder: its number of classes is the width of the last layer
    /// (default: that of the preset's dataset).
    #[arg(long, value_name = "DIR", requires = "warm")]
    pub graph: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

fn architecture(text: &str) -> Result<String, String> {
    let is_number = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    match text.strip_prefix("sm_").is_some_and(is_number) {
        true => Ok(text.to_owned()),
        false => Err("expected an architecture such as sm_90".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_have_a_number() {
        assert_eq!(architecture("sm_90").as_deref(), Ok("sm_90"));
        for text in ["90", "sm_", "sm_90a", "compute_90", "SM_90", ""] {
            assert!(architecture(text).is_err(), "{text}");
        }
    }
}
