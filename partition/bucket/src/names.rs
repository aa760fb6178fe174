//! Names of the objects that describe a folder.

/// The name of the listing's object.
pub const LISTING: &str = "kith-files.json";

/// The listing of a push that has not ended.
pub(crate) const DRAFT: &str = "kith-files.draft.json";
