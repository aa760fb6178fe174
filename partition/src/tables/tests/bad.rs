//! Bad input of every kind: an error with file and place, and no store left behind.

use std::{path::PathBuf, sync::Arc};

use arrow_array::{
    ArrayRef, BooleanArray, Float32Array, Int64Array, StringArray,
    builder::{Float32Builder, ListBuilder},
};

use parquet::file::properties::{WriterProperties, WriterVersion};

use super::{Folder, edges, gzip, lines, tables};
use crate::{
    csr::MIN_MEMORY_BYTES,
    raw::{
        lines::mutation::each_mutation,
        samples::{npy, npy_of, npy_with},
    },
    tables::{Fractions, IdRule, PerClass, SplitRule, Tables},
};

const RING: &str = "0,1\n1,2\n2,3\n3,0\n";

#[track_caller]
fn refused(folder: &Folder, tables: &Tables, expected: &str) {
    let error = folder.import(tables).map(|manifest| manifest.contents).unwrap_err().to_string();
    assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    assert!(!error.ends_with('.') && !error.contains('\n'), "{error:?} is not one sentence");
}

#[test]
fn bad_edges_are_named() {
    let folder = Folder::new();
    let dense = |text: &str| text.replace(' ', ",");
    for (name, bytes, expected) in [
        ("a.csv", b"".to_vec(), "a.csv: end of file: holds no edges"),
        ("a.csv", b"source,destination\n".to_vec(), "a.csv: end of file: holds no edges"),
        ("a.csv", b"# nothing\n\n".to_vec(), "a.csv: end of file: holds no edges"),
        ("a.csv", b"0,1\n1\n".to_vec(), "a.csv: line 2: expected at least 2 fields, found 1 in \"1\""),
        ("a.csv", b"0,1\n1,x\n".to_vec(), "a.csv: line 2: \"x\" is not a whole number from 0 up: --ids texts takes"),
        ("a.csv", b"src,dst\n0,1\n1,-1\n".to_vec(), "a.csv: line 3: \"-1\" is not a whole number"),
        ("a.csv", b"# c\n0,1\n\n1,2\n".to_vec(), "a.csv: line 3: is empty, but more lines follow"),
        ("a.csv", b"0,1\n1,\"2\n".to_vec(), "a.csv: line 2: a quote is not closed"),
        (
            "a.csv",
            b"0,1\n1,99999999999999999999\n".to_vec(),
            "line 2: \"99999999999999999999\" does not fit in 64 bits",
        ),
        ("a.csv", b"a,b\nc,\n".to_vec(), "a.csv: line 2: an id is empty"),
        ("a.csv", b"a,b\nc,\xff\n".to_vec(), "a.csv: line 2: \"\u{fffd}\" is not utf-8"),
        ("a.csv", b"only\n".to_vec(), "a.csv: line 1: expected at least 2 fields, found 1"),
        ("a.txt", b"\x00\x01\x02".to_vec(), "a.txt: line 1: expected at least 2 fields"),
        ("a.csv.gz", gzip(RING.as_bytes())[..14].to_vec(), "a.csv.gz: line 1: the gzip data is broken"),
        ("b.csv.gz", gzip(b"0,1\n0,1\nx,1\n"), "b.csv.gz: line 3: \"x\" is not a whole number"),
        ("b.csv.gz", gzip(b"0,1\n\n\n2,1\n"), "b.csv.gz: line 2: is empty"),
        ("a.npy", b"nothing".to_vec(), "a.npy: header: "),
        ("a.npy", npy(&[3], &[1i64, 2, 3]), "a.npy: header: edges have shape (n, 2) or (2, n), not (3,)"),
        ("a.npy", npy(&[1, 3], &[1i64, 2, 3]), "not (1, 3)"),
        ("a.npy", npy(&[2, 2], &[1i64, 2, -3, 1]), "a.npy: item 2: -3 is not a whole number"),
        ("a.npy", npy(&[1, 2], &[1f32, 2.]), "a.npy: header: items are F32 where whole numbers are needed"),
        ("a.npy", npy_of("|b1", "(1, 2)", &[0, 1]), "items are Bool where whole numbers are needed"),
        ("a.npy", npy(&[0, 2], &[0i64; 0]), "a.npy: end of file: holds no edges"),
        ("a.parquet", b"PAR1".to_vec(), "a.parquet: footer: cannot be read as parquet"),
        ("a.parquet", b"PAR1....\xff\xff\xff\x7fPAR1".to_vec(), "a.parquet: footer: cannot be read as parquet"),
        ("a.json", b"{}".to_vec(), "a.json: name: has none of the endings"),
        ("a", b"0,1".to_vec(), "a: name: has none of the endings"),
    ] {
        refused(&folder, &tables(&[folder.write(name, bytes)]), expected);
    }
    let given = Tables { n_nodes: Some(3), ..tables(&[folder.write("a.csv", RING)]) };
    refused(&folder, &given, "a.csv: line 3: node 3 is outside 0..3: --nodes says how many there are");
    let given = Tables { n_nodes: Some(3), ..tables(&[folder.write("a.npy", npy(&[2, 2], &[0u8, 1, 4, 2]))]) };
    refused(&folder, &given, "a.npy: edge 1: node 4 is outside 0..3");
    let given = Tables { n_nodes: Some(3), ..tables(&[folder.write("a.csv", "a,b\n")]) };
    refused(&folder, &given, "--nodes 3, and the tables name 2 ids, which are mapped");
    let huge = folder.write("a.csv", dense("0 2000000000000\n"));
    refused(&folder, &Tables { ids: IdRule::Dense, ..tables(&[huge]) }, "have to be mapped: --ids mapped");
    let texts = folder.write("a.csv", "a,b\nc,d\n");
    refused(&folder, &Tables { ids: IdRule::Dense, ..tables(&[texts]) }, "a.csv: line 2: \"c\" is not a whole number");
    refused(&folder, &tables::<PathBuf>(&[]), "no edges: --edges names");
    refused(&folder, &tables(&[folder.path("none.csv")]), "none.csv: No such file");
    let small = Tables { memory_bytes: 1 << 20, ..tables(&[folder.write("a.csv", RING)]) };
    refused(&folder, &small, "at least 64 MiB are needed");
}

