use std::{fs, num::NonZeroU32, path::PathBuf};

use kith_store::{Cluster, Dtype, Graph, Verify};

use super::*;
use crate::{
    assign::Method,
    generate::{
        EdgeAmount, PowerLaw,
        testing::{PLAIN, open},
    },
    progress::Quiet,
};

fn store(out: &Path, is_directed: bool, run_key: u64) -> Graph {
    let edges = EdgeAmount::AverageDegree(5.0);
    open(&PowerLaw { n_nodes: 500, edges, is_directed, dim: 6, dtype: Dtype::F16, run_key, ..PLAIN }, out)
}

fn options(method: Method, n_shards: u32) -> PartitionOptions {
    PartitionOptions {
        assign: AssignOptions { n_shards, method, balance: Balance::All, run_key: 1 },
        inclusion: Some(InclusionOptions { fanouts: vec![NonZeroU32::new(3), None], seeds_per_step: 16 }),
    }
}

fn findings(dir: &Path, store: Option<&Graph>) -> Vec<String> {
    verify_cluster(dir, store, None, &|_| ()).unwrap().findings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_cluster_is_whole_and_says_how_it_was_made() {
    let temp = tempfile::tempdir().unwrap();
    for (is_directed, method, n_shards) in
        [(false, Method::Metis, 3), (true, Method::Stream, 4), (true, Method::Hash, 40), (false, Method::Range, 1)]
    {
        let graph = store(&temp.path().join(format!("store-{method}")), is_directed, 5);
        let out = temp.path().join(format!("cluster-{method}"));
        let made = partition(&graph, &out, &options(method, n_shards), &Quiet).unwrap();
        assert_eq!(made.verified.findings, []);
        assert_eq!(made.verified.n_bytes, n_bytes(&out, None).unwrap() - checksum_bytes(&out));
        let cluster = Cluster::open(&out).unwrap();
        assert_eq!(cluster.entry().n_cut_edges, made.report.n_cut, "two counts of the cut");
        assert_eq!(cluster.entry().method, method.to_string());
        assert_eq!(cluster.manifest().provenance.options["fanouts"], "3,all");
        assert_eq!(cluster.inclusion().unwrap().unwrap().len(), 500);
        assert_eq!(findings(&out, None), Vec::<String>::new(), "without the store");
        let error = partition(&graph, &out, &options(method, n_shards), &Quiet).unwrap_err().to_string();
        assert!(error.contains("already exists"), "{error}");
    }
}

/// Checksums are read, and not counted.
fn checksum_bytes(dir: &Path) -> u64 {
    let cluster = Cluster::open(dir).unwrap();
    let folders = (0..cluster.n_shards()).map(|shard| cluster.shard_dir(shard)).chain([dir.to_owned()]);
    folders.map(|folder| fs::metadata(folder.join("checksums.u32")).unwrap().len()).sum()
}

#[test]
fn a_flipped_byte_is_found_wherever_it_is() {
    let temp = tempfile::tempdir().unwrap();
    let graph = store(&temp.path().join("store"), true, 5);
    let out = temp.path().join("cluster");
    partition(&graph, &out, &options(Method::Stream, 3), &Quiet).unwrap();
    let mut n_columns = 0;
    for folder in [out.clone(), out.join("shard-0"), out.join("shard-2")] {
        for path in columns_of(&folder) {
            let whole = fs::read(&path).unwrap();
            let mut damaged = whole.clone();
            *damaged.last_mut().unwrap() ^= 1;
            fs::write(&path, &damaged).unwrap();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let found = findings(&out, Some(&graph));
            assert!(found.iter().any(|finding| finding.contains(&name) || name == "checksums"), "{name}: {found:?}");
            if folder != out {
                let shard = folder.file_name().unwrap().to_string_lossy().into_owned();
                assert!(found[0].starts_with(&shard), "{found:?}");
            }
            fs::write(&path, &whole).unwrap();
            n_columns += 1;
        }
    }
    assert!(n_columns > 20, "{n_columns} columns");
    assert_eq!(findings(&out, Some(&graph)), Vec::<String>::new());
}

fn columns_of(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.is_file() && path.extension().is_some_and(|ending| ending != "json")).collect()
}

#[test]
fn shards_that_do_not_belong_together_are_found() {
    let temp = tempfile::tempdir().unwrap();
    let graph = store(&temp.path().join("store"), false, 5);
    let other = store(&temp.path().join("other"), false, 6);
    let [one, two] = ["one", "two"].map(|name| temp.path().join(name));
    partition(&graph, &one, &options(Method::Hash, 3), &Quiet).unwrap();
    partition(&other, &two, &options(Method::Hash, 3), &Quiet).unwrap();
    let error = verify_cluster(&one, Some(&other), None, &|_| ()).unwrap_err().to_string();
    assert!(error.contains("cut from another store"), "{error}");
    // A whole shard of another cluster in its place.
    fs::rename(one.join("shard-1"), temp.path().join("kept")).unwrap();
    let found = findings(&one, None);
    assert_eq!(found, ["shard-1, folder: not in this folder"]);
    fs::rename(two.join("shard-1"), one.join("shard-1")).unwrap();
    let found = findings(&one, None);
    assert!(found.len() == 1 && found[0].contains("not shard 1 of this partitioned graph"), "{found:?}");
}

/// Checksums cannot detect a partitioned graph that was written wrong; a comparison with the store does.
#[test]
fn a_cluster_of_other_values_is_found_beside_the_store() {
    let temp = tempfile::tempdir().unwrap();
    let graph = store(&temp.path().join("store"), false, 5);
    let out = temp.path().join("cluster");
    partition(&graph, &out, &options(Method::Hash, 2), &Quiet).unwrap();
    let whole = Cluster::open(&out).unwrap();
    // The same store but for one row's value, with the manifest of the first: what a damaged disk under a writer makes.
    let copy = temp.path().join("copy");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(graph.dir()).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    for (column, name) in [("features.f16", "features"), ("labels.u32", "labels"), ("split.seed-5.u8", "splits")] {
        let path = copy.join(column);
        let kept = fs::read(&path).unwrap();
        let mut changed = kept.clone();
        changed[if name == "features" { 100 } else { 0 }] ^= 1;
        fs::write(&path, changed).unwrap();
        let changed = Graph::open_with(&copy, Verify::Off).unwrap();
        let found = findings(whole.dir(), Some(&changed));
        assert!(found.len() == 1 && found[0].contains(name) && found[0].contains("differs"), "{name}: {found:?}");
        fs::write(&path, kept).unwrap();
    }
}
