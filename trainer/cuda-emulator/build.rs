//! Compiles the CUDA kernels for the CPU.

use std::{env, fs, path::Path};

const FILES: [&str; 17] = [
    "layer.cuh",
    "attend.cu",
    "attend_back.cu",
    "aggregate.cu",
    "multiply.cu",
    "pairs.cu",
    "sums.cu",
    "loss.cu",
    "step.cu",
    "sample.cu",
    "by_source.cu",
    "inference.cu",
    "transition.cu",
    "norm.cu",
    "residual.cu",
    "jumping.cu",
    "features.cu",
];

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=../kernels/src/cuda");
    let out = env::var("OUT_DIR").expect("cargo sets it");
    let mut text = kith_draw::cuda_header();
    for name in FILES {
        let path =
            Path::new("../kernels/src/cuda").join(name).canonicalize().expect("the kernels are beside this package");
        text.push_str(&format!("\n#include \"{}\"\n", path.display()));
    }
    fs::write(Path::new(&out).join("kith_kernels.inc"), text).expect("the build's own folder can be written");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .file("src/kernels.cpp")
        .include("src")
        .include(&out)
        .opt_level(2)
        .flag_if_supported("-ffp-contract=off")
        .warnings(false)
        .compile("kith_cuda_emulator");
}
