//! The program `kith`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kith_cli::kith()
}
