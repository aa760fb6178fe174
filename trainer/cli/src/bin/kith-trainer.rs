//! What `kith` becomes where it computes with tensors.

fn main() {
    kith_cli::kith_trainer()
}
