//! Every flipped bit and every truncation of every file of a store, of a partitioned graph and of their first formats: readers name the
//! file, or read the values of the whole one.
#![allow(missing_docs)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use kith_corruption::{Bits, check_file, scratch};
use kith_store::{
    Cluster, Contents, Cut, Dtype, FeatureLayout, Features, FeaturesEntry, Graph, GraphsEntry, IdsEntry, LabelKind,
    Labels, LabelsEntry, Lists, Manifest, NO_CLASS, Provenance, Shard, Split, StoreError, StoreWriter, Verify, verify,
    write_cluster,
};

/// A directed graph of 3 nodes with weights, dense features of nodes and edges, classes, texts as ids, and two graphs.
fn write_dense(out: &Path) {
    let mut writer = StoreWriter::create(out).unwrap();
    writer.write("indptr", &[0u64, 0, 2, 3]).unwrap();
    writer.write("indices", &[0u32, 2, 1]).unwrap();
    writer.write("out_indptr", &[0u64, 1, 2, 3]).unwrap();
    writer.write("out_indices", &[1u32, 2, 1]).unwrap();
    writer.write("out_edges", &[0u32, 2, 1]).unwrap();
    writer.write("edge_weights", &[0.5f32, 1.0, 2.0]).unwrap();
    writer.write("edge_features", &[half::f16::ONE, half::f16::NEG_ONE, half::f16::ZERO]).unwrap();
    writer.write("features", &[1.0f32, 2.0, 3.0, -4.0, 5.0, 0.0]).unwrap();
    writer.write("labels", &[0u32, 1, NO_CLASS]).unwrap();
    writer.write("split.public", &[1u8, 2, 3]).unwrap();
    writer.write("id_indptr", &[0u64, 1, 3, 5]).unwrap();
    writer.write("id_bytes", "abcé".as_bytes()).unwrap();
    writer.write("graph_of_node", &[0u32, 0, 1]).unwrap();
    let contents = Contents {
        n_nodes: 3,
        n_edges: 3,
        edge_weights: true,
        edge_features: Some(FeaturesEntry { dim: 1, layout: FeatureLayout::Dense, dtype: Dtype::F16 }),
        features: Some(FeaturesEntry { dim: 2, layout: FeatureLayout::Dense, dtype: Dtype::F32 }),
        labels: Some(LabelsEntry { kind: LabelKind::Classes, n_classes: 2 }),
        splits: vec!["public".into()],
        ids: Some(IdsEntry::Texts),
        graphs: Some(GraphsEntry { n_graphs: 2, names: vec!["one".into(), "two".into()] }),
        ..Contents::default()
    };
    let options = [("self_loops".to_owned(), "remove".to_owned())].into();
    let counted = [("removed".to_owned(), 4)].into();
    let notes = vec!["a note".to_owned()];
    let provenance =
        Provenance { source: "a test".into(), seed: Some(7), options, counted, notes, upgraded_from: None };
    writer.finish(contents, provenance).unwrap();
}

/// A symmetric graph with wide ids, sparse features, several labels per node, and numbers as ids.
fn write_sparse(out: &Path) {
    let mut writer = StoreWriter::create(out).unwrap();
    writer.write("indptr", &[0u64, 2, 3, 4]).unwrap();
    writer.write("indices", &[1u64, 2, 0, 0]).unwrap();
    writer.write("feature_indptr", &[0u64, 2, 2, 3]).unwrap();
    writer.write("feature_indices", &[0u32, 99, 50]).unwrap();
    writer.write("feature_values", &[1.0f32, -2.0, 0.5]).unwrap();
    writer.write("label_bits", &[1u64 << 63, 1 << 6, 0, 0, 5, 0]).unwrap();
    writer.write("split.a", &[1u8, 2, 3]).unwrap();
    writer.write("ids", &[100u64, 7, u64::MAX]).unwrap();
    let contents = Contents {
        n_nodes: 3,
        n_edges: 4,
        is_symmetric: true,
        features: Some(FeaturesEntry { dim: 100, layout: FeatureLayout::Sparse, dtype: Dtype::F32 }),
        labels: Some(LabelsEntry { kind: LabelKind::MultiLabel, n_classes: 71 }),
        splits: vec!["a".into()],
        ids: Some(IdsEntry::Numbers),
        ..Contents::default()
    };
    writer.finish(contents, Provenance::default()).unwrap();
}

/// Results of all readers, each on its own: one that answers from a damaged block is not hidden by another that refuses it.
#[derive(Default)]
struct Readings {
    values: Vec<String>,
    errors: BTreeSet<String>,
}

impl Readings {
    fn add<T: std::fmt::Debug>(&mut self, name: &str, value: Result<T, StoreError>) {
        match value {
            Ok(value) => self.values.push(format!("{name} {value:?}")),
            Err(error) => drop(self.errors.insert(error.to_string())),
        }
    }

