//! Compiles `sampler.proto` into messages, a tonic client and the descriptors for gRPC reflection. Needs no protoc.

use std::{env, error::Error, fs, path::PathBuf};

use protox::prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=sampler.proto");
    let files = protox::compile(["sampler.proto"], ["."])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("sampler.bin"), files.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .bytes(".")
        .compile_fds(files)?;
    Ok(())
}
