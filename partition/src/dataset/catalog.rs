//! Catalog of the named datasets, including the 17 of the paper: description, published counts and download addresses.

mod check;
mod entry;
mod heterophilous;
mod ogb;
mod table;

pub(crate) use self::entry::Reader;
pub use self::{
    check::difference,
    entry::{Archive, Check, Dataset, Download, Member, Published, Unpack},
    table::CATALOG,
};

use crate::{PartitionError, Result};

/// The dataset of this name.
pub fn find(name: &str) -> Option<&'static Dataset> {
    CATALOG.iter().find(|dataset| dataset.name == name)
}

/// The dataset of this name, or a sentence that says which name was perhaps meant.
pub fn get(name: &str) -> Result<&'static Dataset> {
    find(name).ok_or_else(|| {
        let hint = match suggest(name) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("there are {}", CATALOG.iter().map(|dataset| dataset.name).collect::<Vec<_>>().join(", ")),
        };
        PartitionError::Option(format!("no dataset is called {name:?}: {hint}"))
    })
}

/// The name that was perhaps meant, if any is near.
pub fn suggest(name: &str) -> Option<&'static str> {
    let plain = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    // A name is a word. Longer text is not a slip of the hand, and the distance costs its length.
    let meant = plain(name.get(..32).unwrap_or(name));
    if meant.len() < 2 || meant.len() > 32 {
        return None;
    }
    let distance = |dataset: &Dataset| {
        let known = plain(dataset.name);
        if known.contains(&meant) { known.len() - meant.len() } else { 2 * strsim::levenshtein(&known, &meant) }
    };
    let (cost, near) = CATALOG.iter().map(|dataset| (distance(dataset), dataset.name)).min()?;
    (cost <= 2 + meant.len() / 2).then_some(near)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::dataset::real_files;

    #[test]
    fn every_dataset_of_the_paper_is_here_once() {
        let names: Vec<_> = CATALOG.iter().map(|dataset| dataset.name).collect();
        let paper = "cora citeseer pubmed cora-ml cora-full dblp cs physics photo computers wiki-cs chameleon crocodile \
                     four-univ flickr ppi ogbn-arxiv";
        let missing: Vec<&str> = paper.split(' ').filter(|name| !names.contains(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "a name stands twice");
    }

    #[test]
    fn the_split_of_a_dataset_fits_into_it() {
        for dataset in CATALOG {
            let Published { n_nodes, n_train, n_valid, n_test, .. } = dataset.published;
            assert!(n_train + n_valid + n_test <= n_nodes, "{}", dataset.name);
            assert!(dataset.published.dim <= dataset.raw_dim, "{}", dataset.name);
        }
    }

    #[test]
    fn addresses_and_hashes_are_well_formed() {
        for dataset in CATALOG {
            let members = |download: &Download| download.unpack.map_or(&[][..], |unpack| unpack.members);
            let mut files = HashSet::new();
            for download in dataset.downloads {
                assert!(download.url.starts_with("https://") || download.url.starts_with("http://"));
                assert!(download.file.ends_with(".zip") == download.unpack.is_some(), "{}", download.file);
                let checks = members(download).iter().map(|member| (member.file, member.check));
                for (file, check) in checks.chain([(download.file, download.check)]) {
                    assert!(files.insert(file), "{file} twice in {}", dataset.name);
                    assert!(!file.starts_with('/') && !file.contains(".."), "{file}");
                    for (hash, len) in [(check.sha256, 64), (check.git_blob, 40)] {
                        let is_hex = |hash: &str| hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                        assert!(hash.is_none_or(|hash| hash.len() == len && is_hex(hash)), "{file}");
                    }
                }
                for member in members(download) {
                    assert!(member.inside.ends_with(member.file), "{}", member.inside);
                }
            }
        }
    }

    #[test]
    fn real_planetoid_files_are_the_ones_in_the_catalog() {
        for name in ["cora", "citeseer", "pubmed"] {
            let Some(folder) = real_files(name) else { continue };
            for download in find(name).expect("it is in the catalog").downloads {
                let difference = difference(&folder.join(download.file), &download.check);
                assert_eq!(difference.expect("the file is there"), None, "{}", download.file);
            }
        }
    }

    #[test]
    fn near_names_are_suggested() {
        for (typed, meant) in [
            ("Cora", "cora"),
            ("cora_ml", "cora-ml"),
            ("pubmd", "pubmed"),
            ("arxiv", "ogbn-arxiv"),
            ("wikics", "wiki-cs"),
            ("citseer", "citeseer"),
            ("four_univ", "four-univ"),
            ("fliker", "flickr"),
            ("computer", "computers"),
            ("products", "ogbn-products"),
            ("papers100m", "ogbn-papers100M"),
        ] {
            assert_eq!(suggest(typed), Some(meant), "{typed}");
        }
        for typed in ["", "x", "reddit", "proteins", "-", "éèê", &"cora".repeat(100)] {
            assert_eq!(suggest(typed), None, "{typed}");
        }
        let error = get("pubmd").expect_err("there is none").to_string();
        assert_eq!(error, "no dataset is called \"pubmd\": did you mean pubmed?");
        assert!(get("reddit").expect_err("there is none").to_string().contains("there are cora, citeseer"));
    }
}
