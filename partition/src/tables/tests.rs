//! End-to-end imports of small graphs: every format, every rule for ids, any number of threads.

mod bad;
mod edge_features;
mod nodes;
mod pages;
mod weights;

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, UInt64Array};
use flate2::{Compression, write::GzEncoder};
use kith_draw::{Name, Purpose};
use kith_store::{Dtype, Graph, Manifest, verify};
use parquet::{
    arrow::ArrowWriter,
    file::properties::{WriterProperties, WriterPropertiesBuilder},
};
use tempfile::TempDir;

use super::{IdRule, Tables, import};
use crate::{
    Result,
    csr::{EdgeOptions, MIN_MEMORY_BYTES},
    progress::Quiet,
    raw::{
        lines::mutation::scratch,
        samples::{npy, npy_with},
    },
};

/// A folder for the files of one test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(scratch())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn write_parquet(&self, name: &str, columns: &[(&str, ArrayRef)]) -> PathBuf {
        let packed = WriterProperties::builder().set_compression(parquet::basic::Compression::SNAPPY);
        self.write_parquet_as(name, columns, packed.set_max_row_group_row_count(Some(70)))
    }

    fn write_parquet_as(
        &self,
        name: &str,
        columns: &[(&str, ArrayRef)],
        properties: WriterPropertiesBuilder,
    ) -> PathBuf {
        let path = self.path(name);
        let batch = RecordBatch::try_from_iter(columns.iter().cloned()).unwrap();
        let file = File::create(&path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties.build())).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        path
    }

    /// Imports to a place of its own, looks the store over, and removes it.
    fn import(&self, tables: &Tables) -> Result<Manifest> {
        self.import_and(tables, |_| ())
    }

    fn import_and(&self, tables: &Tables, look: impl FnOnce(&Graph)) -> Result<Manifest> {
        let out = self.path("store");
        let manifest = import(tables, &out, &Quiet);
        match &manifest {
            Ok(_) => {
                assert!(verify(&out, &|_| ()).unwrap().findings.is_empty());
                look(&Graph::open(&out).unwrap());
                fs::remove_dir_all(&out).unwrap();
            }
            Err(_) => assert!(!out.exists(), "a store was left behind"),
        }
        assert!(!self.path("store.draft").exists(), "a draft was left behind");
        manifest
    }
}

