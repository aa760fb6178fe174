//! Folders of files in object storage, by URL: stores, clusters, runs, reports.
//!
//! A folder that was [`push`]ed is one object per file and, written last, a [`Listing`]: the name, length and checksums of
//! every file. [`pull`] follows the listing, never the bucket's own, so that it works over plain HTTP, sees a folder whole or
//! not at all, and knows every byte that it writes. A folder that still changes is kept by a [`Mirror`]: each time it puts
//! what is new under names of their own, then the listing that names them; whoever reads it finds one moment of the folder.

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
