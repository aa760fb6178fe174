//! Partitions a store and reads the result.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use kith_store::{
    Cluster, Contents, Cut, Dtype, FeatureLayout, FeaturesEntry, Graph, LabelKind, LabelsEntry, Owners, Provenance,
    Shard, StoreError, StoreWriter, Verify, verify, write_cluster,
};

const N_NODES: u64 = 131; // Not a multiple of a word.

/// A directed store: v → v/2, v → 3v mod n, every third node without a list.
fn write_store(out: &Path) -> Graph {
    let mut edges: Vec<(u64, u64)> = Vec::new(); // (destination, source)
    for v in 0..N_NODES {
        for u in [v / 2, 3 * v % N_NODES] {
            if u % 3 != 0 {
                edges.push((u, v));
            }
        }
    }
    edges.sort_unstable();
    let mut reverse: Vec<(u64, u64, u32)> = (0..).zip(&edges).map(|(edge, (u, v))| (*v, *u, edge)).collect();
    reverse.sort_unstable();
    let indptr = |rows: Vec<u64>| -> Vec<u64> {
        (0..=N_NODES).map(|row| rows.partition_point(|other| *other < row) as u64).collect()
    };
    let mut writer = StoreWriter::create(out).unwrap();
    writer.write("indptr", &indptr(edges.iter().map(|(row, _)| *row).collect())).unwrap();
    writer.write("indices", &edges.iter().map(|(_, id)| *id as u32).collect::<Vec<_>>()).unwrap();
    writer.write("out_indptr", &indptr(reverse.iter().map(|(row, ..)| *row).collect())).unwrap();
    writer.write("out_indices", &reverse.iter().map(|(_, id, _)| *id as u32).collect::<Vec<_>>()).unwrap();
    writer.write("out_edges", &reverse.iter().map(|(.., edge)| *edge).collect::<Vec<_>>()).unwrap();
    writer.write("features", &(0..3 * N_NODES).map(|k| k as f32).collect::<Vec<_>>()).unwrap();
    writer.write("labels", &(0..N_NODES).map(|node| (node % 5) as u32).collect::<Vec<_>>()).unwrap();
    writer.write("split.main", &(0..N_NODES).map(|node| (node % 4) as u8).collect::<Vec<_>>()).unwrap();
    writer.write("ids", &(0..N_NODES).map(|node| 1000 + node).collect::<Vec<_>>()).unwrap();
    let contents = Contents {
        n_nodes: N_NODES,
        n_edges: edges.len() as u64,
        features: Some(FeaturesEntry { dim: 3, layout: FeatureLayout::Dense, dtype: Dtype::F32 }),
        labels: Some(LabelsEntry { kind: LabelKind::Classes, n_classes: 5 }),
        splits: vec!["main".into()],
        ids: Some(kith_store::IdsEntry::Numbers),
        ..Contents::default()
    };
    writer.finish(contents, Provenance::default()).unwrap();
    Graph::open(out).unwrap()
}

fn cut<'a>(owner: &'a [u16], n_shards: u32) -> Cut<'a> {
    Cut { owner, n_shards, inclusion: None, method: "by hand".into(), provenance: Provenance::default() }
}

/// Three of four shards own something.
fn owners() -> Vec<u16> {
    (0..N_NODES).map(|node| [0, 2, 3][(node * node % 7 % 3) as usize]).collect()
}

#[test]
fn shards_hold_what_the_store_holds() {
    let temp = tempfile::tempdir().unwrap();
    let graph = write_store(&temp.path().join("store"));
    let owner = owners();
    let n_written = AtomicU64::new(0);
    let on_nodes = |n| {
        n_written.fetch_add(n, Ordering::Relaxed);
    };
    let inclusion = vec![0.25; N_NODES as usize];
    let out = temp.path().join("cluster");
    let manifest =
        write_cluster(&graph, &Cut { inclusion: Some(&inclusion), ..cut(&owner, 4) }, &out, &on_nodes).unwrap();
    assert_eq!(n_written.into_inner(), N_NODES);
    let cluster = Cluster::open(&out).unwrap();
    assert_eq!(cluster.digest(), manifest.digest);
    assert_eq!(cluster.store_digest(), graph.manifest().digest);
    assert_eq!(cluster.inclusion().unwrap(), Some(&inclusion[..]));
    assert_eq!(cluster.ids().unwrap().of(7).unwrap(), "1007");
    assert!(matches!(cluster.owners(), Owners::Narrow(_)));
    let shards: Vec<Shard> = (0..4).map(|shard| cluster.open_shard(shard).unwrap()).collect();
    assert_eq!(shards.iter().map(|shard| shard.n_owned()).sum::<u64>(), N_NODES);
    assert_eq!(shards[1].n_owned(), 0);
    let mut n_cut_edges = 0;
    for node in 0..N_NODES {
        let own = u32::from(owner[node as usize]);
        assert_eq!(cluster.owners().of(node), Some(own));
        for shard in &shards {
            let Ok(row) = shard.row_of(node) else {
                assert_ne!(shard.shard(), own);
                continue;
            };
            assert_eq!(shard.shard(), own);
            assert_eq!(shard.nodes().nth(row as usize), Some(node));
            assert_eq!(shard.lists().of(row).unwrap(), graph.lists().of(node).unwrap());
            assert_eq!(shard.out_lists().of(row).unwrap(), graph.out_lists().of(node).unwrap());
            let (mut found, mut expected) = ([0.0; 3], [0.0; 3]);
            shard.features().unwrap().read(row, &mut found).unwrap();
            graph.features().unwrap().read(node, &mut expected).unwrap();
            assert_eq!(found, expected);
            assert_eq!(shard.labels().unwrap().class(row).unwrap(), Some((node % 5) as u32));
            assert_eq!(shard.splits()[0].part(row).unwrap() as u64, node % 4);
            let neighbors = graph.lists().of(node).unwrap();
            n_cut_edges += neighbors.iter().filter(|id| u32::from(owner[*id as usize]) != own).count() as u64;
        }
    }
    assert_eq!(cluster.entry().n_cut_edges, n_cut_edges);
    let n_train: u64 = cluster.entry().shards.iter().map(|summary| summary.n_train).sum();
    assert_eq!(n_train, (0..N_NODES).filter(|node| node % 4 == 1).count() as u64);
    for dir in [out.clone(), cluster.shard_dir(0), cluster.shard_dir(1)] {
        assert_eq!(verify(&dir, &|_| ()).unwrap().findings, []);
    }
    assert!(matches!(shards[0].row_of(N_NODES), Err(StoreError::NodeOutOfRange { .. })));
    assert!(matches!(shards[1].row_of(0), Err(StoreError::NotOwned { node: 0, shard: 1 })));
}

