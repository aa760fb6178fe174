//! wiki-cs: links between Wikipedia pages on computer science, all in one `data.json`.

use std::{fmt, marker::PhantomData, path::Path};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, SeqAccess, Visitor},
};

use crate::{
    PartitionError, Result,
    raw::{RawGraph, RawLabels, RawRows, RawSplit, SplitPart, lines::read_json},
};

/// The dataset has ten classes.
pub const N_CLASSES: u32 = 10;

/// Reads `data.json` in `dir`, of at most `limit_bytes` bytes. Its splits are `official-0`, `official-1` …
pub fn read(dir: &Path, limit_bytes: u64) -> Result<RawGraph> {
    let path = dir.join("data.json");
    let data = read_json(&path, limit_bytes, PhantomData::<Data>)?;
    assemble(data).map_err(|(place, problem)| PartitionError::input(&path, place, problem))
}

/// Members of the file that are read; others, such as `stopping_masks`, are ignored.
#[derive(Deserialize)]
struct Data {
    features: Lists<f32>,
    labels: Vec<u32>,
    links: Lists<u32>,
    train_masks: Lists<bool>,
    val_masks: Lists<bool>,
    test_mask: Vec<bool>,
}

/// Place in the file, and the problem there.
type Problem = (String, String);

fn assemble(data: Data) -> Result<RawGraph, Problem> {
    let Data { features, labels, links, train_masks, val_masks, test_mask } = data;
    let n_nodes = match u32::try_from(features.len()) {
        Ok(n_nodes) if n_nodes > 0 => n_nodes,
        _ => return Err(("features".into(), format!("has {} rows", features.len()))),
    };
    for (member, len) in [("labels", labels.len()), ("links", links.len()), ("test_mask", test_mask.len())] {
        if len != features.len() {
            return Err((member.into(), format!("has {len} entries, but features has {n_nodes}")));
        }
    }
    let splits = assemble_splits(&train_masks, &val_masks, &test_mask)?;
    let edges = assemble_edges(&links, n_nodes)?;
    let rows = assemble_rows(features)?;
    if let Some(node) = labels.iter().position(|label| *label >= N_CLASSES) {
        return Err((format!("labels[{node}]"), format!("{} is outside 0..{N_CLASSES}", labels[node])));
    }
    let labels = RawLabels::Classes { n_classes: N_CLASSES, classes: labels };
    Ok(RawGraph { n_nodes, edges, rows: Some(rows), labels: Some(labels), splits, ..RawGraph::default() })
}

fn assemble_rows(features: Lists<f32>) -> Result<RawRows, Problem> {
    let dim = features.list(0).len();
    if dim == 0 {
        return Err(("features[0]".into(), "is an empty row".into()));
    }
    for node in 0..features.len() {
        let row = features.list(node);
        if row.len() != dim {
            let problem = format!("has {} values, but features[0] has {dim}", row.len());
            return Err((format!("features[{node}]"), problem));
        }
    }
    let dim = u32::try_from(dim).map_err(|_| ("features[0]".to_owned(), format!("has {dim} values")))?;
    Ok(RawRows::Dense { dim, values: features.values })
}

fn assemble_edges(links: &Lists<u32>, n_nodes: u32) -> Result<Vec<[u32; 2]>, Problem> {
    let mut edges = Vec::with_capacity(links.values.len());
    for source in 0..n_nodes {
        for destination in links.list(source as usize) {
            if *destination >= n_nodes {
                return Err((format!("links[{source}]"), format!("node {destination} is outside 0..{n_nodes}")));
            }
            edges.push([source, *destination]);
        }
    }
    Ok(edges)
}

