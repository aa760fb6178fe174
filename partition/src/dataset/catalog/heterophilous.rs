//! Entries of the heterophilous datasets. Numbers of nodes of the splits: half of the nodes train, a quarter validates.

use super::entry::{Dataset, Download, Published, Reader};
use crate::dataset::{heterophilous, treatment::Treatment};

macro_rules! entry {
    ($name:literal, $file:literal, $title:literal, $about:literal, $published:expr) => {
        Dataset {
            name: $name,
            title: $title,
            about: $about,
            published: $published,
            raw_dim: $published.dim,
            read: Reader::Whole(|dir, limit| heterophilous::read(dir, $name, limit)),
            treatment: Treatment::UNDIRECTED,
            downloads: &[Download::at(
                concat!("https://github.com/yandex-research/heterophilous-graphs/raw/main/data/", $file),
                $file,
            )],
        }
    };
}

pub(super) const ROMAN_EMPIRE: Dataset = entry!(
    "roman-empire",
    "roman_empire.npz",
    "Roman Empire",
    "words of an article and their order; word vectors; 18 roles in a sentence",
    counts(22662, 32927, 300, 18)
);
pub(super) const AMAZON_RATINGS: Dataset = entry!(
    "amazon-ratings",
    "amazon_ratings.npz",
    "Amazon Ratings",
    "products bought together; averaged word vectors; 5 classes of ratings",
    counts(24492, 93050, 300, 5)
);
pub(super) const MINESWEEPER: Dataset = entry!(
    "minesweeper",
    "minesweeper.npz",
    "Minesweeper",
    "cells of a grid and their neighbors; numbers of mines nearby; mine or not",
    counts(10_000, 39402, 7, 2)
);
pub(super) const TOLOKERS: Dataset = entry!(
    "tolokers",
    "tolokers.npz",
    "Tolokers",
    "workers who shared a task; profiles; banned or not",
    counts(11758, 519_000, 10, 2)
);
pub(super) const QUESTIONS: Dataset = entry!(
    "questions",
    "questions.npz",
    "Questions",
    "users who answered each other; averaged word vectors; active or not",
    counts(48921, 153_540, 301, 2)
);

const fn counts(n_nodes: u64, n_edges: u64, dim: u32, n_classes: u32) -> Published {
    let (n_train, n_valid) = (n_nodes / 2, n_nodes / 4);
    Published { n_nodes, n_edges, dim, n_classes, n_train, n_valid, n_test: n_nodes - n_train - n_valid }
}