#[test]
fn the_first_of_several_errors_is_told() {
    let folder = Folder::new();
    let mut text = lines(&edges(1000, 700_000), ",", "\n");
    text.replace_range(5_000_000..5_000_001, "x");
    let line = 1 + text[..5_000_000].matches('\n').count();
    text.push_str("y,z\n");
    let path = folder.write("e.csv", text);
    for n_threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        pool.install(|| refused(&folder, &tables(&[&path]), &format!("e.csv: line {line}: ")));
    }
}

#[test]
fn long_lines_are_refused() {
    let folder = Folder::new();
    let text = format!("0,1\n1,2,{}\n2,3\n", "x".repeat(5 << 20));
    let expected = "line 2: is longer than 1048576 bytes";
    refused(&folder, &tables(&[folder.write("e.csv", &text)]), expected);
    refused(&folder, &tables(&[folder.write("e.csv.gz", gzip(text.as_bytes()))]), expected);
    let text = format!("{},1\n", "0".repeat(2 << 20));
    refused(&folder, &tables(&[folder.write("f.csv", &text)]), "line 1: is longer than 1048576 bytes");
}

#[test]
fn bad_folders_are_named() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("empty")).unwrap();
    refused(&folder, &tables(&[folder.path("empty")]), "empty: folder: holds no files");
    folder.write("mixed/a.csv", RING);
    folder.write("mixed/b.log", RING);
    refused(&folder, &tables(&[folder.path("mixed")]), "b.log: name: has none of the endings");
    folder.write("hidden/a.csv", RING);
    folder.write("hidden/.b.csv", RING);
    refused(&folder, &tables(&[folder.path("hidden")]), ".b.csv: name: is a hidden file");
    folder.write("deep/a.csv/b.csv", RING);
    refused(&folder, &tables(&[folder.path("deep")]), "a.csv: name: is a folder inside a folder");
    folder.write("kinds/a.csv", RING);
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    folder.write_parquet("kinds/b.parquet", &[("src", texts.clone()), ("dst", texts)]);
    refused(&folder, &tables(&[folder.path("kinds")]), "b.parquet: columns: ids are texts here, and numbers before");
}

