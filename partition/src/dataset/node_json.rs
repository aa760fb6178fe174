//! Streaming reader of JSON files about nodes: maps from node to label, split parts, and graphs in the format of
//! networkx.

use std::{
    fmt,
    fs::{self, File},
    io::BufReader,
    marker::PhantomData,
    path::Path,
};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};

use crate::{
    PartitionError, Result,
    raw::{RawLabels, RawSplit, SplitPart},
};

/// Reads a map from every node to its class, or from every node to a list that holds 1 for each of its classes.
pub fn read_labels(path: &Path, n_nodes: u32) -> Result<RawLabels> {
    let labels = read_node_map(path, n_nodes)?;
    let missing = |node| PartitionError::input(path, format!("node {node}"), "has no label");
    let Some(first) = labels.first() else { return Ok(RawLabels::Classes { n_classes: 0, classes: Vec::new() }) };
    let bad = |node, problem: &str| PartitionError::input(path, format!("node {node}"), problem);
    match first.as_ref().ok_or_else(|| missing(0))? {
        Label::Class(_) => {
            let mut classes = Vec::with_capacity(labels.len());
            for (node, label) in labels.iter().enumerate() {
                match label.as_ref().ok_or_else(|| missing(node))? {
                    // More classes than nodes are not meant.
                    Label::Class(class) if *class < n_nodes => classes.push(*class),
                    Label::Class(class) => return Err(bad(node, &format!("class {class} among {n_nodes} nodes"))),
                    Label::Bits { .. } => return Err(bad(node, "has a list of classes where others have one class")),
                }
            }
            let n_classes = classes.iter().max().map_or(0, |class| class + 1);
            Ok(RawLabels::Classes { n_classes, classes })
        }
        &Label::Bits { n_classes, .. } => {
            let mut all_words = Vec::new();
            for (node, label) in labels.iter().enumerate() {
                match label.as_ref().ok_or_else(|| missing(node))? {
                    Label::Bits { n_classes: n, words } if *n == n_classes => all_words.extend_from_slice(words),
                    Label::Bits { n_classes: n, .. } => {
                        return Err(bad(node, &format!("a list of {n} where that of node 0 has {n_classes}")));
                    }
                    Label::Class(_) => return Err(bad(node, "has one class where others have a list of classes")),
                }
            }
            Ok(RawLabels::Bits { n_classes, words: all_words })
        }
    }
}

/// Reads the lists `tr`, `va` and `te` of nodes as the split `official`.
pub fn read_roles(path: &Path, n_nodes: u32) -> Result<RawSplit> {
    Ok(RawSplit { name: "official".to_owned(), parts: read_json(path, Roles { n_nodes })? })
}

/// Reads a map from every node to a place of its own, such as the place of its row.
pub fn read_places(path: &Path, n_nodes: u32) -> Result<Vec<u32>> {
    let mut is_taken = vec![false; n_nodes as usize];
    let mut places = Vec::with_capacity(n_nodes as usize);
    for (node, place) in read_node_map(path, n_nodes)?.into_iter().enumerate() {
        let error = |problem: String| PartitionError::input(path, format!("node {node}"), problem);
        let Some(Label::Class(place)) = place else { return Err(error("has no place".to_owned())) };
        match is_taken.get_mut(place as usize) {
            Some(is_taken) if !*is_taken => *is_taken = true,
            Some(_) => return Err(error(format!("place {place} is taken by another node"))),
            None => return Err(error(format!("place {place} is outside 0..{n_nodes}"))),
        }
        places.push(place);
    }
    Ok(places)
}

/// A graph as networkx writes it: nodes and links.
#[derive(Debug)]
pub struct NodeLink {
    /// Nodes are `0..n_nodes`.
    pub n_nodes: u32,
    /// Edges as (source, destination): links as they stand, or both ways if the graph has no directions.
    pub edges: Vec<[u32; 2]>,
    /// The part each node says it belongs to: train, if it says neither `val` nor `test`.
    pub parts: Vec<SplitPart>,
}

