//! Public interface of the store: round trips, reports of damage, no panics.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use half::{bf16, f16};
use kith_store::{
    BLOCK_BYTES, Contents, Dtype, FeatureLayout, FeaturesEntry, Graph, GraphsEntry, IdsEntry, LabelKind, LabelsEntry,
    Manifest, NO_CLASS, Neighbors, Provenance, SplitPart, StoreError, StoreWriter, Verify, verify,
};
use proptest::prelude::*;

/// A directed graph of 5 nodes with a loop, a duplicate edge and an isolated node, as (source, destination).
const EDGES: [[u64; 2]; 7] = [[0, 1], [0, 1], [1, 2], [2, 0], [2, 2], [3, 0], [3, 2]];
const N_NODES: u64 = 5;

fn forward(edges: &[[u64; 2]], n_nodes: u64, row: usize) -> (Vec<u64>, Vec<u64>, Vec<u64>) {
    let mut order: Vec<usize> = (0..edges.len()).collect();
    order.sort_by_key(|edge| (edges[*edge][row], edges[*edge][1 - row], *edge));
    let mut indptr = vec![0; n_nodes as usize + 1];
    for edge in edges {
        indptr[edge[row] as usize + 1] += 1;
    }
    for node in 0..n_nodes as usize {
        indptr[node + 1] += indptr[node];
    }
    (indptr, order.iter().map(|edge| edges[*edge][1 - row]).collect(), order.iter().map(|edge| *edge as u64).collect())
}

fn narrow(ids: &[u64]) -> Vec<u32> {
    ids.iter().map(|id| *id as u32).collect()
}

fn write_lists(writer: &mut StoreWriter, edges: &[[u64; 2]], n_nodes: u64) {
    let (indptr, indices, order) = forward(edges, n_nodes, 1);
    let sorted: Vec<[u64; 2]> = order.iter().map(|edge| edges[*edge as usize]).collect();
    let (out_indptr, out_indices, out_edges) = forward(&sorted, n_nodes, 0);
    writer.write("indptr", &indptr).unwrap();
    writer.write("indices", &narrow(&indices)).unwrap();
    writer.write("out_indptr", &out_indptr).unwrap();
    writer.write("out_indices", &narrow(&out_indices)).unwrap();
    writer.write("out_edges", &narrow(&out_edges)).unwrap();
}

/// A store with every kind of column, dense rows.
fn write_dense(out: &Path) {
    let mut writer = StoreWriter::create(out).unwrap();
    write_lists(&mut writer, &EDGES, N_NODES);
    writer.write("features", &(0..10).map(|k| f16::from_f32(k as f32)).collect::<Vec<_>>()).unwrap();
    writer.write("labels", &[0u32, 1, 2, NO_CLASS, 1]).unwrap();
    writer.write("split.public", &[1u8, 2, 3, 0, 1]).unwrap();
    writer.write("id_indptr", &[0u64, 1, 3, 3, 4, 6]).unwrap();
    writer.write("id_bytes", "abcdé".as_bytes()).unwrap();
    writer.write("graph_of_node", &[0u32, 0, 0, 0, 1]).unwrap();
    let contents = Contents {
        n_nodes: N_NODES,
        n_edges: EDGES.len() as u64,
        features: Some(FeaturesEntry { dim: 2, layout: FeatureLayout::Dense, dtype: Dtype::F16 }),
        labels: Some(LabelsEntry { kind: LabelKind::Classes, n_classes: 3 }),
        splits: vec!["public".into()],
        ids: Some(IdsEntry::Texts),
        graphs: Some(GraphsEntry { n_graphs: 2, names: vec![] }),
        ..Contents::default()
    };
    writer.finish(contents, Provenance { source: "a test".into(), ..Provenance::default() }).unwrap();
}

