//! Named datasets of the paper, read from the raw files that a user downloads.

pub mod attributed;
pub mod catalog;
pub mod four_univ;
pub mod heterophilous;
pub mod import;
pub mod musae;
pub mod node_json;
pub mod ogb;
pub mod planetoid;
pub mod ppi;
pub mod saint;
pub(crate) mod streamed;
pub(crate) mod treatment;
pub mod wiki_cs;

/// The real files of a dataset, where this machine has them: under `KITH_DATASETS`, or in `shared/datasets` beside the
/// checkout. Tests say so and pass where they are absent.
#[cfg(test)]
#[allow(clippy::print_stderr)]
pub(crate) fn real_files(name: &str) -> Option<std::path::PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/datasets");
    let folder = std::path::PathBuf::from(std::env::var_os("KITH_DATASETS").unwrap_or(beside.into())).join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no real files of {name} (set KITH_DATASETS to the folder that holds them)");
    None
}