fn assemble_splits(train: &Lists<bool>, valid: &Lists<bool>, test: &[bool]) -> Result<Vec<RawSplit>, Problem> {
    if train.len() != valid.len() || train.len() == 0 {
        let problem = format!("has {} lists and train_masks {}, expected 20 each", valid.len(), train.len());
        return Err(("val_masks".into(), problem));
    }
    let mut splits = Vec::new();
    for split in 0..train.len() {
        let (train, valid) = (train.list(split), valid.list(split));
        for (member, len) in [("train_masks", train.len()), ("val_masks", valid.len())] {
            if len != test.len() {
                let problem = format!("has {len} entries, but there are {} nodes", test.len());
                return Err((format!("{member}[{split}]"), problem));
            }
        }
        let mut parts = Vec::with_capacity(test.len());
        for (node, ((train, valid), test)) in train.iter().zip(valid).zip(test).enumerate() {
            parts.push(match (train, valid, test) {
                (false, false, false) => SplitPart::None,
                (true, false, false) => SplitPart::Train,
                (false, true, false) => SplitPart::Valid,
                (false, false, true) => SplitPart::Test,
                _ => {
                    let problem = format!("node {node} is in more than one of train, valid and test");
                    return Err((format!("train_masks[{split}], val_masks[{split}], test_mask"), problem));
                }
            });
        }
        splits.push(RawSplit { name: format!("official-{split}"), parts });
    }
    Ok(splits)
}

/// A list of lists, its values one after the other.
struct Lists<T> {
    ends: Vec<usize>,
    values: Vec<T>,
}

impl<T> Lists<T> {
    /// Number of lists.
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn list(&self, place: usize) -> &[T] {
        let start = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.values[start..self.ends[place]]
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Lists<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Outer(PhantomData))
    }
}

struct Outer<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Outer<T> {
    type Value = Lists<T>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of lists")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Lists<T>, A::Error> {
        let mut lists = Lists { ends: Vec::new(), values: Vec::new() };
        while list.next_element_seed(Inner(&mut lists.values))?.is_some() {
            lists.ends.push(lists.values.len());
        }
        Ok(lists)
    }
}