/// A symmetric store with wide ids, sparse rows, many labels per node and number ids.
fn write_sparse(out: &Path) {
    let mut writer = StoreWriter::create(out).unwrap();
    writer.write("indptr", &[0u64, 2, 3, 4]).unwrap();
    writer.write("indices", &[1u64, 2, 0, 0]).unwrap();
    writer.write("feature_indptr", &[0u64, 2, 2, 3]).unwrap();
    writer.write("feature_indices", &[0u32, 99, 50]).unwrap();
    writer.write("feature_values", &[1.0f32, -2.0, 0.5]).unwrap();
    writer.write("label_bits", &[1u64 << 63, 1 << 6, 0, 0, 5, 0]).unwrap();
    writer.write("split.a", &[1u8, 2, 3]).unwrap();
    writer.write("split.b", &[3u8, 2, 1]).unwrap();
    writer.write("ids", &[100u64, 7, u64::MAX]).unwrap();
    let contents = Contents {
        n_nodes: 3,
        n_edges: 4,
        is_symmetric: true,
        features: Some(FeaturesEntry { dim: 100, layout: FeatureLayout::Sparse, dtype: Dtype::F32 }),
        labels: Some(LabelsEntry { kind: LabelKind::MultiLabel, n_classes: 71 }),
        splits: vec!["a".into(), "b".into()],
        ids: Some(IdsEntry::Numbers),
        ..Contents::default()
    };
    writer.finish(contents, Provenance::default()).unwrap();
}

/// Calls every reader on every node. Each either answers or says that the store is damaged.
fn read_everything(graph: &Graph) -> Result<(), StoreError> {
    let check = |result: Result<(), StoreError>| match result {
        Ok(()) => Ok(()),
        Err(error @ StoreError::Damaged { .. }) => {
            let sentence = error.to_string();
            assert!(sentence.starts_with("store damaged at ") && sentence.contains(", row "), "{sentence}");
            assert!(sentence.ends_with(": run `kith data verify`"), "{sentence}");
            Err(error)
        }
        Err(other) => panic!("unexpected: {other}"),
    };
    let mut result = Ok(());
    for node in 0..graph.n_nodes() {
        let read_node = || {
            for lists in [graph.lists(), graph.out_lists()] {
                lists.degree(node)?;
                let list = lists.of(node)?;
                assert_eq!(list.iter().count(), list.len());
                list.contains(3);
            }
            if let Some(rows) = graph.features() {
                rows.read(node, &mut vec![0.0; rows.dim()])?;
                rows.sparse(node)?;
            }
            if let Some(weights) = graph.edge_weights() {
                let (start, end) = graph.lists().bounds(node)?;
                weights.get(start, end)?;
            }
            if let Some(labels) = graph.labels() {
                labels.class(node)?;
                labels.bits(node)?;
                labels.numbers(node)?;
            }
            for split in graph.splits() {
                split.part(node)?;
            }
            if let Some(ids) = graph.ids() {
                ids.of(node)?;
            }
            if let Some(graphs) = graph.graphs() {
                graphs.of(node)?;
            }
            Ok(())
        };
        result = check(read_node()).and(result);
    }
    for place in 0..graph.n_edges() {
        result = check(graph.edge_of_out_edge(place).map(drop)).and(result);
    }
    result
}

/// Reads every node and edge and stops at the first error.
fn read_all_columns(graph: &Graph) -> Result<(), StoreError> {
    for node in 0..graph.n_nodes() {
        for lists in [graph.lists(), graph.out_lists()] {
            lists.of(node)?;
        }
        if let Some(rows) = graph.features() {
            rows.read(node, &mut vec![0.0; rows.dim()])?;
        }
        if let Some(labels) = graph.labels() {
            labels.class(node)?;
            labels.bits(node)?;
        }
        graph.splits().iter().try_for_each(|split| split.part(node).map(drop))?;
        graph.ids().map_or(Ok(()), |ids| ids.of(node).map(drop))?;
        graph.graphs().map_or(Ok(()), |graphs| graphs.of(node).map(drop))?;
    }
    (0..graph.n_edges()).try_for_each(|place| graph.edge_of_out_edge(place).map(drop))
}

