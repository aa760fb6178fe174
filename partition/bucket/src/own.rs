//! Proof of origin: decides which objects Kith may delete.
//!
//! Every writer of a changing folder draws a tag, and the listing names the tag before the writer's first upload. An
//! object whose name ends in a tag of the listing's writers was put by one of them. All other objects belong to others,
//! and so does everything below a prefix with a listing of its own.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::{Error, ObjectStoreExt};

use crate::{
    error::Result,
    names::{DRAFT, LISTING},
    place::Place,
    tag::tag_of,
    upload::FILES_AT_ONCE,
};

/// Removes objects that a listing of this place named. An object whose tag is not one of `writers` is removed only where
/// no folder above it, within the place, has a listing of its own.
pub(crate) async fn remove_listed(place: &Place, objects: &[&str], writers: &[String]) -> Result<()> {
    let mut is_foreign: BTreeMap<&str, bool> = BTreeMap::new();
    for object in objects {
        let is_ours = tag_of(object).is_some_and(|tag| writers.iter().any(|writer| writer == tag));
        if is_ours {
            continue;
        }
        for folder in folders_of(object) {
            if !is_foreign.contains_key(folder) {
                is_foreign.insert(folder, has_listing(place, folder, objects).await?);
            }
        }
    }
    let own = objects.iter().filter(|object| !folders_of(object).any(|folder| is_foreign.get(folder) == Some(&true)));
    stream::iter(own).map(|object| place.remove(object)).buffer_unordered(FILES_AT_ONCE).try_collect::<()>().await
}

/// Removes objects that killed writers left unlisted: those with one of their `tags`. A writer that still runs can no
/// longer list them.
pub(crate) async fn remove_unlisted(
    place: &Place,
    listed: &BTreeSet<&str>,
    tags: &[String],
) -> object_store::Result<()> {
    let prefix = place.prefix();
    let (mut found, mut foreign) = (Vec::new(), BTreeSet::new());
    let mut objects = place.store().list(Some(prefix));
    while let Some(object) = objects.try_next().await? {
        let parts = object.location.prefix_match(prefix).into_iter().flatten();
        let name = parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/");
        if listed.contains(name.as_str()) {
            continue;
        }
        match name.rsplit_once('/') {
            Some((folder, LISTING | DRAFT)) => {
                foreign.insert(folder.to_owned());
            }
            _ if tag_of(&name).is_some_and(|tag| tags.iter().any(|own| own == tag)) => {
                found.push((name, object.location));
            }
            _ => {}
        }
    }
    for (name, location) in &found {
        if !folders_of(name).any(|folder| foreign.contains(folder)) {
            place.store().delete(location).await?;
        }
    }
    Ok(())
}

/// Every folder above an object, within its place: `a` and `a/b` for `a/b/c`.
fn folders_of(object: &str) -> impl Iterator<Item = &str> {
    object.match_indices('/').map(|(end, _)| &object[..end])
}

/// Tests if a folder has a listing that is not itself one of `objects`.
async fn has_listing(place: &Place, folder: &str, objects: &[&str]) -> Result<bool> {
    for name in [LISTING, DRAFT] {
        let name = format!("{folder}/{name}");
        if objects.contains(&name.as_str()) {
            continue;
        }
        match place.store().head(&place.path(&name)?).await {
            Ok(_) => return Ok(true),
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(place.error(&name, &error)),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_those_above_an_object() {
        assert_eq!(folders_of("a/b/c").collect::<Vec<_>>(), ["a", "a/b"]);
        assert_eq!(folders_of("c").count(), 0);
    }
}
