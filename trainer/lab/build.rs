//! Lets tests of this package find libtorch without `LD_LIBRARY_PATH`.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs"); // Cargo also reruns it when the folders change.
    let folders = env::var_os("DEP_KITH_TRAINER_LIBRARY_FOLDERS").expect("kith-trainer's build script sets it");
    for folder in env::split_paths(&folders) {
        println!("cargo::rustc-link-arg=-Xlinker\ncargo::rustc-link-arg=-rpath");
        println!("cargo::rustc-link-arg=-Xlinker\ncargo::rustc-link-arg={}", folder.display());
    }
}
