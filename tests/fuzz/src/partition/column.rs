//! A column of arbitrary bytes in an otherwise intact store: every reader answers or reports a damaged store, and
//! `verify` finds every change.

use std::{fs, path::Path, sync::OnceLock};

use kith_corruption::scratch;
use kith_store::{
    Contents, Dtype, FeatureLayout, FeaturesEntry, Graph, GraphsEntry, IdsEntry, LabelKind, LabelsEntry, Manifest,
    Provenance, StoreError, StoreWriter, Verify, verify,
};
use tempfile::TempDir;

pub(crate) fn run(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let store = store();
    let columns = &Manifest::read(store).expect("our own store").columns;
    let column = &columns[usize::from(*which) % columns.len()];
    let path = store.join(column.file_name());
    let whole = fs::read(&path).expect("our own file");
    // As long as the column, so that the change is not found by its length alone.
    let mut changed = whole.clone();
    changed.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
    fs::write(&path, &changed).expect("our own file");
    // Without checksums readers meet every value.
    match Graph::open_with(store, Verify::Off) {
        Ok(graph) => read_everything(&graph),
        Err(error) => assert!(error.to_string().starts_with("store damaged at "), "{error}"),
    }
    let first = Graph::open(store).map(|graph| read_everything(&graph));
    assert!(!matches!(first, Err(StoreError::Damaged { .. })), "checksums come first: {first:?}");
    let findings = verify(store, &|_| ()).expect("the manifest is whole").findings;
    assert_eq!(findings.is_empty(), changed == whole, "{findings:?}");
    fs::write(&path, &whole).expect("our own file");
}

fn read_everything(graph: &Graph) {
    fn check<T>(result: Result<T, StoreError>) {
        if let Err(error) = result {
            assert!(matches!(error, StoreError::Damaged { .. } | StoreError::Checksum { .. }), "{error}");
        }
    }
    for node in 0..graph.n_nodes() {
        for lists in [graph.lists(), graph.out_lists()] {
            check(lists.of(node).map(|list| list.iter().count()));
        }
        if let Some(rows) = graph.features() {
            check(rows.read(node, &mut vec![0.0; rows.dim()]));
        }
        if let Some(labels) = graph.labels() {
            check(labels.class(node));
            check(labels.bits(node));
        }
        graph.splits().iter().for_each(|split| check(split.part(node)));
        graph.ids().into_iter().for_each(|ids| check(ids.of(node)));
        graph.graphs().into_iter().for_each(|graphs| check(graphs.of(node)));
    }
    (0..graph.n_edges()).for_each(|place| check(graph.edge_of_out_edge(place)));
}

fn store() -> &'static Path {
    static STORE: OnceLock<(TempDir, std::path::PathBuf)> = OnceLock::new();
    let (_, store) = STORE.get_or_init(|| {
        let temp = scratch();
        let out = temp.path().join("store");
        let mut writer = StoreWriter::create(&out).expect("a new store");
        writer.write("indptr", &[0u64, 0, 2, 3]).expect("written");
        writer.write("indices", &[0u32, 2, 1]).expect("written");
        writer.write("out_indptr", &[0u64, 1, 2, 3]).expect("written");
        writer.write("out_indices", &[1u32, 2, 1]).expect("written");
        writer.write("out_edges", &[0u32, 2, 1]).expect("written");
        writer.write("feature_indptr", &[0u64, 2, 2, 3]).expect("written");
        writer.write("feature_indices", &[0u32, 9, 5]).expect("written");
        writer.write("feature_values", &[1.0f32, -2.0, 0.5]).expect("written");
        writer.write("labels", &[0u32, 1, u32::MAX]).expect("written");
        writer.write("split.a", &[1u8, 2, 3]).expect("written");
        writer.write("id_indptr", &[0u64, 1, 3, 5]).expect("written");
        writer.write("id_bytes", "abcé".as_bytes()).expect("written");
        writer.write("graph_of_node", &[0u32, 0, 1]).expect("written");
        let contents = Contents {
            n_nodes: 3,
            n_edges: 3,
            is_symmetric: false,
            features: Some(FeaturesEntry { dim: 10, layout: FeatureLayout::Sparse, dtype: Dtype::F32 }),
            labels: Some(LabelsEntry { kind: LabelKind::Classes, n_classes: 2 }),
            splits: vec!["a".into()],
            ids: Some(IdsEntry::Texts),
            graphs: Some(GraphsEntry { n_graphs: 2, names: vec![] }),
            ..Contents::default()
        };
        writer.finish(contents, Provenance::default()).expect("a whole store");
        (temp, out)
    });
    store
}