    /// Compares the values of readers that answered with those of the whole file, before errors of others end the test.
    fn end(self, whole: &mut Option<Vec<String>>) -> Result<(), String> {
        let whole = whole.get_or_insert_with(|| self.values.clone());
        let stray = self.values.iter().find(|value| !whole.contains(value));
        assert_eq!(stray, None, "a reader answers with a value that was not written; errors: {:?}", self.errors);
        if !self.errors.is_empty() {
            return Err(self.errors.into_iter().collect::<Vec<_>>().join("\n"));
        }
        assert_eq!(self.values, *whole);
        Ok(())
    }

    fn add_lists(&mut self, name: &str, lists: &Lists, n_rows: u64) {
        self.add(name, lists.indptr());
        self.add(name, lists.all().map(|all| all.iter().collect::<Vec<_>>()));
        for row in 0..n_rows {
            self.add(name, lists.bounds(row).map(|bounds| (row, bounds)));
            self.add(name, lists.degree(row).map(|degree| (row, degree)));
            self.add(name, lists.of(row).map(|list| (row, list.iter().collect::<Vec<_>>())));
        }
    }

    fn add_features(&mut self, name: &str, features: &Features, n_rows: u64) {
        for row in 0..n_rows {
            let mut vector = vec![0.0; features.dim()];
            self.add(name, features.read(row, &mut vector).map(|()| (row, vector.clone())));
            self.add(name, features.dense_f32(row).map(|vector| ("f32", row, vector.map(<[f32]>::to_vec))));
            self.add(name, features.dense_bytes(row).map(|bytes| ("bytes", row, bytes.map(<[u8]>::to_vec))));
            self.add(name, features.n_stored_of(row).map(|n| ("stored", row, n)));
            self.add(name, features.sparse(row).map(|row| format!("{row:?}")));
        }
        if features.dense_type().is_some() {
            let mut bytes = vec![0; features.row_bytes() * n_rows as usize];
            self.add(name, features.copy_dense(0, &mut bytes).map(|()| bytes.clone()));
        }
    }

    fn add_labels(&mut self, labels: &Labels, n_rows: u64) {
        for row in 0..n_rows {
            self.add("class", labels.class(row).map(|class| (row, class)));
            self.add("bits", labels.bits(row).map(|bits| (row, bits.to_vec())));
            self.add("numbers", labels.numbers(row).map(|numbers| (row, numbers.to_vec())));
        }
    }

    fn add_splits(&mut self, splits: &[Split], n_rows: u64) {
        for split in splits {
            (0..n_rows).for_each(|row| self.add(split.name(), split.part(row).map(|part| (row, part))));
        }
    }
}

fn read_graph(dir: &Path, verify: Verify) -> Result<Readings, StoreError> {
    let graph = Graph::open_with(dir, verify)?;
    let (n_nodes, n_edges) = (graph.n_nodes(), graph.n_edges());
    let mut readings = Readings::default();
    readings.values.push(format!("{:?}", graph.manifest()));
    readings.add_lists("lists", graph.lists(), n_nodes);
    readings.add_lists("out lists", graph.out_lists(), n_nodes);
    (0..n_edges).for_each(|edge| readings.add("out edge", graph.edge_of_out_edge(edge).map(|own| (edge, own))));
    if let Some(weights) = graph.edge_weights() {
        (0..n_edges as usize).for_each(|edge| readings.add("weight", weights.get(edge, edge + 1)));
    }
    graph.edge_features().into_iter().for_each(|features| readings.add_features("edge features", features, n_edges));
    graph.features().into_iter().for_each(|features| readings.add_features("features", features, n_nodes));
    graph.labels().into_iter().for_each(|labels| readings.add_labels(labels, n_nodes));
    readings.add_splits(graph.splits(), n_nodes);
    for node in 0..n_nodes {
        graph.ids().into_iter().for_each(|ids| readings.add("id", ids.of(node).map(|id| (node, id.into_owned()))));
        graph.graphs().into_iter().for_each(|graphs| readings.add("graph", graphs.of(node).map(|graph| (node, graph))));
    }
    Ok(readings)
}

fn read_shard(shard: &Shard) -> Readings {
    let n_rows = shard.n_owned();
    let mut readings = Readings::default();
    readings.values.push(format!("{:?} {:?}", shard.manifest(), shard.nodes().collect::<Vec<_>>()));
    let row_of = |node| shard.row_of(node).ok();
    readings.values.push(format!("{:?}", (0..shard.n_graph_nodes()).map(row_of).collect::<Vec<_>>()));
    readings.add_lists("lists", shard.lists(), n_rows);
    readings.add_lists("out lists", shard.out_lists(), n_rows);
    if let Some(weights) = shard.edge_weights() {
        let n_edges = shard.manifest().contents.n_edges as usize;
        (0..n_edges).for_each(|edge| readings.add("weight", weights.get(edge, edge + 1)));
    }
    shard.features().into_iter().for_each(|features| readings.add_features("features", features, n_rows));
    shard.labels().into_iter().for_each(|labels| readings.add_labels(labels, n_rows));
    readings.add_splits(shard.splits(), n_rows);
    readings
}