#[test]
fn a_damaged_block_is_named_when_it_is_first_read() {
    let temp = tempfile::tempdir().unwrap();
    let (store, dim) = (temp.path().join("store"), 256);
    let n_nodes = 4 * BLOCK_BYTES as u64 / (4 * dim);
    let mut writer = StoreWriter::create(&store).unwrap();
    writer.write("indptr", &vec![0u64; n_nodes as usize + 1]).unwrap();
    writer.write::<u32>("indices", &[]).unwrap();
    writer.write("features", &vec![1.5f32; (n_nodes * dim) as usize]).unwrap();
    let features = Some(FeaturesEntry { dim, layout: FeatureLayout::Dense, dtype: Dtype::F32 });
    let contents = Contents { n_nodes, features, is_symmetric: true, ..Contents::default() };
    writer.finish(contents, Provenance::default()).unwrap();
    let path = store.join("features.f32");
    let mut bytes = fs::read(&path).unwrap();
    bytes[2 * BLOCK_BYTES + 7] ^= 1;
    fs::write(&path, &bytes).unwrap();

    let graph = Graph::open(&store).unwrap();
    let rows = graph.features().unwrap();
    let per_block = n_nodes / 4;
    for node in (0..n_nodes).filter(|node| node / per_block != 2) {
        assert!(rows.dense_f32(node).unwrap().is_some());
    }
    // The node whose bit was flipped, and one whose block is damaged elsewhere.
    for node in [2 * per_block, 3 * per_block - 1] {
        let sentence = rows.dense_f32(node).unwrap_err().to_string();
        assert!(sentence.ends_with("make the store again"), "{sentence}");
        let named = format!("{}: block 2 of column features (bytes 2097152 to 3145728) does not match", path.display());
        assert!(sentence.starts_with(&named), "{sentence}");
        assert_eq!(rows.dense_bytes(node).unwrap_err().to_string(), sentence);
    }
    let off = Graph::open_with(&store, Verify::Off).unwrap();
    assert!(off.features().unwrap().dense_f32(2 * per_block).is_ok());
}

/// A file that shrinks under its map: the process ends with a sentence instead of a bare SIGBUS. The test starts itself
/// again as the process that ends.
#[test]
fn a_truncated_file_is_named() {
    const STORE: &str = "KITH_TEST_TRUNCATED_STORE";
    if let Some(store) = std::env::var_os(STORE) {
        let store = PathBuf::from(store);
        let graph = Graph::open(&store).unwrap();
        fs::File::options().write(true).open(store.join("features.f16")).unwrap().set_len(0).unwrap();
        let _ = graph.features().unwrap().read(0, &mut [0.0; 2]);
        unreachable!("the file is gone");
    }
    let (_temp, store) = in_temp(write_dense);
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output =
        command.args(["--exact", "a_truncated_file_is_named", "--nocapture"]).env(STORE, &store).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let expected =
        format!("error: {}: cannot be read any more: it was truncated", store.join("features.f16").display());
    assert!(said.contains(&expected), "{said}");
}

fn in_temp(write: impl Fn(&Path)) -> (tempfile::TempDir, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("store");
    write(&store);
    (temp, store)
}

#[test]
fn what_was_written_is_read() {
    let (_temp, store) = in_temp(write_dense);
    let graph = Graph::open(&store).unwrap();
    read_everything(&graph).unwrap();
    assert_eq!(graph.lists().of(2).unwrap(), Neighbors::Narrow(&[1, 2, 3]));
    assert_eq!(graph.lists().of(1).unwrap(), Neighbors::Narrow(&[0, 0]));
    assert_eq!(graph.out_lists().of(3).unwrap(), Neighbors::Narrow(&[0, 2]));
    assert!(graph.lists().of(4).unwrap().is_empty());
    assert!(graph.lists().of(2).unwrap().contains(3) && !graph.lists().of(2).unwrap().contains(0));
    let mut row = [0.0; 2];
    graph.features().unwrap().read(4, &mut row).unwrap();
    assert_eq!(row, [8.0, 9.0]);
    let labels = graph.labels().unwrap();
    assert_eq!((labels.class(2).unwrap(), labels.class(3).unwrap()), (Some(2), None));
    assert_eq!(graph.splits()[0].part(2).unwrap(), SplitPart::Test);
    assert_eq!(graph.ids().unwrap().of(1).unwrap(), "bc");
    assert_eq!(graph.graphs().unwrap().of(4).unwrap(), 1);
    assert!(matches!(graph.lists().of(5), Err(StoreError::NodeOutOfRange { node: 5, n_nodes: 5 })));
    assert!(matches!(graph.lists().of(u64::MAX), Err(StoreError::NodeOutOfRange { .. })));

    let (_temp, store) = in_temp(write_sparse);
    let graph = Graph::open(&store).unwrap();
    read_everything(&graph).unwrap();
    assert_eq!(graph.out_lists().of(0).unwrap(), Neighbors::Wide(&[1, 2]));
    assert_eq!(graph.labels().unwrap().bits(0).unwrap(), [1 << 63, 1 << 6]);
    let mut row = [0.0; 100];
    graph.features().unwrap().read(0, &mut row).unwrap();
    assert_eq!((row[0], row[99], row[50]), (1.0, -2.0, 0.0));
    assert_eq!(graph.ids().unwrap().of(2).unwrap(), u64::MAX.to_string());
}