/// Appends the values of one list.
struct Inner<'a, T>(&'a mut Vec<T>);

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Inner<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Inner<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list inside a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(value) = list.next_element()? {
            self.0.push(value);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        dataset::real_files,
        raw::lines::mutation::{assert_whole, each_mutation, part_sizes, scratch},
    };

    fn read_bytes(bytes: &[u8]) -> Result<RawGraph, String> {
        let dir = scratch();
        fs::write(dir.path().join("data.json"), bytes).unwrap();
        let folder = format!("{}/", dir.path().display());
        read(dir.path(), 1 << 20).map_err(|error| error.to_string().replace(&folder, ""))
    }

    /// A file of five nodes with `n_splits` splits and rows of length `dim`, as Python's json writes them.
    fn made(n_splits: usize, dim: usize) -> String {
        let lists = |list: &str| format!("[{}]", vec![list; n_splits].join(", "));
        let rows: Vec<String> =
            (0..5).map(|node| format!("[{}]", vec![format!("-0.{node}5"); dim].join(", "))).collect();
        format!(
            "{{\"features\": [{}], \"labels\": [0, 9, 3, 3, 1], \"links\": [[1, 2], [], [2], [0], [4, 0]], \
             \"train_masks\": {}, \"stopping_masks\": {}, \"val_masks\": {}, \
             \"test_mask\": [false, false, false, true, true]}}",
            rows.join(", "),
            lists("[true, false, false, false, false]"),
            lists("[false, false, true, false, false]"),
            lists("[false, true, false, false, false]"),
        )
    }

    #[test]
    fn a_file_of_the_exact_form_is_read() {
        let graph = read_bytes(made(20, 300).as_bytes()).unwrap();
        assert_whole(&graph);
        assert_eq!((graph.n_nodes, &graph.edges[..]), (5, &[[0, 1], [0, 2], [2, 2], [3, 0], [4, 4], [4, 0]][..]));
        assert_eq!(graph.labels, Some(RawLabels::Classes { n_classes: 10, classes: vec![0, 9, 3, 3, 1] }));
        let Some(RawRows::Dense { dim: 300, values }) = &graph.rows else { panic!("rows of length 300") };
        assert_eq!((values[0], values[299], values[300], values[1499]), (-0.05, -0.05, -0.15, -0.45));
        let names: Vec<&str> = graph.splits.iter().map(|split| split.name.as_str()).collect();
        assert_eq!((names.len(), names[0], names[19]), (20, "official-0", "official-19"));
        use SplitPart::{None, Test, Train, Valid};
        assert!(graph.splits.iter().all(|split| split.parts == [Train, Valid, None, Test, Test]));
    }

    #[test]
    fn contradictions_are_named() {
        let list = "[true, false, false, false, false]";
        for (old, new, expected) in [
            ("[0, 9, 3, 3, 1]", "[0, 9, 3, 3]", "labels: has 4 entries, but features has 5"),
            ("[0, 9, 3, 3, 1]", "[0, 9, 10, 3, 1]", "labels[2]: 10 is outside 0..10"),
            ("[[1, 2], [],", "[[1, 5], [],", "links[0]: node 5 is outside 0..5"),
            ("[[1, 2], [],", "[[1, 2],", "links: has 4 entries, but features has 5"),
            ("\"test_mask\": [false, ", "\"test_mask\": [", "test_mask: has 4 entries, but features has 5"),
            ("[-0.35, -0.35]", "[-0.35]", "features[3]: has 1 values, but features[0] has 2"),
            ("[-0.35, -0.35]", "[-0.35, 1e39]", "line 1 column 75: number out of range"),
            ("[-0.05, -0.05]", "[]", "features[0]: is an empty row"),
            (list, "[true]", "train_masks[0]: has 1 entries, but there are 5 nodes"),
            (list, "[], []", "val_masks: has 2 lists and train_masks 4, expected 20 each"),
            (
                list,
                "[true, true, false, false, false]",
                "train_masks[0], val_masks[0], test_mask: node 1 is in more than one of train, valid and test",
            ),
            ("\"labels\"", "\"lables\"", "missing field `labels`"),
        ] {
            let text = made(2, 2).replace(old, new);
            let error = read_bytes(text.as_bytes()).unwrap_err();
            assert!(error.starts_with("data.json: ") && error.ends_with(expected), "{error}");
        }
        let empty = made(0, 2);
        let error = read_bytes(empty.as_bytes()).unwrap_err();
        assert_eq!(error, "data.json: val_masks: has 0 lists and train_masks 0, expected 20 each");
    }

    #[test]
    fn garbled_json_is_named() {
        let good = made(2, 2);
        for (text, expected) in [
            (good[..200].to_owned(), "EOF while parsing a value"),
            (good.replace("-0.35", "NaN"), "expected value"),
            (good.replace("-0.35", "1e999"), "number out of range"),
            (good.replace("[2]", "[-2]"), "invalid value: integer `-2`, expected u32"),
            (good.replace("[2]", "2"), "invalid type: integer `2`, expected a list inside a list"),
            (good.replace("true", "1"), "invalid type: integer `1`, expected a boolean"),
            (good.replace("stopping", "train"), "duplicate field `train_masks`"),
            (good.clone() + "x", "trailing characters"),
            (String::new(), "EOF while parsing a value"),
            ("{}".into(), "missing field `features`"),
        ] {
            let error = read_bytes(text.as_bytes()).unwrap_err();
            assert!(error.starts_with("data.json: ") && error.ends_with(expected), "{error}");
        }
    }

    #[test]
    fn damaged_files_never_panic() {
        let mut n_read = 0;
        each_mutation(made(2, 2).as_bytes(), 4000, |damaged| {
            if let Ok(graph) = read_bytes(damaged) {
                assert_whole(&graph);
                n_read += 1;
            }
        });
        assert!((1..4000).contains(&n_read), "{n_read}");
    }

    #[test]
    fn the_real_file_has_the_numbers_of_the_paper() {
        let Some(dir) = real_files("wiki-cs") else { return };
        let graph = read(&dir, 1 << 30).unwrap();
        assert_whole(&graph);
        assert_eq!((graph.n_nodes, graph.splits.len()), (11_701, 20));
        assert!(matches!(graph.rows, Some(RawRows::Dense { dim: 300, .. })));
        assert_eq!(part_sizes(&graph.splits[0].parts), [580, 1769, 5847]);
    }
}
