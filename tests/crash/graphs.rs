//! Stores and partitioned graphs: import, partition, copies and moves of shards.

use std::{fs, path::Path};

use kith_store::{Cluster, Graph, StoreError};

use super::{
    case::{Case, DONE, all_files, command, foreign, in_memory, text},
    recording::{Recorder, Tree},
};
use crate::kith::kith;

/// A store or a partitioned graph that appears by one rename: it is whole, or it is not there.
pub(super) fn whole_or_absent(dir: &Path, promised: u64) -> Result<(), String> {
    if !dir.exists() {
        return if promised == DONE { Err("what was promised is not there".to_owned()) } else { Ok(()) };
    }
    opens_whole(dir)
}

pub(super) fn opens_whole(dir: &Path) -> Result<(), String> {
    let opened = match Graph::open(dir) {
        Err(StoreError::Cut { .. }) => Cluster::open(dir).map(drop),
        opened => opened.map(drop),
    };
    opened.map_err(|error| format!("it is not opened: {error}"))?;
    verify_whole(dir)
}

/// Verifies a folder that the reader opens.
pub(super) fn verify_whole(dir: &Path) -> Result<(), String> {
    let mut dirs = vec![dir.to_owned()];
    if let Ok(cluster) = Cluster::open(dir) {
        dirs.extend((0..cluster.n_shards()).map(|shard| dir.join(format!("shard-{shard}"))));
    }
    for dir in dirs {
        let verified = kith_store::verify(&dir, &|_| ()).map_err(|error| format!("it is not verified: {error}"))?;
        if !verified.findings.is_empty() {
            return Err(format!("it is opened and damaged: {:?}", verified.findings));
        }
    }
    Ok(())
}

/// Tables of a small graph.
fn write_tables(dir: &Path) {
    let mut edges = "from,to\n".to_owned();
    let (mut features, mut labels) = ("id,a,b,c\n".to_owned(), "id,class\n".to_owned());
    for node in 0..40 {
        for step in [1, 3, 7] {
            edges.push_str(&format!("n{node},n{}\n", (node + step) % 40));
        }
        features.push_str(&format!("n{node},0.{node},{},1.5\n", node % 5));
        labels.push_str(&format!("n{node},c{}\n", node % 3));
    }
    for (name, table) in [("edges.csv", edges), ("features.csv", features), ("labels.csv", labels)] {
        fs::write(dir.join(name), table).unwrap();
    }
}

pub(super) fn import(f: impl FnOnce(&Recorder, &Case<'_>)) {
    let inputs = in_memory();
    write_tables(inputs.path());
    let own = |name: &str| inputs.path().join(name).to_str().unwrap().to_owned();
    let command = |root: &Path| {
        let (edges, features, labels) = (own("edges.csv"), own("features.csv"), own("labels.csv"));
        let out = root.join("stores/new/mine");
        let tables = ["--edges", &edges, "--features", &features, "--labels", &labels, "--split", "0.6/0.2/0.2"];
        command(&[&["data", "import"], &tables[..], &["--symmetrize", "--out", text(&out)]].concat())
    };
    let check = |root: &Path, promised| whole_or_absent(&root.join("stores/new/mine"), promised);
    let result = |root: &Path| all_files(&root.join("stores"));
    let case =
        Case { before: foreign(["", "stores"]), is_done: "already exists", ..Case::new(&command, &check, &result) };
    f(&Recorder::new(), &case);
}

#[test]
fn an_import_survives_a_loss_of_power() {
    import(|recorder, case| case.survives_power_loss(recorder, 12));
}

#[test]
fn an_import_survives_faults_of_the_disk() {
    import(|recorder, case| case.survives_faults(recorder, 8));
}

/// A store of a generated graph.
pub(super) fn generate(out: &Path, nodes: &str, seed: &str) {
    let options = ["--nodes", nodes, "--degree", "4", "--classes", "3", "--dim", "4", "--seed", seed];
    kith([&["data", "generate", "power-law", "--out", text(out)], &options[..]].concat());
}

pub(super) fn partition(f: impl FnOnce(&Recorder, &Case<'_>)) {
    let inputs = in_memory();
    let store = inputs.path().join("store");
    generate(&store, "60", "7");
    let command = |root: &Path| {
        let out = root.join("graphs/mine.shards");
        let options = ["--shards", "3", "--method", "hash", "--fanouts", "3,3", "--batch-size", "8"];
        command(&[&["partition", text(&store), "--out", text(&out)], &options[..]].concat())
    };
    let check = |root: &Path, promised| whole_or_absent(&root.join("graphs/mine.shards"), promised);
    let result = |root: &Path| all_files(&root.join("graphs"));
    let case = Case { is_done: "already exists", ..Case::new(&command, &check, &result) };
    f(&Recorder::new(), &case);
}

#[test]
fn a_partition_survives_a_loss_of_power() {
    partition(|recorder, case| case.survives_power_loss(recorder, 12));
}

#[test]
fn a_partition_survives_faults_of_the_disk() {
    partition(|recorder, case| case.survives_faults(recorder, 8));
}

/// Shards that are copied or moved to another folder.
pub(super) fn transfer(kind: &str, f: impl FnOnce(&Recorder, &Case<'_>)) {
    let inputs = in_memory();
    let own = |name: &str| inputs.path().join(name);
    generate(&own("store"), "60", "7");
    fs::create_dir(own("root")).unwrap();
    let shards = own("root").join("from.shards");
    kith(["partition", text(&own("store")), "--shards", "3", "--method", "hash", "--out", text(&shards)]);
    let mut before = foreign([""]);
    before.0.extend(Tree::read(&own("root")).0);
    let command = |root: &Path| {
        let (from, to) = (root.join("from.shards"), root.join("disk/to.shards"));
        command(&["shards", kind, text(&from), "--shards", "0,2", "--to", text(&to)])
    };
    // Each shard is whole in one of the folders; with its name, it is whole in each.
    let check = |root: &Path, promised| {
        let (from, to) = (root.join("from.shards"), root.join("disk/to.shards"));
        for shard in 0..3 {
            let places = [&from, &to].map(|dir| dir.join(format!("shard-{shard}")));
            for place in places.iter().filter(|place| place.exists()) {
                verify_whole(place)?;
            }
            if !places.iter().any(|place| place.exists()) {
                return Err(format!("shard {shard} is lost"));
            }
            if promised == DONE && shard != 1 && !places[1].exists() {
                return Err(format!("shard {shard} is not there"));
            }
        }
        Cluster::open(&from).map_err(|error| format!("the source is not opened: {error}"))?;
        match Cluster::open(&to) {
            Ok(_) => Ok(()),
            Err(_) if promised < DONE && !to.join("manifest.json").exists() => Ok(()),
            Err(error) => Err(format!("the destination is not opened: {error}")),
        }
    };
    let result = |root: &Path| all_files(root);
    let case = Case { before, ..Case::new(&command, &check, &result) };
    f(&Recorder::new(), &case);
}

#[test]
fn copies_and_moves_of_shards_survive_a_loss_of_power() {
    transfer("copy", |recorder, case| case.survives_power_loss(recorder, 8));
    transfer("move", |recorder, case| case.survives_power_loss(recorder, 8));
}

#[test]
fn copies_and_moves_of_shards_survive_faults_of_the_disk() {
    transfer("copy", |recorder, case| case.survives_faults(recorder, 4));
    transfer("move", |recorder, case| case.survives_faults(recorder, 4));
}
