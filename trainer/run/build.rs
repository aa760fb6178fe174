//! Lists the presets.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

fn main() {
    list_presets();
}

/// Writes `presets.rs`: every `presets/DATASET/MODEL.toml` by its name, in order. A new preset is a new file.
fn list_presets() {
    println!("cargo::rerun-if-changed=build.rs\ncargo::rerun-if-changed=presets");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("presets");
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
