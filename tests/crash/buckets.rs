//! Folders in object storage: pushes and pulls.

use std::{collections::BTreeMap, path::Path};

use kith_bucket::{BucketError, LISTING, Place, Pull, Wanted};

use super::{
    case::{Case, DONE, all_files, command, foreign, in_memory, text},
    graphs::{generate, opens_whole, verify_whole},
    recording::{Bytes, Recorder, Tree},
};
use crate::kith::kith;

/// The folder at a place, pulled with the real reader; `None` if nothing was pushed there.
pub(super) fn pulled(place: &Path) -> Result<Option<tempfile::TempDir>, String> {
    let temp = in_memory();
    let place = Place::parse(&format!("file://{}", place.display())).unwrap();
    match Pull::new(&place, temp.path(), &Wanted::All).and_then(|pull| pull.run(&|_| ())) {
        Err(BucketError::NotPushed { .. }) => Ok(None),
        Err(error) => Err(format!("it is not pulled: {error}")),
        Ok(_) => Ok(Some(temp)),
    }
}

/// Files of a folder that was pulled, without its listing.
fn files_at(place: &Path) -> BTreeMap<String, Bytes> {
    let Ok(Some(temp)) = pulled(place) else { return BTreeMap::new() };
    let mut files = all_files(temp.path());
    files.remove(LISTING);
    files
}

const BUCKET: &str = "bucket/graphs/mine.shards";

/// A push of a partitioned graph, to a place that holds another one if `replaces`.
pub(super) fn push(replaces: bool, f: impl FnOnce(&Recorder, &Case<'_>)) {
    let inputs = in_memory();
    let own = |name: &str| inputs.path().join(name);
    for (name, seed) in [("new", "7"), ("old", "8")] {
        let (store, out) = (own(&format!("{name}.store")), own(name));
        generate(&store, "60", seed);
        kith(["partition", text(&store), "--shards", "2", "--method", "hash", "--out", text(&out)]);
    }
    let mut before = foreign([""]);
    if replaces {
        let root = in_memory();
        kith(["data", "push", text(&own("old")), &format!("file://{}", root.path().join(BUCKET).display())]);
        before.0.extend(Tree::read(root.path()).0);
    }
    let command = |root: &Path| {
        let url = format!("file://{}", root.join(BUCKET).display());
        let more: &[&str] = if replaces { &["--replace"] } else { &[] };
        command(&[&["data", "push", text(&own("new")), &url], more].concat())
    };
    let contents = [all_files(&own("new")), all_files(&own("old"))];
    let check = |root: &Path, promised| match pulled(&root.join(BUCKET))? {
        None if promised == DONE || replaces => Err("what was promised is not there".to_owned()),
        None => Ok(()),
        Some(temp) => {
            opens_whole(temp.path())?;
            let mut found = all_files(temp.path());
            found.remove(LISTING);
            let allowed = if promised == DONE || !replaces { &contents[..1] } else { &contents[..] };
            if allowed.contains(&found) { Ok(()) } else { Err("another folder is there".to_owned()) }
        }
    };
    let result = |root: &Path| files_at(&root.join(BUCKET));
    let case = Case { before, ..Case::new(&command, &check, &result) };
    f(&Recorder::new(), &case);
}

#[test]
fn a_push_survives_a_loss_of_power() {
    push(false, |recorder, case| case.survives_power_loss(recorder, 12));
}

#[test]
fn a_push_that_replaces_survives_a_loss_of_power() {
    push(true, |recorder, case| case.survives_power_loss(recorder, 12));
}

#[test]
fn a_push_survives_faults_of_the_disk() {
    push(false, |recorder, case| case.survives_faults(recorder, 6));
    push(true, |recorder, case| case.survives_faults(recorder, 3));
}

pub(super) fn pull(f: impl FnOnce(&Recorder, &Case<'_>)) {
    let inputs = in_memory();
    let own = |name: &str| inputs.path().join(name);
    generate(&own("store"), "60", "7");
    kith(["partition", text(&own("store")), "--shards", "2", "--method", "hash", "--out", text(&own("shards"))]);
    let url = format!("file://{}", own("bucket").display());
    kith(["data", "push", text(&own("shards")), &url]);
    let command = |root: &Path| {
        let out = root.join("graphs/new/mine.shards");
        command(&["data", "pull", &url, text(&out)])
    };
    // Files appear one by one, and manifests last: what opens is whole, as is every shard with a manifest.
    let check = |root: &Path, promised| {
        let dir = root.join("graphs/new/mine.shards");
        for folder in [dir.join("shard-0"), dir.join("shard-1"), dir] {
            if folder.join("manifest.json").exists() {
                verify_whole(&folder)?;
            } else if promised == DONE {
                return Err("what was promised is not there".to_owned());
            }
        }
        Ok(())
    };
    let result = |root: &Path| all_files(&root.join("graphs"));
    let case = Case::new(&command, &check, &result);
    f(&Recorder::new(), &case);
}

#[test]
fn a_pull_survives_a_loss_of_power() {
    pull(|recorder, case| case.survives_power_loss(recorder, 12));
}

#[test]
fn a_pull_survives_faults_of_the_disk() {
    pull(|recorder, case| case.survives_faults(recorder, 8));
}