#[test]
fn whole_stores_verify() {
    for write in [write_dense, write_sparse] {
        let (_temp, store) = in_temp(write);
        let verified = verify(&store, &|_| ()).unwrap();
        assert_eq!(verified.findings, []);
        assert!(verified.n_bytes > 0);
    }
}

/// A byte flipped anywhere: readers answer or say where, `verify` names the column and the block, nobody panics.
#[test]
fn flipped_bytes_are_found() {
    for write in [write_dense, write_sparse] {
        let (_temp, store) = in_temp(write);
        let columns = Manifest::read(&store).unwrap().columns;
        let mut place = 12345u64;
        for column in columns {
            let path = store.join(column.file_name());
            let whole = fs::read(&path).unwrap();
            for _ in 0..200 {
                place = place.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let mut bytes = whole.clone();
                bytes[(place >> 33) as usize % whole.len()] ^= 1 << (place >> 20 & 7);
                fs::write(&path, bytes).unwrap();
                // Without checksums readers answer, or say where a value is impossible.
                match Graph::open_with(&store, Verify::Off) {
                    Ok(graph) => drop(read_everything(&graph)),
                    Err(error) => assert!(error.to_string().starts_with("store damaged at "), "{error}"),
                }
                // With them, no reader answers from a damaged block, be it checked at first touch or at the start.
                let first = Graph::open(&store).and_then(|graph| read_all_columns(&graph)).unwrap_err();
                let start = Graph::open_with(&store, Verify::Open).unwrap_err();
                for error in [first, start] {
                    let is_named = matches!(&error, StoreError::Checksum { path: file, column: name, block: 0, .. }
                        if *file == path && *name == column.name);
                    assert!(is_named, "{}: {error}", column.name);
                }
                let findings = verify(&store, &|_| ()).unwrap().findings;
                assert!(
                    findings.iter().any(|f| f.column == column.name && f.place.contains("block")),
                    "{}: {findings:?}",
                    column.name
                );
            }
            fs::write(&path, whole).unwrap();
        }
        assert_eq!(verify(&store, &|_| ()).unwrap().findings, []);
    }
}

#[test]
fn verify_names_the_block_of_a_long_column() {
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("long");
    let n_nodes = BLOCK_BYTES as u64; // 8 blocks of indptr
    let mut writer = StoreWriter::create(&store).unwrap();
    writer.write("indptr", &vec![0u64; n_nodes as usize + 1]).unwrap();
    writer.write::<u32>("indices", &[]).unwrap();
    writer.finish(Contents { n_nodes, is_symmetric: true, ..Contents::default() }, Provenance::default()).unwrap();
    let path = store.join("indptr.u64");
    let mut bytes = fs::read(&path).unwrap();
    bytes[3 * BLOCK_BYTES + 17] = 1;
    fs::write(&path, bytes).unwrap();
    let findings = verify(&store, &|_| ()).unwrap().findings;
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].to_string(), "indptr, block 3 (bytes 3145728..4194304): the checksum differs");
}