#[test]
fn bad_parquet_is_named() {
    let folder = Folder::new();
    let whole: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, 2]));
    let negative: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, -2]));
    let gaps: ArrayRef = Arc::new(Int64Array::from(vec![Some(0), None, Some(1)]));
    let floats: ArrayRef = Arc::new(Float32Array::from(vec![0., f32::NAN, 2.]));
    let truths: ArrayRef = Arc::new(BooleanArray::from(vec![true, false, true]));
    for (columns, expected) in [
        (vec![("a", whole.clone())], "columns: edges need two columns"),
        (vec![("src", whole.clone()), ("dst", floats.clone())], "columns: src and dst are neither both whole numbers"),
        (vec![("src", whole.clone()), ("dst", negative)], "e.parquet: row 2: -2 is not a whole number from 0 up"),
        (vec![("src", whole.clone()), ("dst", gaps.clone())], "e.parquet: row 1: a value is missing"),
    ] {
        refused(&folder, &tables(&[folder.write_parquet("e.parquet", &columns)]), expected);
    }
    let edges = folder.write("e.csv", "0,1\n1,2\n");
    let mut lists = ListBuilder::new(Float32Builder::new());
    for length in [2, 2, 1] {
        lists.append_value((0..length).map(|_| Some(1.0)));
    }
    for (columns, expected) in [
        (vec![("a", floats)], "r.parquet: row 1: NaN is not a finite number"),
        (vec![("a", gaps)], "r.parquet: row 1: a value is missing"),
        (vec![("a", truths)], "r.parquet: columns: a holds Boolean where numbers are needed"),
        (vec![("a", Arc::new(lists.finish()) as ArrayRef)], "row 2: a list of 1 numbers, and the first list has 2"),
        (vec![("id", whole)], "r.parquet: columns: rows of 0 numbers where 1 are needed"),
    ] {
        let rows = folder.write_parquet("r.parquet", &columns);
        refused(&folder, &Tables { rows: vec![rows], ..tables(&[&edges]) }, expected);
    }
}

#[test]
fn bad_rows_are_named() {
    let folder = Folder::new();
    let ring = folder.write("e.csv", RING);
    let column_major = "{'descr': '<f4', 'fortran_order': True, 'shape': (4, 2)}";
    for (name, bytes, expected) in [
        ("r.npy", npy(&[6, 2], &[0f32; 12]), "r.npy: rows: 6 rows for 4 nodes in the edges: --nodes 6 says"),
        ("r.npy", npy(&[3, 2], &[0f32; 6]), "r.npy: rows: 3 rows for 4 nodes in the edges: one is needed for each"),
        ("r.npy", npy(&[4, 0], &[0f32; 0]), "r.npy: columns: rows of 0 numbers"),
        ("r.npy", npy(&[4, 1, 1], &[0f32; 4]), "r.npy: header: shape (4, 1, 1)"),
        ("r.npy", npy_with(column_major, &[0; 32]), "r.npy: header: lies column after column"),
        ("r.npy", npy(&[4, 1], &[0., 1., f32::INFINITY, 2.]), "r.npy: item 2: inf is not a finite"),
        ("r.csv", b"1,2\n3,x\n".to_vec(), "r.csv: line 2: \"x\" is not a number"),
        ("r.csv", b"1,2\n3,nan\n".to_vec(), "r.csv: line 2: \"nan\" is not a finite number"),
        ("r.csv", b"1,2\n3,4,5\n".to_vec(), "r.csv: line 2: 3 numbers where 2 are needed"),
        ("r.csv", b"id,a\n0,1\n1,2\n3,4\n".to_vec(), "r.csv: rows: no row has the id 2, and every node needs one"),
        ("r.csv", b"id,a\n0,1\n1,2\n2,4\n".to_vec(), "r.csv: rows: no row has the id 3"),
        ("r.csv", b"id,a\n0,1\n3,2\n3,4\n".to_vec(), "r.csv: line 4: id 3 stands there twice"),
        ("r.csv", b"id,a\n0,1\nb,2\n".to_vec(), "r.csv: line 3: \"b\" is not a whole number"),
    ] {
        let rows = folder.write(name, bytes);
        refused(&folder, &Tables { rows: vec![rows], ..tables(&[&ring]) }, expected);
    }
    let large = folder.write("r.npy", npy(&[4, 1], &[0., 1., 7e4f32, 2.]));
    let tables_of = |rows| Tables { rows: vec![rows], ..tables(&[&ring]) };
    let narrow = Tables { dtype: kith_store::Dtype::F16, ..tables_of(large.clone()) };
    refused(&folder, &narrow, "r.npy: row 2: 70000 does not fit in f16: --dtype f32 keeps it");
    let mapped = Tables { ids: IdRule::Mapped, ..tables_of(large) };
    refused(&folder, &mapped, "r.npy: columns: has no id column, and ids are mapped");
    let given = Tables { n_nodes: Some(4), ..tables_of(folder.write("r.npy", npy(&[6, 1], &[0f32; 6]))) };
    refused(&folder, &given, "6 rows for 4 nodes, as many as --nodes says");
}

