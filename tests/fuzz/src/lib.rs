//! Fuzz targets: readers of foreign bytes, each called with bytes that may be anything. A target panics if its reader breaks a promise.
//!
//! Tests call the targets with the packed inputs of `corpus/` and with drawn mutations of them; the package in `libfuzzer/` calls them from
//! libFuzzer, which sees the branches that an input takes.

mod corpus;
mod partition;
mod sampler;
mod scratch;
mod trainer;

pub use crate::corpus::inputs;
use crate::{
    partition::{archives, arrays, column, html, lines, listing, manifest, npz, pickle, tables},
    sampler::{answers, frames, http2, requests},
    trainer::{checkpoint, messages, pieces, report, run_file},
};

/// A reader of foreign bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, as of its corpus and of its program for libFuzzer.
    pub name: &'static str,
    /// Reads the bytes and checks what comes of it.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 21] = [
    Target { name: "answers", run: answers::run },
    Target { name: "checkpoint", run: checkpoint::run },
    Target { name: "column", run: column::run },
    Target { name: "csv", run: tables::csv },
    Target { name: "frames", run: frames::run },
    Target { name: "html", run: html::run },
    Target { name: "http2", run: http2::run },
    Target { name: "lines", run: lines::run },
    Target { name: "listing", run: listing::run },
    Target { name: "manifest", run: manifest::run },
    Target { name: "messages", run: messages::run },
    Target { name: "npy", run: arrays::run },
    Target { name: "npz", run: npz::run },
    Target { name: "parquet", run: tables::parquet },
    Target { name: "pickle", run: pickle::run },
    Target { name: "pieces", run: pieces::run },
    Target { name: "report", run: report::run },
    Target { name: "requests", run: requests::run },
    Target { name: "run_file", run: run_file::run },
    Target { name: "tar", run: archives::tar },
    Target { name: "zip", run: archives::zip },
];

/// The target of this name.
///
/// # Panics
///
/// Panics if there is none.
pub fn target(name: &str) -> Target {
    TARGETS.into_iter().find(|target| target.name == name).unwrap_or_else(|| panic!("there is no target {name}"))
}
