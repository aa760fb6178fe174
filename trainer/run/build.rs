//! Lists the presets.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

fn main() {
    list_presets();
}

/// Writes `presets.rs`: every `presets/DATASET/MODEL.toml`, and those in folders such as `presets/tuned/`, by name and in order. A new
/// preset is a new file.
fn list_presets() {
    println!("cargo::rerun-if-changed=build.rs\ncargo::rerun-if-changed=presets");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("presets");
    let mut entries = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for path in files_in(&folder) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&root).expect("it is in the folder").with_extension("");
            let (name, file) = (name.display().to_string().replace('\\', "/"), path.display().to_string());
            entries.push(format!("    Preset {{ name: {name:?}, text: include_str!({file:?}) }},\n"));
        }
    }
    entries.sort();
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
