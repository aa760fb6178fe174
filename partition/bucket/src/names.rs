//! Names of the objects that say what is at a place.

/// The name of the listing's object.
pub const LISTING: &str = "kith-files.json";

/// The listing of a push that has not ended.
pub(crate) const DRAFT: &str = "kith-files.draft.json";
