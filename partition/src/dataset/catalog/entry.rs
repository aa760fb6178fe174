//! Entries of the catalog.

use std::path::Path;

use crate::{
    Result,
    dataset::{streamed::StreamedGraph, treatment::Treatment},
    raw::RawGraph,
};

/// One named dataset.
#[derive(Debug)]
pub struct Dataset {
    /// Name in commands.
    pub name: &'static str,
    /// Display name.
    pub title: &'static str,
    /// Nodes, edges and labels of the dataset, in a few words.
    pub about: &'static str,
    /// Published counts.
    pub published: Published,
    /// Features per node in the files, where preprocessing shortens them to `published.dim`.
    pub raw_dim: u32,
    /// Reads its files in a folder.
    pub(crate) read: Reader,
    /// Preprocessing of the dataset.
    pub(crate) treatment: Treatment,
    /// The files its reader reads, where they are and how to know them.
    pub downloads: &'static [Download],
}

/// Reader of a dataset's files.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    /// Reads the whole graph, refusing files that unpack to more bytes than the limit.
    Whole(fn(&Path, u64) -> Result<RawGraph>),
    /// Reads the nodes within a memory limit, and opens edges and features.
    Streamed(fn(&Path, u64) -> Result<StreamedGraph>),
}

/// Published counts of a dataset: those of the paper, or of its authors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Nodes.
    pub n_nodes: u64,
    /// Edges, counted as the paper counted them: each pair of directions once, except in directed graphs.
    pub n_edges: u64,
    /// Length of a row, after the paper shortened long ones to 500.
    pub dim: u32,
    /// Classes.
    pub n_classes: u32,
    /// Nodes trained on.
    pub n_train: u64,
    /// Nodes that choose settings.
    pub n_valid: u64,
    /// Nodes only measured.
    pub n_test: u64,
}

impl Published {
    /// Counts of nodes and edges, of features and classes, and of the split.
    pub(super) const fn new(whole: [u64; 2], row: [u32; 2], split: [u64; 3]) -> Published {
        let [n_nodes, n_edges] = whole;
        let [dim, n_classes] = row;
        let [n_train, n_valid, n_test] = split;
        Published { n_nodes, n_edges, dim, n_classes, n_train, n_valid, n_test }
    }
}

/// One file to download.
#[derive(Clone, Copy, Debug)]
pub struct Download {
    /// Its public address.
    pub url: &'static str,
    /// Its name in the folder of the dataset.
    pub file: &'static str,
    /// Expected length and hashes.
    pub check: Check,
    /// Members to unpack, if it is an archive that the reader does not read itself.
    pub unpack: Option<Unpack>,
}

/// Expected length and hashes of a file. Holds only values published for exactly this file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Check {
    /// Its length.
    pub n_bytes: Option<u64>,
    /// Its SHA-256, in hexadecimal.
    pub sha256: Option<&'static str>,
    /// Its id in git, in hexadecimal.
    pub git_blob: Option<&'static str>,
}

/// Instructions for unpacking an archive.
#[derive(Clone, Copy, Debug)]
pub struct Unpack {
    /// Its format.
    pub archive: Archive,
    /// Well above what its members take when unpacked; more than this is refused.
    pub most_bytes: u64,
    /// The members to take; others stay in the archive.
    pub members: &'static [Member],
}

/// Format of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Archive {
    /// A zip.
    Zip,
    /// A tar inside a gzip.
    TarGz,
}

/// One member to take out of an archive.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Its path in the archive.
    pub inside: &'static str,
    /// Its path in the folder of the dataset.
    pub file: &'static str,
    /// Expected length and hashes.
    pub check: Check,
}

const UNKNOWN: Check = Check { n_bytes: None, sha256: None, git_blob: None };

impl Download {
    pub(super) const fn at(url: &'static str, file: &'static str) -> Download {
        Download { url, file, check: UNKNOWN, unpack: None }
    }

    pub(super) const fn bytes(mut self, n_bytes: u64) -> Download {
        self.check.n_bytes = Some(n_bytes);
        self
    }

    pub(super) const fn sha256(mut self, hash: &'static str) -> Download {
        self.check.sha256 = Some(hash);
        self
    }

    pub(super) const fn git_blob(mut self, id: &'static str) -> Download {
        self.check.git_blob = Some(id);
        self
    }

    pub(super) const fn unzip(mut self, most_bytes: u64, members: &'static [Member]) -> Download {
        self.unpack = Some(Unpack { archive: Archive::Zip, most_bytes, members });
        self
    }
}

impl Member {
    pub(super) const fn at(inside: &'static str, file: &'static str) -> Member {
        Member { inside, file, check: UNKNOWN }
    }

    pub(super) const fn git_blob(mut self, id: &'static str) -> Member {
        self.check.git_blob = Some(id);
        self
    }
}