#[test]
fn bad_labels_are_named() {
    let folder = Folder::new();
    let ring = folder.write("e.csv", RING);
    for (name, bytes, expected) in [
        ("l.csv", b"1\n0\n".to_vec(), "l.csv: labels: 2 labels for 4 nodes in the edges"),
        ("l.csv", b"1\n0\nx\n1\n".to_vec(), "l.csv: line 3: \"x\" is not a whole number, as the labels before are"),
        ("l.csv", b"0,1\n2,0\n2,0\n".to_vec(), "l.csv: line 3: id 2 stands there twice"),
        ("l.csv", b"id,label\n0,1\n0,0\n".to_vec(), "l.csv: line 3: id 0 stands there twice"),
        ("l.csv", b"0,5000000000\n".to_vec(), "l.csv: line 1: label 5000000000 is too large for a class"),
        ("l.csv", b"-1\n-1\n-1\n-1\n".to_vec(), "l.csv: labels: no node has a label"),
        ("l.csv", b"".to_vec(), "l.csv: labels: 0 labels for 4 nodes"),
        ("l.csv", b"1\n\n0\n1\n".to_vec(), "l.csv: line 2: is empty"),
        ("l.npy", npy(&[4], &[0.5f32; 4]), "l.npy: header: items are F32"),
        ("l.npy", npy(&[4, 2], &[0u8, 1, 1, 2, 0, 0, 0, 0]), "l.npy: row 1: 2 for class 1 is neither 0 nor 1"),
        ("l.npy", npy(&[3, 2], &[0u8; 6]), "l.npy: labels: 3 labels for 4 nodes"),
        ("l.parquet", b"".to_vec(), "l.parquet: name: labels are read from csv, tsv and npy"),
    ] {
        let labels = folder.write(name, bytes);
        refused(&folder, &Tables { labels: vec![labels], ..tables(&[&ring]) }, expected);
    }
    let beyond = |labels, expected: &str| {
        let tables = Tables { labels: vec![labels], n_classes: Some(2), ..tables(&[&ring]) };
        refused(&folder, &tables, expected);
    };
    beyond(folder.write("l.csv", "0\n1\n2\n0\n"), "l.csv: line 3: label 2 is outside 0..2, which --classes says");
    beyond(
        folder.write("l.csv", "a\nb\nc\na\n"),
        "l.csv: line 3: more different labels than the 2 that --classes says",
    );
    beyond(folder.write("l.npy", npy(&[4], &[0u8, 1, 1, 9])), "l.npy: item 3: label 9 is outside 0..2");
    beyond(folder.write("l.npy", npy(&[4, 3], &[0u8; 12])), "l.npy: header: 3 classes where --classes says 2");
}

#[test]
fn bad_splits_are_named() {
    let folder = Folder::new();
    let ring = folder.write("e.csv", RING);
    let with = |split| Tables { split: Some(split), ..tables(&[&ring]) };
    for (name, bytes, expected) in [
        ("s.csv", &b"0,train\n1,nothing\n"[..], "s.csv: line 2: \"nothing\" is none of train, valid and test"),
        ("s.csv", b"0,train\n9,test\n", "s.csv: line 2: node 9 is outside 0..4"),
        ("s.csv", b"0,train\n1,test\n0,test\n", "s.csv: line 3: id 0 stands there twice"),
        ("s.csv", b"train\ntest\n", "s.csv: parts: 2 parts for 4 nodes"),
        ("s.csv", b"", "s.csv: end of file: holds no parts"),
        ("s.npy", b"", "s.npy: name: an id and a part on each line"),
    ] {
        refused(&folder, &with(SplitRule::Path(folder.write(name, bytes))), expected);
    }
    let far = folder.write("f.csv", "7,900000\n900000,5000000\n");
    let unknown = SplitRule::Path(folder.write("s.csv", "id,part\n7,train\n8,test\n"));
    refused(&folder, &Tables { split: Some(unknown), ..tables(&[far]) }, "s.csv: line 3: 8 is not the id of any node");
    let texts = folder.write("t.csv", "a,b\n");
    let unknown = SplitRule::Path(folder.write("s.csv", "a,train\nc,test\n"));
    refused(&folder, &Tables { split: Some(unknown), ..tables(&[texts]) }, "s.csv: line 2: \"c\" is not the id of any");

    folder.write("d/train.csv", "0\n");
    folder.write("d/test.csv", "1\n");
    refused(&folder, &with(SplitRule::Path(folder.path("d"))), "d: folder: holds 0 files for valid, not one");
    folder.write("d/valid.csv", "2\n1\n");
    refused(&folder, &with(SplitRule::Path(folder.path("d"))), "d/valid.csv: line 2: id 1 stands there twice");
    folder.write("d/more.csv", "3\n");
    refused(&folder, &with(SplitRule::Path(folder.path("d"))), "more.csv: name: is none of train, valid and test");
    folder.write("m/train.npy", npy_of("|b1", "(4,)", &[0, 1, 1, 0]));
    refused(&folder, &with(SplitRule::Path(folder.path("m"))), "train.npy: header: items are Bool");

    let fractions = SplitRule::Fractions(Fractions { train: 0.8, valid: 0.3, test: 0.1 });
    refused(&folder, &with(fractions), "shares are 0 to 1 and add up to at most 1");
    let per_class = SplitRule::PerClass(PerClass { train: 1, valid: 1, test: None });
    refused(&folder, &with(per_class.clone()), "a split per class needs --labels");
    let bits = folder.write("l.npy", npy(&[4, 2], &[1u8; 8]));
    refused(&folder, &Tables { labels: vec![bits], ..with(per_class) }, "nodes have several classes each");
}

