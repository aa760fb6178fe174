//! Finds the libtorch that `make` linked as `.libtorch`, and tells programs where it is at run time. Lists the presets.
//!
//! A program of another package gets the folders as `DEP_KITH_TRAINER_LIBRARY_FOLDERS` in its own build script.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

const EXPECTED: &str = "2.11.0"; // The one that tch 0.24 was generated from.

fn main() {
    list_presets();
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    let libtorch = env::var_os("LIBTORCH").map(PathBuf::from).unwrap_or_default();
    let header = libtorch.join("include/torch/headeronly/version.h");
    println!("cargo::rerun-if-changed={}", header.display());
    match version(&header) {
        Some(version) if version == EXPECTED => println!("cargo::rustc-env=KITH_LIBTORCH_VERSION={version}"),
        Some(version) => {
            return println!("cargo::error={} is libtorch {version}, Kith needs {EXPECTED}", libtorch.display());
        }
        None => return println!("cargo::error=no libtorch {EXPECTED} in {}: run `make` first", libtorch.display()),
    }

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

/// Writes `presets.rs`: every `src/presets/DATASET/MODEL.toml` by its name, in order. A new preset is a new file.
fn list_presets() {
    println!("cargo::rerun-if-changed=build.rs\ncargo::rerun-if-changed=src/presets");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("src/presets");
    let mut entries = Vec::new();
    for dataset in files_in(&root) {
        for file in files_in(&dataset) {
            let name = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let preset = format!("{}/{}", name(&dataset), name(&file));
            entries.push(format!(
                "    Preset {{ name: {preset:?}, text: include_str!({:?}) }},\n",
                file.display().to_string()
            ));
        }
    }
    let text = format!("/// All presets, by name.\npub const PRESETS: &[Preset] = &[\n{}];\n", entries.concat());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("presets.rs");
    fs::write(&out, text).expect("cargo's own folder can be written");
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the presets are part of the source");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder can be read").path()).collect();
    paths.sort();
    paths
}
