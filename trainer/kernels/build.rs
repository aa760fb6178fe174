//! Finds the libtorch that `make` linked as `.libtorch`, compiles the bridge to it, and passes on its library folders
//! for run time: packages that depend on this one get them as `DEP_KITH_KERNELS_LIBRARY_FOLDERS` in their own build
//! scripts.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

const EXPECTED: &str = "2.11.0"; // The one that tch 0.24 was generated from.

fn main() {
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    println!("cargo::rerun-if-changed=src/bridge.cpp");
    let libtorch = env::var_os("LIBTORCH").map(PathBuf::from).unwrap_or_default();
    let header = libtorch.join("include/torch/headeronly/version.h");
    println!("cargo::rerun-if-changed={}", header.display());
    match version(&header) {
        Some(version) if version == EXPECTED => println!("cargo::metadata=LIBTORCH_VERSION={version}"),
        Some(version) => {
            return println!("cargo::error={} is libtorch {version}, Kith needs {EXPECTED}", libtorch.display());
        }
        None => return println!("cargo::error=no libtorch {EXPECTED} in {}: run `make` first", libtorch.display()),
    }

    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .file("src/bridge.cpp")
        .include(libtorch.join("include"))
        .include(libtorch.join("include/torch/csrc/api/include"))
        .warnings(false)
        .compile("kith_bridge");

    let folders = library_folders(&libtorch);
    for folder in &folders {
        // Not `-Wl,-rpath,FOLDER`: a folder's name may hold a comma.
        println!("cargo::rustc-link-arg=-Xlinker\ncargo::rustc-link-arg=-rpath");
        println!("cargo::rustc-link-arg=-Xlinker\ncargo::rustc-link-arg={}", folder.display());
    }
    let joined =
        env::join_paths(&folders).expect("a folder of libtorch has no colon in its name, or the linker failed");
    println!("cargo::metadata=LIBRARY_FOLDERS={}", joined.display());
}

/// The version as libtorch's own header spells it: a line that holds nothing but `"2.11.0"`.
fn version(header: &Path) -> Option<String> {
    let text = fs::read_to_string(header).ok()?;
    let version = text.lines().find_map(|line| line.trim().strip_prefix('"')?.strip_suffix('"'))?;
    Some(version.to_owned())
}

/// Libraries to link with are in `lib`; CUDA's, opened at run time, in `cuda`. The real folder comes first, so that a
/// program outlives its clone; then the link, which still leads somewhere after the real folder has moved.
fn library_folders(libtorch: &Path) -> Vec<PathBuf> {
    let real = libtorch.canonicalize().unwrap_or_else(|_| libtorch.to_owned());
    let mut folders = vec![real.join("lib"), real.join("cuda")];
    if real != libtorch {
        folders.extend([libtorch.join("lib"), libtorch.join("cuda")]);
    }
    folders
}
