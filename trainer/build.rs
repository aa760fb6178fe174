//! Hands on where libtorch is at run time: programs get the folders as `DEP_KITH_TRAINER_LIBRARY_FOLDERS` in their own
//! build scripts.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DEP_KITH_KERNELS_LIBRARY_FOLDERS");
    let folders = env::var("DEP_KITH_KERNELS_LIBRARY_FOLDERS").expect("kith-kernels tells where libtorch is");
    let version = env::var("DEP_KITH_KERNELS_LIBTORCH_VERSION").expect("kith-kernels knows the version");
    println!("cargo::rustc-env=KITH_LIBTORCH_VERSION={version}");
    for folder in env::split_paths(&folders) {
        println!("cargo::rustc-link-arg=-Xlinker\ncargo::rustc-link-arg=-rpath");
        println!("cargo::rustc-link-arg=-Xlinker\ncargo::rustc-link-arg={}", folder.display());
    }
    println!("cargo::metadata=LIBRARY_FOLDERS={folders}");
}