/// Reads a graph whose nodes are numbered from 0, in order.
pub fn read_node_link(path: &Path) -> Result<NodeLink> {
    let graph = read_json(path, PhantomData::<Graph>)?;
    let error = |place: String, problem: String| PartitionError::input(path, place, problem);
    let n_nodes =
        u32::try_from(graph.nodes.len()).map_err(|_| error("nodes".to_owned(), "too many nodes".to_owned()))?;
    let mut parts = Vec::with_capacity(graph.nodes.len());
    for (place, node) in graph.nodes.iter().enumerate() {
        // Older writers name a link's ends by place, newer ones by id: in order, they are the same.
        if node.id != place as u64 {
            let problem = format!("has id {} where nodes must be numbered 0, 1, 2 … in order", node.id);
            return Err(error(format!("node {place}"), problem));
        }
        parts.push(match (node.val, node.test) {
            (false, false) => SplitPart::Train,
            (true, false) => SplitPart::Valid,
            (false, true) => SplitPart::Test,
            (true, true) => return Err(error(format!("node {place}"), "is both val and test".to_owned())),
        });
    }
    let mut edges = Vec::with_capacity(graph.links.len());
    for (place, link) in graph.links.iter().enumerate() {
        let inside = |id| match u32::try_from(id) {
            Ok(id) if id < n_nodes => Ok(id),
            _ => Err(error(format!("link {place}"), format!("node {id} is outside 0..{n_nodes}"))),
        };
        let [source, destination] = [inside(link.source)?, inside(link.target)?];
        edges.push([source, destination]);
        if !graph.directed && source != destination {
            edges.push([destination, source]);
        }
    }
    Ok(NodeLink { n_nodes, edges, parts })
}

#[derive(Deserialize)]
struct Graph {
    #[serde(default)]
    directed: bool,
    nodes: Vec<Node>,
    #[serde(alias = "edges")]
    links: Vec<Link>,
}

#[derive(Deserialize)]
struct Node {
    id: u64,
    #[serde(default)]
    val: bool,
    #[serde(default)]
    test: bool,
}

#[derive(Deserialize)]
struct Link {
    source: u64,
    target: u64,
}

/// Reads the entry of each node from a map; `None` for nodes without an entry.
fn read_node_map(path: &Path, n_nodes: u32) -> Result<Vec<Option<Label>>> {
    // `"0":0,` is the least that a map can say of a node; a smaller file must not make us hold a place for each.
    let n_bytes = fs::metadata(path).map_err(PartitionError::io(path))?.len();
    if n_bytes < u64::from(n_nodes) * 6 {
        let problem = format!("{n_bytes} bytes cannot hold something for each of {n_nodes} nodes");
        return Err(PartitionError::input(path, "size", problem));
    }
    read_json(path, NodeMap { n_nodes })
}

/// Reads one JSON value and nothing after it.
fn read_json<S, T>(path: &Path, value: S) -> Result<T>
where
    S: for<'de> DeserializeSeed<'de, Value = T>,
{
    let file = File::open(path).map_err(PartitionError::io(path))?;
    let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 18, file));
    value.deserialize(&mut json).and_then(|value| json.end().map(|()| value)).map_err(|error| {
        let place = format!("line {} column {}", error.line(), error.column());
        let text = error.to_string();
        let problem = text.strip_suffix(&format!(" at {place}")).unwrap_or(&text);
        PartitionError::input(path, place, problem)
    })
}

/// Entry of one node in a map.
enum Label {
    Class(u32),
    Bits { n_classes: u32, words: Vec<u64> },
}

impl<'de> Deserialize<'de> for Label {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Label, D::Error> {
        struct LabelVisitor;

        impl<'de> Visitor<'de> for LabelVisitor {
            type Value = Label;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a whole number from 0 up, or a list of 0 and 1")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Label, E> {
                u32::try_from(number).map(Label::Class).map_err(|_| E::custom(format!("{number} is too large")))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut bits: A) -> Result<Label, A::Error> {
                let (mut n_classes, mut words) = (0u32, Vec::new());
                while let Some(bit) = bits.next_element::<u64>()? {
                    if bit > 1 {
                        return Err(A::Error::custom(format!("{bit} where 0 or 1 is needed")));
                    }
                    if n_classes.is_multiple_of(64) {
                        words.push(0);
                    }
                    *words.last_mut().expect("pushed above") |= bit << (n_classes % 64);
                    n_classes = n_classes.checked_add(1).ok_or_else(|| A::Error::custom("too many classes"))?;
                }
                Ok(Label::Bits { n_classes, words })
            }
        }

        deserializer.deserialize_any(LabelVisitor)
    }
}

/// A map from nodes to labels; `None` for a node that it leaves out.
struct NodeMap {
    n_nodes: u32,
}

impl<'de> DeserializeSeed<'de> for NodeMap {
    type Value = Vec<Option<Label>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for NodeMap {
    type Value = Vec<Option<Label>>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object whose keys are nodes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut labels: Vec<Option<Label>> = (0..self.n_nodes).map(|_| None).collect();
        while let Some((key, label)) = map.next_entry::<String, Label>()? {
            let slot = key.parse().ok().and_then(|node: usize| labels.get_mut(node)).ok_or_else(|| {
                let key: String = key.chars().take(40).collect();
                A::Error::custom(format!("key {key:?} is not a node in 0..{}", self.n_nodes))
            })?;
            if slot.replace(label).is_some() {
                return Err(A::Error::custom(format!("node {key} stands there twice")));
            }
        }
        Ok(labels)
    }
}