/// Checksums cannot see a store that was written wrong; the rules between values can.
#[test]
fn verify_checks_the_rules_between_values() {
    let write = |out: &Path, indices: &[u32], edges: &[u32]| {
        let mut writer = StoreWriter::create(out).unwrap();
        writer.write("indptr", &[0u64, 0, 2, 2]).unwrap();
        writer.write("indices", indices).unwrap();
        writer.write("out_indptr", &[0u64, 1, 1, 2]).unwrap();
        writer.write("out_indices", &[1u32, 1]).unwrap();
        writer.write("out_edges", edges).unwrap();
        writer.finish(Contents { n_nodes: 3, n_edges: 2, ..Contents::default() }, Provenance::default()).unwrap();
        verify(out, &|_| ()).unwrap().findings
    };
    let temp = tempfile::tempdir().unwrap();
    assert_eq!(write(&temp.path().join("right"), &[0, 2], &[0, 1]), []);
    let findings = write(&temp.path().join("unsorted"), &[2, 0], &[1, 0]);
    assert_eq!(findings[0].to_string(), "indices, row 1: neighbor 0 stands after 2");
    let findings = write(&temp.path().join("outside"), &[0, 3], &[0, 1]);
    assert_eq!(findings[0].to_string(), "indices, row 1: neighbor 3 is outside the graph");
    let findings = write(&temp.path().join("crossed"), &[0, 2], &[1, 0]);
    assert!(findings[0].to_string().starts_with("out_edges, row 0: its edge to 1"), "{}", findings[0]);

    let out = temp.path().join("lopsided");
    let mut writer = StoreWriter::create(&out).unwrap();
    writer.write("indptr", &[0u64, 1, 1]).unwrap();
    writer.write("indices", &[1u32]).unwrap();
    let contents = Contents { n_nodes: 2, n_edges: 1, is_symmetric: true, ..Contents::default() };
    writer.finish(contents, Provenance::default()).unwrap();
    let findings = verify(&out, &|_| ()).unwrap().findings;
    assert_eq!(findings[0].to_string(), "indices, row 0: 1 edges from 1, but 0 to it, in a symmetric store");
}

#[test]
fn bad_manifests_give_a_sentence() {
    let (_temp, store) = in_temp(write_dense);
    let path = store.join("manifest.json");
    let whole = fs::read_to_string(&path).unwrap();
    let open_with = |text: &str| {
        fs::write(&path, text).unwrap();
        Graph::open(&store).unwrap_err().to_string()
    };
    assert!(open_with("").contains("manifest.json: EOF"));
    assert!(open_with("{}").contains("missing field `format_version`"));
    assert!(open_with(&whole.replace("\"format_version\": 2", "\"format_version\": 9")).contains("format version 9"));
    assert!(open_with(&whole.replace("\"n_nodes\": 5", "\"n_nodes\": 6")).contains("changed after it was written"));
    assert!(open_with(&whole.replace("a test", "a lie")).contains("changed after it was written"));
    assert!(open_with(&whole.replace("\"n_nodes\"", "\"n_knots\"")).contains("unknown field"));
    fs::write(&path, &whole).unwrap();
    Graph::open(&store).unwrap();

    for (column, bytes) in [("indptr.u64", 8), ("features.f16", 0), ("labels.u32", 21)] {
        let path = store.join(column);
        let before = fs::read(&path).unwrap();
        fs::write(&path, vec![0; bytes]).unwrap();
        let error = Graph::open(&store).unwrap_err().to_string();
        let named = format!("{}: expected {} bytes, found {bytes}: restore", path.display(), before.len());
        assert!(error.starts_with(&named), "{error}");
        fs::write(&path, before).unwrap();
    }
    fs::remove_file(store.join("labels.u32")).unwrap();
    assert!(Graph::open(&store).unwrap_err().to_string().contains("labels.u32"));
    fs::remove_file(&path).unwrap();
    assert!(Graph::open(&store).unwrap_err().to_string().contains("not a store"));
    assert!(Graph::open(Path::new("nowhere")).unwrap_err().to_string().contains("nowhere"));
}

#[test]
fn a_store_appears_whole_or_not_at_all() {
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("store");
    let mut writer = StoreWriter::create(&out).unwrap();
    writer.write("indptr", &[0u64, 0]).unwrap();
    assert!(!out.exists());
    assert!(matches!(StoreWriter::create(&out), Err(StoreError::Busy { .. })));
    drop(writer);
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0, "an unfinished store leaves nothing");

    // The next writer clears the draft of a killed one, which has its marker.
    let draft = temp.path().join("store.draft");
    fs::create_dir_all(draft.join("scratch")).unwrap();
    fs::write(draft.join("kith.draft"), "store.draft").unwrap();
    fs::write(draft.join("indptr.u64"), "half").unwrap();
    write_dense(&out);
    assert!(!out.join("kith.draft").exists());
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
    assert!(matches!(StoreWriter::create(&out), Err(StoreError::Exists { .. })));

    // A folder of the user's that is called like a draft is left alone.
    let (other, own) = (temp.path().join("other"), temp.path().join("other.draft"));
    fs::create_dir(&own).unwrap();
    fs::write(own.join("lock"), "").unwrap();
    fs::write(own.join("thesis.tex"), "mine").unwrap();
    let refused = StoreWriter::create(&other).unwrap_err();
    assert!(matches!(&refused, StoreError::Foreign { path } if *path == own), "{refused}");
    assert_eq!(fs::read(own.join("thesis.tex")).unwrap(), b"mine");

    // Contents that its columns do not bear out are refused before anything is visible.
    let out = temp.path().join("liar");
    let writer = StoreWriter::create(&out).unwrap();
    assert!(writer.finish(Contents { n_nodes: 3, ..Contents::default() }, Provenance::default()).is_err());
    assert!(!out.exists());
}