#[test]
fn more_shards_than_a_byte_can_name() {
    let temp = tempfile::tempdir().unwrap();
    let graph = write_store(&temp.path().join("store"));
    let owner: Vec<u16> = (0..N_NODES).map(|node| (299 - node) as u16).collect();
    let out = temp.path().join("cluster");
    write_cluster(&graph, &cut(&owner, 300), &out, &|_| ()).unwrap();
    let cluster = Cluster::open(&out).unwrap();
    assert!(matches!(cluster.owners(), Owners::Wide(_)));
    assert_eq!(cluster.owners().of(3), Some(296));
    assert_eq!(cluster.open_shard(296).unwrap().nodes().collect::<Vec<_>>(), [3]);
    assert!(matches!(cluster.open_shard(300), Err(StoreError::NoShard { shard: 300, n_shards: 300 })));
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let graph = write_store(&temp.path().join("store"));
    let (one, other) = (temp.path().join("one"), temp.path().join("other"));
    write_cluster(&graph, &cut(&owners(), 4), &one, &|_| ()).unwrap();
    write_cluster(&graph, &cut(&vec![0; N_NODES as usize], 1), &other, &|_| ()).unwrap();
    assert!(matches!(Graph::open(&one), Err(StoreError::Cut { .. })));
    assert!(matches!(Graph::open(&one.join("shard-0")), Err(StoreError::Cut { .. })));
    assert!(matches!(Cluster::open(graph.dir()), Err(StoreError::NotACluster { .. })));
    assert!(matches!(Shard::open(&one), Err(StoreError::NotACluster { .. })));
    assert!(matches!(write_cluster(&graph, &cut(&owners(), 4), &one, &|_| ()), Err(StoreError::Exists { .. })));
    fs::rename(one.join("shard-0"), one.join("shard-0.old")).unwrap();
    fs::rename(other.join("shard-0"), one.join("shard-0")).unwrap();
    let cluster = Cluster::open(&one).unwrap();
    assert!(matches!(cluster.open_shard(0), Err(StoreError::ForeignShard { shard: 0, .. })));
}

#[test]
fn damage_is_found() {
    let temp = tempfile::tempdir().unwrap();
    let graph = write_store(&temp.path().join("store"));
    let out = temp.path().join("cluster");
    write_cluster(&graph, &cut(&owners(), 4), &out, &|_| ()).unwrap();
    for (folder, file) in [(".", "owner.u8"), ("shard-0", "owned.u64"), ("shard-2", "indices.u32")] {
        let path = out.join(folder).join(file);
        let whole = fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        damaged[8] ^= 1;
        fs::write(&path, &damaged).unwrap();
        let findings = verify(&out.join(folder), &|_| ()).unwrap().findings;
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(file.starts_with(&findings[0].column), "{findings:?}");
        fs::write(&path, &whole).unwrap();
    }
}

/// A server reads owners when it sends them: damage is found then, and every other process finds it at the start.
#[test]
fn damaged_owners_are_found_when_they_are_first_read() {
    let temp = tempfile::tempdir().unwrap();
    let graph = write_store(&temp.path().join("store"));
    let (owner, out) = (owners(), temp.path().join("cluster"));
    write_cluster(&graph, &cut(&owner, 4), &out, &|_| ()).unwrap();
    let column = out.join("owner.u8");
    let mut bytes = fs::read(&column).unwrap();
    let whole = Cluster::open_for_server(&out, Verify::FirstTouch).unwrap();
    assert_eq!(whole.owner_bytes().unwrap(), bytes);
    let checksum = whole.owner_checksum();
    assert_eq!(checksum, crc32fast::hash(&bytes));
    bytes[9] ^= 1;
    fs::write(&column, &bytes).unwrap();
    let opened = Cluster::open_for_server(&out, Verify::FirstTouch).unwrap();
    assert_eq!(opened.owner_checksum(), checksum, "the checksum is that of the owners as they were written");
    assert!(matches!(opened.owner_bytes(), Err(StoreError::Checksum { .. })));
    assert!(matches!(Cluster::open(&out), Err(StoreError::Checksum { .. })));
    assert!(matches!(Cluster::open_for_server(&out, Verify::Open), Err(StoreError::Checksum { .. })));
}