/// The part of each node, from an object of three lists.
struct Roles {
    n_nodes: u32,
}

impl<'de> DeserializeSeed<'de> for Roles {
    type Value = Vec<SplitPart>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Roles {
    type Value = Vec<SplitPart>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object of the lists tr, va and te")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut parts = vec![SplitPart::None; self.n_nodes as usize];
        let mut left = vec![("tr", SplitPart::Train), ("va", SplitPart::Valid), ("te", SplitPart::Test)];
        while let Some(key) = map.next_key::<String>()? {
            let Some(place) = left.iter().position(|(name, _)| *name == key) else {
                let key: String = key.chars().take(40).collect();
                return Err(A::Error::custom(format!("key {key:?} is none of tr, va and te, or stands there twice")));
            };
            map.next_value_seed(Role { part: left.remove(place).1, parts: &mut parts })?;
        }
        match left.first() {
            Some((name, _)) => Err(A::Error::custom(format!("list {name} is missing"))),
            None => Ok(parts),
        }
    }
}

/// One list of nodes, all in one part.
struct Role<'a> {
    part: SplitPart,
    parts: &'a mut [SplitPart],
}

impl<'de> DeserializeSeed<'de> for Role<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Role<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of nodes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut nodes: A) -> Result<(), A::Error> {
        let n_nodes = self.parts.len();
        while let Some(node) = nodes.next_element::<u64>()? {
            let slot = usize::try_from(node).ok().and_then(|node| self.parts.get_mut(node));
            let slot = slot.ok_or_else(|| A::Error::custom(format!("node {node} is outside 0..{n_nodes}")))?;
            if *slot != SplitPart::None {
                return Err(A::Error::custom(format!("node {node} stands there twice")));
            }
            *slot = self.part;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tempfile::NamedTempFile;

    use super::*;
    use crate::raw::samples::{assert_error, garbled};

    fn with_file<T>(text: &[u8], read: impl Fn(&Path) -> T) -> T {
        let file = NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        read(file.path())
    }

    fn labels(text: &str) -> Result<RawLabels> {
        with_file(text.as_bytes(), |path| read_labels(path, 2))
    }

    fn roles(text: &str) -> Result<RawSplit> {
        with_file(text.as_bytes(), |path| read_roles(path, 3))
    }

    fn graph(text: &str) -> Result<NodeLink> {
        with_file(text.as_bytes(), read_node_link)
    }

    #[test]
    fn labels_of_either_kind() {
        let classes = RawLabels::Classes { n_classes: 2, classes: vec![1, 0] };
        assert_eq!(labels(r#"{"1": 0, "0": 1}"#).unwrap(), classes);
        let mut bits = vec!["0"; 70];
        (bits[0], bits[69]) = ("1", "1");
        let text = format!(r#"{{"0": [{}], "1": [{}]}}"#, bits.join(","), ["1"; 70].join(", "));
        let words = vec![1, 1 << 5, u64::MAX, (1 << 6) - 1];
        assert_eq!(labels(&text).unwrap(), RawLabels::Bits { n_classes: 70, words });
        with_file(b"{}", |path| {
            assert_eq!(read_labels(path, 0).unwrap(), RawLabels::Classes { n_classes: 0, classes: vec![] })
        });
    }

    #[test]
    fn bad_labels_are_refused() {
        for (text, problem) in [
            (r#"{"0": 1, "2": 0}"#, "line 1 column 16: key \"2\" is not a node in 0..2"),
            (r#"{"0": 1, "one": 0}"#, "key \"one\" is not a node in 0..2"),
            (r#"{"0": 1, "-1": 0}"#, "key \"-1\" is not a node in 0..2"),
            (r#"{"0": 1, "0": 0}"#, "node 0 stands there twice"),
            (r#"{"0": 1    }"#, "node 1: has no label"),
            (r#"{"1": 1    }"#, "node 0: has no label"),
            (r#"{"0": 1}"#, "size: 8 bytes cannot hold something for each of 2 nodes"),
            (r#"{"0": 1, "1": -1}"#, "integer `-1`, expected a whole number from 0 up, or a list of 0 and 1"),
            (r#"{"0": 1, "1": 0.5}"#, "floating point `0.5`, expected a whole number"),
            (r#"{"0": 1, "1": 5000000000}"#, "5000000000 is too large"),
            (r#"{"0": 1, "1": 2}"#, "node 1: class 2 among 2 nodes"),
            (r#"{"0": 1, "1": [0, 1]}"#, "node 1: has a list of classes where others have one class"),
            (r#"{"0": [0, 1], "1": 1}"#, "node 1: has one class where others have a list of classes"),
            (r#"{"0": [0, 1], "1": [1]}"#, "node 1: a list of 1 where that of node 0 has 2"),
            (r#"{"0": [0, 2], "1": [1]}"#, "2 where 0 or 1 is needed"),
            (r#"{"0": 1, "1": 0} {}"#, "line 1 column 18: trailing characters"),
            (r#"[1, 0        ]"#, "expected an object whose keys are nodes"),
            ("            ", "EOF while parsing a value"),
        ] {
            assert_error(labels(text), problem);
        }
    }

    #[test]
    fn roles_good_and_bad() {
        let split = roles(r#"{"te": [0], "tr": [2], "va": []}"#).unwrap();
        assert_eq!(split.parts, [SplitPart::Test, SplitPart::None, SplitPart::Train]);
        for (text, problem) in [
            (r#"{"te": [0], "tr": [3], "va": []}"#, "line 1 column 21: node 3 is outside 0..3"),
            (r#"{"te": [0], "tr": [0], "va": []}"#, "node 0 stands there twice"),
            (r#"{"te": [0], "tr": [1]}"#, "list va is missing"),
            (r#"{"te": [0], "te": [1]}"#, "key \"te\" is none of tr, va and te, or stands there twice"),
            (r#"{"te": [0], "vu": [1]}"#, "key \"vu\" is none of"),
            (r#"{"te": [-1]}"#, "invalid value: integer `-1`"),
            (r#"{"te": 5}"#, "expected a list of nodes"),
            (r#"{"te": [18446744073709551615]}"#, "node 18446744073709551615 is outside 0..3"),
        ] {
            assert_error(roles(text), problem);
        }
    }

    #[test]
    fn places_good_and_bad() {
        let places = |text: &str| with_file(text.as_bytes(), |path| read_places(path, 2));
        assert_eq!(places(r#"{"0": 1, "1": 0}"#).unwrap(), [1, 0]);
        assert_error(places(r#"{"0": 1, "1": 1}"#), "node 1: place 1 is taken by another node");
        assert_error(places(r#"{"0": 1, "1": 2}"#), "node 1: place 2 is outside 0..2");
        assert_error(places(r#"{"0": 1    }"#), "node 1: has no place");
    }

    const GRAPH: &str = r#"{"directed": false, "multigraph": false, "graph": {"name": "u( , )"},
        "nodes": [{"test": false, "id": 0, "val": false, "label": [1, 0], "feature": [0.5]},
                  {"test": false, "id": 1, "val": true}, {"id": 2, "test": true}],
        "links": [{"source": 0, "target": 1, "test_removed": false}, {"target": 2, "source": 2}]}"#;

    #[test]
    fn graphs_good_and_bad() {
        let undirected = graph(GRAPH).unwrap();
        assert_eq!((undirected.n_nodes, undirected.edges), (3, vec![[0, 1], [1, 0], [2, 2]]));
        assert_eq!(undirected.parts, [SplitPart::Train, SplitPart::Valid, SplitPart::Test]);
        let directed = GRAPH.replace("\"directed\": false", "\"directed\": true").replace("links", "edges");
        assert_eq!(graph(&directed).unwrap().edges, [[0, 1], [2, 2]]);
        for (old, new, problem) in [
            ("\"target\": 1", "\"target\": 3", "link 0: node 3 is outside 0..3"),
            ("\"target\": 1", "\"target\": -3", "invalid value: integer `-3`"),
            ("\"target\": 1", "\"targe\": 1", "missing field `target`"),
            ("\"id\": 1", "\"id\": 5", "node 1: has id 5 where nodes must be numbered 0, 1, 2 … in order"),
            ("\"id\": 1", "\"id\": \"1\"", "invalid type: string \"1\", expected u64"),
            ("{\"id\": 2,", "{\"val\": true, \"id\": 2,", "node 2: is both val and test"),
            ("\"links\"", "\"lines\"", "missing field `links`"),
            ("\"links\"", "\"nodes\"", "duplicate field `nodes`"),
        ] {
            assert!(GRAPH.contains(old));
            assert_error(graph(&GRAPH.replace(old, new)), problem);
        }
        let deep = format!(r#"{{"graph": {}"#, "[".repeat(100_000));
        assert_error(graph(&deep), "EOF while parsing a list");
    }

    #[test]
    fn cut_and_garbled_graphs_never_panic() {
        let file = NamedTempFile::new().unwrap();
        let reads = |bytes: &[u8]| {
            fs::write(file.path(), bytes).unwrap();
            read_node_link(file.path()).is_ok()
        };
        assert!((0..GRAPH.len()).all(|n_bytes| !reads(&GRAPH.as_bytes()[..n_bytes])));
        let n_good = garbled(GRAPH.as_bytes(), 1000).filter(|bytes| reads(bytes)).count();
        assert!((1..1000).contains(&n_good), "{n_good} of 1000 read");
    }
}