/// Processes that read the whole of a 64 MiB column hold its pages once: their proportional shares add up to one copy.
#[test]
fn many_processes_share_one_copy() {
    const N_READERS: u64 = 4;
    if let Some(dir) = std::env::var_os("KITH_TEST_READ_STORE") {
        let graph = Graph::open(Path::new(&dir)).unwrap();
        let total: u64 = graph.lists().indptr().unwrap().iter().step_by(512).sum();
        assert_eq!(total, 0);
        // Wait until everybody has read, then tell the proportional size of the map.
        let ready = Path::new(&dir).with_extension("ready");
        fs::write(ready.join(std::process::id().to_string()), "").unwrap();
        let start = std::time::Instant::now();
        while fs::read_dir(&ready).unwrap().count() < N_READERS as usize {
            assert!(start.elapsed().as_secs() < 20, "the other readers never came");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let map = smaps.split("indptr.u64").nth(1).unwrap();
        let shared_kib: u64 = map.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap().trim()[..]
            .split(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        fs::write(ready.with_extension(format!("pss{}", std::process::id())), shared_kib.to_string()).unwrap();
        while fs::read_dir(ready.parent().unwrap())
            .unwrap()
            .filter(|e| e.as_ref().unwrap().path().to_string_lossy().contains(".pss"))
            .count()
            < N_READERS as usize
        {
            assert!(start.elapsed().as_secs() < 20, "the other readers never came");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("shared");
    let n_nodes = (64u64 << 20) / 8 - 1;
    let mut writer = StoreWriter::create(&store).unwrap();
    writer.write("indptr", &vec![0u64; n_nodes as usize + 1]).unwrap();
    writer.write::<u32>("indices", &[]).unwrap();
    writer.finish(Contents { n_nodes, is_symmetric: true, ..Contents::default() }, Provenance::default()).unwrap();
    fs::create_dir(store.with_extension("ready")).unwrap();
    let reader = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "many_processes_share_one_copy"])
            .env("KITH_TEST_READ_STORE", &store)
            .spawn()
            .unwrap()
    };
    let readers: Vec<_> = (0..N_READERS).map(|_| reader()).collect();
    for mut reader in readers {
        assert!(reader.wait().unwrap().success());
    }
    let shares: Vec<u64> = fs::read_dir(temp.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains(".pss"))
        .map(|path| fs::read_to_string(path).unwrap().parse().unwrap())
        .collect();
    let total_mib = shares.iter().sum::<u64>() / 1024;
    assert!((60..80).contains(&total_mib), "{N_READERS} readers of 64 MiB hold {total_mib} MiB: {shares:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn reader_inverts_writer(edges in prop::collection::vec([0u64..32, 0u64..32], 0..200), rows in prop::collection::vec(-1e30f32..1e30, 64)) {
        let temp = tempfile::tempdir().unwrap();
        let store = temp.path().join("store");
        let mut writer = StoreWriter::create(&store).unwrap();
        write_lists(&mut writer, &edges, 32);
        let stored: Vec<bf16> = rows.iter().map(|v| bf16::from_f32(*v)).collect();
        writer.write("features", &stored).unwrap();
        let rows_entry = FeaturesEntry { dim: 2, layout: FeatureLayout::Dense, dtype: Dtype::Bf16 };
        let contents = Contents { n_nodes: 32, n_edges: edges.len() as u64, features: Some(rows_entry), ..Contents::default() };
        writer.finish(contents, Provenance::default()).unwrap();

        prop_assert_eq!(verify(&store, &|_| ()).unwrap().findings, []);
        let graph = Graph::open(&store).unwrap();
        let mut found: Vec<[u64; 2]> = Vec::new();
        for destination in 0..32 {
            found.extend(graph.lists().of(destination).unwrap().iter().map(|source| [source, destination]));
        }
        let mut expected = edges.clone();
        expected.sort_by_key(|edge| (edge[1], edge[0]));
        prop_assert_eq!(found, expected);
        let mut row = [0.0; 2];
        for node in 0..32 {
            graph.features().unwrap().read(node, &mut row).unwrap();
            let expected = [2 * node as usize, 2 * node as usize + 1].map(|k| stored[k].to_f32());
            prop_assert_eq!(row, expected);
        }
    }
}

/// A store with weights of edges and two numbers to predict per node.
fn write_numbers(out: &Path, weights: &[f32], numbers: &[f32]) -> Result<Manifest, StoreError> {
    let mut writer = StoreWriter::create(out).unwrap();
    write_lists(&mut writer, &EDGES, N_NODES);
    writer.write("edge_weights", weights).unwrap();
    writer.write("labels", numbers).unwrap();
    let contents = Contents {
        n_nodes: N_NODES,
        n_edges: EDGES.len() as u64,
        edge_weights: true,
        labels: Some(LabelsEntry { kind: LabelKind::Targets, n_classes: 2 }),
        ..Contents::default()
    };
    writer.finish(contents, Provenance::default())
}

#[test]
fn weights_and_numbers_round_trip() {
    let temp = tempfile::tempdir().unwrap();
    let weights = [0.0f32, 0.5, 1.0, 2.0, 3.0, 4.0, 1e12];
    let numbers = [1.5f32, -2.0, f32::NAN, 0.0, 3.0, 3.0, 4.0, 4.0, 5.0, 5.0];
    let path = temp.path().join("store");
    write_numbers(&path, &weights, &numbers).unwrap();
    assert_eq!(verify(&path, &|_| ()).unwrap().findings, []);
    let graph = Graph::open(&path).unwrap();
    read_everything(&graph).unwrap();
    let (start, end) = graph.lists().bounds(0).unwrap();
    assert_eq!(graph.edge_weights().unwrap().get(start, end).unwrap(), &weights[..2]);
    let labels = graph.labels().unwrap();
    assert_eq!(
        (labels.kind(), labels.n_classes(), labels.numbers(0).unwrap()),
        (LabelKind::Targets, 2, &[1.5, -2.0][..])
    );
    assert!(labels.numbers(1).unwrap()[0].is_nan() && labels.class(1).unwrap().is_none());
    assert!(matches!(labels.numbers(5), Err(StoreError::NodeOutOfRange { .. })));

    for (place, weight) in [(3, -1.0), (0, f32::NAN), (6, f32::INFINITY)] {
        let mut damaged = weights;
        damaged[place] = weight;
        let path = temp.path().join(format!("damaged-{place}"));
        write_numbers(&path, &damaged, &numbers).unwrap();
        let findings = verify(&path, &|_| ()).unwrap().findings;
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].column, "edge_weights");
        assert!(read_everything(&Graph::open(&path).unwrap()).is_err());
    }
    let refused = |weights: &[f32], numbers: &[f32], name: &str| {
        write_numbers(&temp.path().join(name), weights, numbers).unwrap_err().to_string()
    };
    assert!(refused(&weights[..6], &numbers, "a").contains("column edge_weights has 6 items, 7 expected"));
    assert!(refused(&weights, &numbers[..9], "b").contains("column labels has 9 items, 10 expected"));
}

#[test]
fn a_symmetric_store_has_symmetric_weights() {
    let temp = tempfile::tempdir().unwrap();
    for (weights, is_right) in [([1.0f32, 2.0, 1.0, 2.0], true), ([1.0, 2.0, 1.0, 3.0], false)] {
        let path = temp.path().join(is_right.to_string());
        let mut writer = StoreWriter::create(&path).unwrap();
        writer.write("indptr", &[0u64, 2, 3, 4]).unwrap();
        writer.write("indices", &[1u32, 2, 0, 0]).unwrap();
        writer.write("edge_weights", &weights).unwrap();
        let contents =
            Contents { n_nodes: 3, n_edges: 4, is_symmetric: true, edge_weights: true, ..Contents::default() };
        writer.finish(contents, Provenance::default()).unwrap();
        assert_eq!(verify(&path, &|_| ()).unwrap().findings.is_empty(), is_right);
    }
}