fn tables<P: AsRef<Path>>(edges: &[P]) -> Tables {
    Tables {
        edge_weights: None,
        edge_features: Vec::new(),
        targets: Vec::new(),
        edges: edges.iter().map(|path| path.as_ref().to_owned()).collect(),
        rows: Vec::new(),
        labels: Vec::new(),
        split: None,
        n_nodes: None,
        n_classes: None,
        ids: IdRule::Auto,
        edge_options: EdgeOptions::default(),
        dtype: Dtype::F32,
        memory_bytes: MIN_MEMORY_BYTES,
        run_key: 5,
        source: "test".into(),
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Edges with loops and duplicates; the last node has one.
fn edges(n_nodes: u64, n_edges: u64) -> Vec<(u64, u64)> {
    let stream = Name { run_key: 3, purpose: Purpose::Generator, step: 0, layer: 0 }.stream();
    let draw = |place| {
        let mut draws = stream.draws(place, 0, 0);
        (draws.below(n_nodes), draws.below(n_nodes))
    };
    (0..n_edges - 1).map(draw).chain([(0, n_nodes - 1)]).collect()
}

fn lines(edges: &[(u64, u64)], between: &str, end: &str) -> String {
    edges.iter().map(|(source, destination)| format!("{source}{between}{destination}{end}")).collect()
}

/// Contents of a store, without its source.
fn held(manifest: &Manifest) -> String {
    format!("{:?} {:?}", manifest.contents, manifest.columns)
}

/// All edges of a store, in its order of (destination, source).
fn edges_of(graph: &Graph) -> Vec<(u64, u64)> {
    let of_node = |node| graph.lists().of(node).unwrap().iter().map(move |source| (node, source)).collect::<Vec<_>>();
    (0..graph.n_nodes()).flat_map(of_node).collect()
}

#[track_caller]
fn assert_same_edges(graph: &Graph, edges: &[(u64, u64)]) {
    let mut expected: Vec<(u64, u64)> = edges.iter().map(|(source, destination)| (*destination, *source)).collect();
    expected.sort_unstable();
    assert!(edges_of(graph) == expected, "other edges");
}

#[test]
fn all_formats_give_the_same_store() {
    let folder = Folder::new();
    let graph = edges(50, 300);
    let (sources, destinations): (Vec<u64>, Vec<u64>) = graph.iter().copied().unzip();
    let pairs: Vec<i64> = graph.iter().flat_map(|(a, b)| [*a as i64, *b as i64]).collect();
    let by_end: Vec<u32> = sources.iter().chain(&destinations).map(|id| *id as u32).collect();
    let plain = lines(&graph, ",", "\n");
    let expected = folder
        .import_and(&tables(&[folder.write("plain.csv", &plain)]), |store| assert_same_edges(store, &graph))
        .unwrap();
    assert_eq!((expected.contents.n_nodes, expected.contents.ids), (50, None));

    let weighted: String = graph.iter().map(|(a, b)| format!("0.5;{b}; {a} \n")).collect();
    let quoted: String = graph.iter().map(|(a, b)| format!("\"{a}\",\"{b}\",\"x,y\"\n")).collect();
    let column_major = "{'descr': '<u4', 'fortran_order': True, 'shape': (300, 2)}";
    let signed: ArrayRef = Arc::new(Int32Array::from_iter_values(sources.iter().map(|id| *id as i32)));
    let unsigned: ArrayRef = Arc::new(UInt64Array::from_iter_values(destinations.iter().copied()));
    let other: ArrayRef = Arc::new(StringArray::from_iter_values(sources.iter().map(|id| format!("edge {id}"))));
    let files = [
        folder.write("header.csv", format!("source,destination\n{plain}")),
        folder.write("unknown-header.csv", format!("a node,another\n{plain}")),
        folder.write("bom.csv", format!("\u{feff}src,dst\r\n{}\r\n \n", lines(&graph, ",", "\r\n"))),
        folder.write("no-last-newline.csv", plain.trim_end()),
        folder.write("packed.csv.gz", gzip(plain.as_bytes())),
        folder.write("packed-without-saying.csv", gzip(format!("{plain}\n\n").as_bytes())),
        folder.write("by-tabs.tsv", lines(&graph, "\t", "\n")),
        folder.write("snap.txt", format!("# Directed graph\n# FromNodeId\tToNodeId\n{}", lines(&graph, "\t", "\n"))),
        folder.write("spaces.txt", format!("% 300 50 50\n{}", lines(&graph, "  ", " \n"))),
        folder.write("one-space.edges", lines(&graph, " ", "\n")),
        folder.write("weighted.csv", format!("weight;dst;src\n{weighted}")),
        folder.write("quoted.csv", quoted),
        folder.write("pairs.npy", npy(&[300, 2], &pairs)),
        folder.write("by-end.npy", npy(&[2, 300], &by_end)),
        folder.write("column-major.npy", npy_with(column_major, bytemuck::cast_slice(&by_end))),
        folder.write_parquet(
            "named.parquet",
            &[("dst", unsigned.clone()), ("x", other.clone()), ("src", signed.clone())],
        ),
        folder.write_parquet("first-two.parquet", &[("a", signed), ("b", unsigned), ("c", other)]),
    ];
    for file in &files {
        let found = folder.import(&tables(std::slice::from_ref(file))).unwrap();
        assert_eq!(held(&found), held(&expected), "{file:?}");
    }

    folder.write("parts/b.csv", lines(&graph[..100], ",", "\n"));
    folder.write("parts/a.tsv", format!("from\tto\n{}", lines(&graph[100..150], "\t", "\n")));
    folder.write("parts/c.csv.gz", gzip(lines(&graph[150..200], ",", "\n").as_bytes()));
    folder.write("parts/d.csv", "source,destination\n");
    let rest = folder.write("rest.npy", npy(&[100, 2], &pairs[400..]));
    let found = folder.import(&tables(&[folder.path("parts"), rest])).unwrap();
    assert_eq!(held(&found), held(&expected));
    assert_eq!(found.provenance.counted["edge_files"], 5);
    assert_eq!(found.provenance.counted["edges_read"], 300);
}

#[test]
fn edge_options_reach_the_lists() {
    let folder = Folder::new();
    let options = EdgeOptions { symmetrize: true, drop_loops: true, merge_duplicates: true };
    let edges = folder.write("e.csv", "0,1\n1,0\n1,1\n2,1\n");
    let manifest = folder.import(&Tables { edge_options: options, ..tables(&[edges]) }).unwrap();
    assert_eq!((manifest.contents.n_edges, manifest.contents.is_symmetric), (4, true));
    assert_eq!(manifest.provenance.counted["loops_dropped"], 1);
}

#[test]
fn numbers_are_mapped_in_ascending_order() {
    let folder = Folder::new();
    let graph = edges(40, 200);
    let id_of = |node: u64| (1 << 60) + node * node * 1_000_003;
    let named: Vec<(u64, u64)> = graph.iter().map(|(a, b)| (id_of(*a), id_of(*b))).collect();
    let used: std::collections::BTreeSet<u64> = graph.iter().flat_map(|(a, b)| [*a, *b]).collect();
    assert_eq!(used.len(), 40, "every node has an edge");
    let look = |store: &Graph| {
        assert_same_edges(store, &graph);
        for node in 0..40 {
            assert_eq!(store.ids().unwrap().of(node).unwrap(), id_of(node).to_string());
        }
    };
    let csv = folder.write("e.csv", lines(&named, ",", "\n"));
    let found = folder.import_and(&tables(std::slice::from_ref(&csv)), look).unwrap();
    assert_eq!(found.provenance.options["ids"], "mapped numbers");
    let mut backward = named.clone();
    backward.reverse();
    let [first, second] = [&backward[..33], &backward[33..]].map(|half| half.iter().flat_map(|(a, b)| [*a, *b]));
    let first = folder.write("1.npy", npy(&[33, 2], &first.collect::<Vec<_>>()));
    let second = folder.write("2.npy", npy(&[167, 2], &second.collect::<Vec<_>>()));
    let other = folder.import_and(&tables(&[first, second]), look).unwrap();
    assert_eq!(held(&found), held(&other));

    let given = folder.import(&Tables { n_nodes: Some(40), ids: IdRule::Mapped, ..tables(&[&csv]) }).unwrap();
    assert_eq!(held(&given), held(&found));
    let small = folder.write("small.csv", "0,1\n5,7\n");
    let mapped = folder.import(&Tables { ids: IdRule::Mapped, ..tables(&[&small]) }).unwrap();
    assert_eq!((mapped.contents.n_nodes, mapped.contents.ids.is_some()), (4, true));
    assert_eq!(folder.import(&tables(&[small])).unwrap().contents.n_nodes, 8);
}

#[test]
fn the_largest_numbers_are_ids_too() {
    let folder = Folder::new();
    let edges = folder.write("e.csv", format!("{},0\n0,{}\n", u64::MAX, u64::MAX - 1));
    let manifest = folder
        .import_and(&tables(&[edges]), |store| {
            assert_eq!(edges_of(store), [(0, 2), (1, 0)]);
            assert_eq!(store.ids().unwrap().of(2).unwrap(), u64::MAX.to_string());
        })
        .unwrap();
    assert_eq!(manifest.contents.n_nodes, 3);
}

#[test]
fn texts_are_mapped_by_their_bytes() {
    let folder = Folder::new();
    let text = "head line,is text\nzoë,Adam\nadam,\"Smith, J.\"\nAdam,zoë\n";
    let expected = ["Adam", "Smith, J.", "adam", "head line", "is text", "zoë"];
    let look = |store: &Graph| {
        let ids: Vec<_> = (0..store.n_nodes()).map(|node| store.ids().unwrap().of(node).unwrap()).collect();
        assert_eq!(ids, expected);
        assert_eq!(edges_of(store), [(0, 5), (1, 2), (4, 3), (5, 0)]);
    };
    let found = folder.import_and(&tables(&[folder.write("e.csv", text)]), look).unwrap();
    assert_eq!(found.provenance.options["ids"], "mapped texts");
    let packed = folder.write("e.csv.gz", gzip(format!("Source,Target\n{text}").as_bytes()));
    assert_eq!(held(&folder.import_and(&tables(&[packed]), look).unwrap()), held(&found));
    let array = |texts: [&str; 4]| Arc::new(StringArray::from_iter_values(texts)) as ArrayRef;
    let parquet = folder.write_parquet(
        "e.parquet",
        &[
            ("src", array(["head line", "zoë", "adam", "Adam"])),
            ("dst", array(["is text", "Adam", "Smith, J.", "zoë"])),
        ],
    );
    assert_eq!(held(&folder.import_and(&tables(&[parquet]), look).unwrap()), held(&found));

    let numbers = folder.write("n.csv", "10,9\n9,x\n");
    let as_texts = |store: &Graph| assert_eq!(edges_of(store), [(1, 0), (2, 1)]);
    folder.import_and(&Tables { ids: IdRule::Texts, ..tables(&[numbers]) }, as_texts).unwrap();
}

#[test]
fn any_number_of_threads_gives_the_same_store() {
    let folder = Folder::new();
    let graph = edges(70_000, 400_000);
    let far = |node: u64| node * 1_000_000_007;
    let mapped: Vec<(u64, u64)> = graph.iter().map(|(a, b)| (far(*a), far(*b))).collect();
    let texts: String = graph.iter().map(|(a, b)| format!("n{a} n{b}\n")).collect();
    let columns = ["src", "dst"].into_iter().zip([0, 1].map(|end| {
        let ids = graph.iter().take(50_000).map(|(a, b)| if end == 0 { *a as i64 } else { *b as i64 });
        Arc::new(Int64Array::from_iter_values(ids)) as ArrayRef
    }));
    let inputs = [
        folder.write("dense.csv", lines(&graph, ",", "\n")),
        folder.write("mapped.tsv", lines(&mapped, "\t", "\r\n")),
        folder.write("texts.txt", texts),
        folder.write_parquet("dense.parquet", &columns.collect::<Vec<_>>()),
    ];
    assert!(fs::metadata(&inputs[0]).unwrap().len() > 3 << 20, "several pieces");
    for input in &inputs {
        let stores = [1, 2, 5].map(|n_threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            pool.install(|| held(&folder.import(&tables(std::slice::from_ref(input))).unwrap()))
        });
        assert!(stores.iter().all(|store| *store == stores[0]), "{input:?}");
    }
    let look = |store: &Graph| assert_same_edges(store, &graph);
    folder.import_and(&tables(&inputs[..1]), look).unwrap();
    folder
        .import_and(&tables(&inputs[1..2]), |store| {
            let node_of = |id: u64| store.ids().unwrap().of(id).unwrap().parse::<u64>().unwrap() / 1_000_000_007;
            let found: Vec<_> = edges_of(store).iter().map(|(a, b)| (node_of(*b), node_of(*a))).collect();
            let (mut found, mut expected) = (found, graph.clone());
            found.sort_unstable();
            expected.sort_unstable();
            assert!(found == expected);
        })
        .unwrap();
}

#[test]
fn mapping_spills_to_disk_within_the_limit() {
    let folder = Folder(TempDir::new().unwrap());
    let graph = edges(300_000, 2_500_000);
    let ids: Vec<u64> = graph.iter().flat_map(|(a, b)| [a << 20, b << 20]).collect();
    // Keys of 16 bytes each: about twice what may wait in memory.
    assert!(graph.len() as u64 * 16 > MIN_MEMORY_BYTES / 2);
    let edges = folder.write("e.npy", npy(&[graph.len(), 2], &ids));
    let mapped = folder.import(&Tables { ids: IdRule::Mapped, ..tables(&[edges]) }).unwrap();
    let dense: Vec<u64> = graph.iter().flat_map(|(a, b)| [*a, *b]).collect();
    let dense = folder.write("d.npy", npy(&[graph.len(), 2], &dense));
    let dense = folder.import(&Tables { ids: IdRule::Mapped, ..tables(&[dense]) }).unwrap();
    for name in ["indptr", "indices", "out_edges"] {
        assert_eq!(mapped.column(name), dense.column(name));
    }
}

#[test]
fn lines_longer_than_a_piece_and_at_its_edges() {
    let folder = Folder::new();
    let graph = edges(1000, 30_000);
    let long = "x".repeat(700_000);
    let text: String = graph
        .iter()
        .enumerate()
        .map(|(at, (a, b))| if at % 9_000 == 5 { format!("{a},{b},{long}\n") } else { format!("{a},{b}\n") })
        .collect();
    let plain = folder.write("e.csv", &text);
    folder.import_and(&tables(&[plain]), |store| assert_same_edges(store, &graph)).unwrap();
    let packed = folder.write("e.csv.gz", gzip(text.as_bytes()));
    folder.import_and(&tables(&[packed]), |store| assert_same_edges(store, &graph)).unwrap();
}

#[test]
fn a_store_is_never_overwritten() {
    let folder = Folder::new();
    let edges = folder.write("e.csv", "0,1\n");
    let out = folder.write("store/file", "");
    let error = import(&tables(&[edges]), out.parent().unwrap_or(Path::new("")), &Quiet).unwrap_err().to_string();
    assert!(error.contains("already exists"), "{error}");
}