#[test]
fn too_many_texts_say_what_they_need() {
    let folder = Folder::new();
    let text: String = (0..60_000).map(|at| format!("{at:0>150}x,{at:0>150}y\n")).collect();
    let tables = tables(&[folder.write("e.csv", text)]);
    assert_eq!(tables.memory_bytes, MIN_MEMORY_BYTES);
    refused(&folder, &tables, "MiB so far, and --memory leaves them 16 MiB: give more, or use numbers");
}

/// Reads every damaged copy as edges, as rows, as labels and as a split: an answer or a sentence, never a panic.
fn survive(name: &str, bytes: &[u8], n: u64) {
    let folder = Folder::new();
    let ring = folder.write("ring.csv", RING);
    let damaged_path = folder.path(name);
    let mut n_good = 0;
    each_mutation(bytes, n, |damaged| {
        std::fs::write(&damaged_path, damaged).unwrap();
        let path = vec![damaged_path.clone()];
        let tables = [
            tables(&path),
            Tables { rows: path.clone(), ..tables(&[&ring]) },
            Tables { labels: path.clone(), ..tables(&[&ring]) },
            Tables { split: Some(SplitRule::Path(damaged_path.clone())), ..tables(&[&ring]) },
        ];
        n_good += tables.iter().filter(|tables| folder.import(tables).is_ok()).count();
    });
    assert!(n_good < 4 * n as usize);
}

#[test]
fn damaged_texts_never_panic() {
    survive("t.csv", b"id,label\n0,1\n1,train\n2,0\r\n3,\"2\"\n", 150);
    survive("t.txt", b"# c\n0 1\n1 2\n2\t3\n", 100);
    survive("t.csv.gz", &gzip(b"0,1\n1,2\n2,3\n3,0\n"), 100);
}

#[test]
fn damaged_arrays_never_panic() {
    survive("t.npy", &npy(&[4, 2], &[0i64, 1, 1, 2, 2, 3, 3, 0]), 150);
}

#[test]
fn damaged_parquet_never_panics() {
    let folder = Folder::new();
    let whole: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, 2, 3]));
    let other: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 0]));
    let path = folder.write_parquet("t.parquet", &[("id", whole.clone()), ("x", other)]);
    survive("t.parquet", &std::fs::read(path).unwrap(), 400);
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "a", "c"]));
    let columns = [("src", texts.clone()), ("dst", texts)];
    survive("t.parquet", &std::fs::read(folder.write_parquet("t.parquet", &columns)).unwrap(), 400);
    // The encodings of the second version, whose decoders panic more often.
    let second = WriterProperties::builder().set_writer_version(WriterVersion::PARQUET_2_0);
    let path = folder.write_parquet_as("t.parquet", &columns, second.set_dictionary_enabled(false));
    survive("t.parquet", &std::fs::read(path).unwrap(), 400);
    let mut lists = ListBuilder::new(Float32Builder::new());
    (0..4).for_each(|row| lists.append_value([Some(row as f32), Some(1.0)]));
    let path = folder.write_parquet("t.parquet", &[("id", whole), ("row", Arc::new(lists.finish()))]);
    survive("t.parquet", &std::fs::read(path).unwrap(), 400);
}
