//! What `kith` becomes where it computes with tensors.

use std::process::ExitCode;

fn main() -> ExitCode {
    kith_cli::kith_trainer()
}
