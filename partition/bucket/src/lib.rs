//! Folders in object storage, by URL: stores, partitioned graphs, runs, reports.
//!
//! A folder that was [`push`]ed is one object per file and, written last, a [`Listing`] with the name, length and
//! checksums of every file. [`pull`] follows this listing, never the bucket's own. So it works over plain HTTP, sees a
//! folder either complete or not at all, and verifies every byte that it writes. A [`Mirror`] keeps a folder that still
//! changes: each time it puts new files under unique names, then a listing that names them, so readers always see one
//! consistent state.

mod checksums;
mod error;
mod listing;
mod mirror;
mod names;
mod own;
mod place;
mod pull;
mod push;
mod runtime;
#[cfg(test)]
mod simulation;
mod tag;
mod upload;

pub use crate::{
    error::{BucketError, Result},
    listing::{FileEntry, Listing},
    mirror::Mirror,
    names::LISTING,
    place::{Place, is_url},
    pull::{Pull, Pulled, Wanted},
    push::{Push, Pushed},
};