/// The owners of a partitioned graph, as trainers and as servers read them, and one of its shards.
fn read_cluster(dir: &Path, verify: Verify) -> Result<Readings, StoreError> {
    let mut readings = Readings::default();
    let server = Cluster::open_for_server(dir, verify)?;
    readings.add("owner bytes", server.owner_bytes());
    match Cluster::open_with(dir, verify) {
        Err(error) => drop(readings.errors.insert(error.to_string())),
        Ok(cluster) => {
            let n_nodes = cluster.contents().n_nodes;
            let owners = (0..n_nodes).map(|node| cluster.owners().of(node)).collect::<Vec<_>>();
            readings.values.push(format!("{:?} {owners:?} {}", cluster.manifest(), cluster.owner_checksum()));
            readings.add("inclusion", cluster.inclusion());
            for node in 0..n_nodes {
                let id = |ids: &kith_store::Ids| ids.of(node).map(|id| (node, id.into_owned()));
                cluster.ids().into_iter().for_each(|ids| readings.add("id", id(ids)));
            }
            match cluster.open_shard(0) {
                Err(error) => drop(readings.errors.insert(error.to_string())),
                Ok(shard) => {
                    let Readings { values, errors } = read_shard(&shard);
                    readings.values.extend(values);
                    readings.errors.extend(errors);
                }
            }
        }
    }
    Ok(readings)
}

/// Files of a folder, without those of folders in it.
fn files_of(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    files
}

/// Damages every file of `dir`, and reads the graph in `graph`, of which `dir` is a part.
fn check_folder(dir: &Path, graph: &Path, read: fn(&Path, Verify) -> Result<Readings, StoreError>) {
    let mut whole = [None, None];
    for path in files_of(dir) {
        let is_manifest = path.ends_with("manifest.json");
        let bits = if is_manifest { Bits::Each } else { Bits::One };
        let n_bytes = fs::metadata(&path).unwrap().len();
        let mut n_found = 0;
        let outcomes = check_file(&path, bits, || {
            let found = verify(dir, &|_| ()).map_err(|error| error.to_string())?.findings;
            n_found += usize::from(!found.is_empty());
            let mut outcome = Ok(());
            for (verify, whole) in [Verify::FirstTouch, Verify::Open].into_iter().zip(&mut whole) {
                let read = read(graph, verify).map_err(|error| error.to_string());
                outcome = outcome.and(read.and_then(|readings| readings.end(whole)));
            }
            assert_eq!(found.is_empty(), outcome.is_ok(), "readers and `verify` agree: {found:?} {outcome:?}");
            outcome
        });
        if is_manifest {
            assert_eq!(
                outcomes.harmless,
                [format!("cut after {} of {n_bytes}", n_bytes - 1)],
                "only the last line end"
            );
        } else {
            assert_eq!(outcomes.harmless, Vec::<String>::new(), "{}", path.display());
            assert_eq!(n_found, outcomes.n_refused, "`verify` finds all");
        }
    }
}

#[test]
fn every_damaged_byte_of_a_store_is_named() {
    let temp = scratch();
    for (name, write) in [("dense", write_dense as fn(&Path)), ("sparse", write_sparse)] {
        let store = temp.path().join(name);
        write(&store);
        check_folder(&store, &store, read_graph);
    }
}

#[test]
fn every_damaged_byte_of_a_partitioned_graph_is_named() {
    let temp = scratch();
    let (store, out) = (temp.path().join("store"), temp.path().join("shards"));
    write_dense(&store);
    let graph = Graph::open(&store).unwrap();
    let inclusion = [0.25, 0.5, 1.0];
    let provenance = Provenance::default();
    let cut = Cut { owner: &[0, 1, 0], n_shards: 2, inclusion: Some(&inclusion), method: "by hand".into(), provenance };
    write_cluster(&graph, &cut, &out, &|_| ()).unwrap();
    check_folder(&out, &out, read_cluster);
    check_folder(&out.join("shard-0"), &out, read_cluster);
}

/// The manifest of format 1 is read by other code; its columns are files of the same kind under some other names.
#[test]
fn every_damaged_byte_of_a_manifest_of_0_1_0_is_named() {
    let temp = scratch();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/0.1.0/graph");
    let path = temp.path().join("manifest.json");
    fs::copy(fixture.join("manifest.json"), &path).unwrap();
    assert_eq!(Manifest::read(temp.path()).unwrap().format_version, 1);
    let outcomes = check_file(&path, Bits::Each, || Manifest::read(temp.path()).map_err(|error| error.to_string()));
    assert_eq!(outcomes.harmless.len(), 1, "only the last line end: {:?}", outcomes.harmless);
}
