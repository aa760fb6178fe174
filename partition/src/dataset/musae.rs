//! chameleon and crocodile: links, words and traffic of Wikipedia pages, as `musae_NAME_{edges.csv,features.json,
//! target.csv}`.

use std::{fmt, path::Path};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::{
    PartitionError, Result,
    raw::{
        RawGraph, RawLabels, RawRows,
        lines::{Lines, read_json, shown},
    },
};

/// Word ids are `0..N_WORDS` in both datasets, though chameleon uses only some of them.
pub const N_WORDS: u32 = 13_183;

/// Topic of the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// 2277 pages.
    Chameleon,
    /// 11631 pages.
    Crocodile,
}

impl Topic {
    /// The name in the names of the files.
    pub fn name(self) -> &'static str {
        match self {
            Topic::Chameleon => "chameleon",
            Topic::Crocodile => "crocodile",
        }
    }

    /// Boundaries between classes, in log10 of the traffic.
    fn bins(self) -> [f32; 5] {
        match self {
            Topic::Chameleon => [2.5, 3.0, 3.5, 4.0, 4.5],
            Topic::Crocodile => [2.0, 2.5, 3.0, 3.5, 4.0],
        }
    }

    /// The class of a page: the number of bins at or below log10 of its traffic, rounded to 32 bits. No traffic gives
    /// minus infinity, hence class 0.
    fn class(self, traffic: u32) -> u32 {
        let log = f64::from(traffic).log10() as f32;
        self.bins().iter().map(|bin| u32::from(*bin <= log)).sum()
    }
}

/// Reads the three files of a topic in `dir`, each of at most `limit_bytes` bytes. The files define no split.
pub fn read(dir: &Path, topic: Topic, limit_bytes: u64) -> Result<RawGraph> {
    let file = |end: &str| dir.join(format!("musae_{}_{end}", topic.name()));
    let classes = read_classes(&file("target.csv"), topic, limit_bytes)?;
    let n_nodes = u32::try_from(classes.len()).expect("as many classes as distinct ids of 32 bits");
    let edges = read_edges(&file("edges.csv"), n_nodes, limit_bytes)?;
    let rows = read_words(&file("features.json"), n_nodes, limit_bytes)?;
    let n_classes = topic.bins().len() as u32 + 1;
    let labels = Some(RawLabels::Classes { n_classes, classes });
    Ok(RawGraph { n_nodes, edges, rows: Some(rows), labels, ..RawGraph::default() })
}

/// The class of every node. This file decides how many nodes there are: its ids must be `0..n` in any order.
fn read_classes(path: &Path, topic: Topic, limit_bytes: u64) -> Result<Vec<u32>> {
    let mut lines = Lines::open(path, limit_bytes)?;
    lines.header("id,target")?;
    let mut given = Vec::new();
    while let Some(line) = lines.next_line()? {
        let [node, traffic] = line.ints()?;
        let node = line.below("node", node, u32::MAX)?;
        let traffic = line.below("target", traffic, u32::MAX)?;
        given.push((node, topic.class(traffic), line.number));
    }
    if given.is_empty() {
        return Err(lines.error_at_end("expected a target for every node, found none"));
    }
    let mut classes = vec![None; given.len()];
    let n_nodes = given.len();
    for (node, class, number) in given {
        let problem = match classes.get_mut(node as usize) {
            Some(slot) if slot.is_none() => {
                *slot = Some(class);
                continue;
            }
            Some(_) => format!("node {node} appears twice"),
            None => format!("node {node} is outside 0..{n_nodes}, the number of nodes in this file"),
        };
        return Err(PartitionError::input(path, format!("line {number}"), problem));
    }
    // As many ids as slots, none twice: every slot is taken.
    Ok(classes.into_iter().flatten().collect())
}

fn read_edges(path: &Path, n_nodes: u32, limit_bytes: u64) -> Result<Vec<[u32; 2]>> {
    let mut lines = Lines::open(path, limit_bytes)?;
    lines.header("id1,id2")?;
    let mut edges = Vec::new();
    while let Some(line) = lines.next_line()? {
        let [source, destination] = line.ints()?;
        edges.push([line.below("node", source, n_nodes)?, line.below("node", destination, n_nodes)?]);
    }
    Ok(edges)
}

fn read_words(path: &Path, n_nodes: u32, limit_bytes: u64) -> Result<RawRows> {
    let words = Words { found: Vec::new(), bounds: vec![None; n_nodes as usize] };
    let Words { found, bounds } = read_json(path, limit_bytes, words)?;
    let (mut indptr, mut indices) = (vec![0], Vec::with_capacity(found.len()));
    for (node, bounds) in bounds.into_iter().enumerate() {
        let Some([start, end]) = bounds else {
            return Err(PartitionError::input(path, format!("node {node}"), "is missing"));
        };
        let row = indices.len();
        indices.extend_from_slice(&found[start..end]);
        indices[row..].sort_unstable();
        if let Some(pair) = indices[row..].windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(PartitionError::input(path, format!("node {node}"), format!("word {} appears twice", pair[0])));
        }
        indptr.push(indices.len() as u64);
    }
    let values = vec![1.0; indices.len()];
    Ok(RawRows::Sparse { dim: N_WORDS, indptr, indices, values })
}

/// The words of all nodes in file order, and where those of each node lie.
struct Words {
    found: Vec<u32>,
    bounds: Vec<Option<[usize; 2]>>,
}

impl<'de> DeserializeSeed<'de> for Words {
    type Value = Words;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Words, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Words {
    type Value = Words;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object of node ids and lists of word ids")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Words, A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let n_nodes = self.bounds.len();
            let node = key.parse::<usize>().ok().filter(|node| *node < n_nodes);
            let node = node.ok_or_else(|| Error::custom(format!("node {} is outside 0..{n_nodes}", shown(&key))))?;
            if self.bounds[node].is_some() {
                return Err(Error::custom(format!("node {node} appears twice")));
            }
            let start = self.found.len();
            map.next_value_seed(WordsOfNode { node, found: &mut self.found })?;
            self.bounds[node] = Some([start, self.found.len()]);
        }
        Ok(self)
    }
}

/// Appends the words of one node.
struct WordsOfNode<'a> {
    node: usize,
    found: &'a mut Vec<u32>,
}

impl<'de> DeserializeSeed<'de> for WordsOfNode<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for WordsOfNode<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "the list of word ids of node {}", self.node)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(word) = list.next_element::<u32>()? {
            if word >= N_WORDS {
                return Err(Error::custom(format!("node {}: word {word} is outside 0..{N_WORDS}", self.node)));
            }
            self.found.push(word);
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
        raw::lines::mutation::{assert_whole, each_mutation, edge_sum, scratch},
    };

    const TARGET: &str = "id,target\n2,0\n0,1000\n1,31623\n";
    const EDGES: &str = "id1,id2\n0,1\n1,1\n2,0\n0,1\n";
    const FEATURES: &str = "{\"1\": [], \"2\": [13182, 0, 7], \"0\": [5]}";

    fn read_texts(target: &[u8], edges: &[u8], features: &[u8]) -> Result<RawGraph, String> {
        let dir = scratch();
        for (end, bytes) in [("target.csv", target), ("edges.csv", edges), ("features.json", features)] {
            fs::write(dir.path().join(format!("musae_chameleon_{end}")), bytes).unwrap();
        }
        let folder = format!("{}/musae_chameleon_", dir.path().display());
        read(dir.path(), Topic::Chameleon, 1000).map_err(|error| error.to_string().replace(&folder, ""))
    }

    #[test]
    fn small_files_are_read() {
        let graph = read_texts(TARGET.as_bytes(), EDGES.as_bytes(), FEATURES.as_bytes()).unwrap();
        let rows = RawRows::Sparse {
            dim: 13183,
            indptr: vec![0, 1, 1, 4],
            indices: vec![5, 0, 7, 13182],
            values: vec![1.0; 4],
        };
        let labels = RawLabels::Classes { n_classes: 6, classes: vec![2, 5, 0] };
        let edges = vec![[0, 1], [1, 1], [2, 0], [0, 1]];
        let expected = RawGraph { n_nodes: 3, edges, rows: Some(rows), labels: Some(labels), ..RawGraph::default() };
        assert_eq!(graph, expected);
    }

    #[test]
    fn classes_change_at_the_bins() {
        let classes = |topic: Topic| {
            [0, 1, 99, 100, 316, 317, 999, 1000, 3162, 3163, 9999, 10_000, 31_622, 31_623, u32::MAX]
                .map(|traffic| topic.class(traffic))
        };
        assert_eq!(classes(Topic::Chameleon), [0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
        assert_eq!(classes(Topic::Crocodile), [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5, 5]);
    }

    #[test]
    fn bad_targets_are_named() {
        for (text, expected) in [
            ("", "line 1: expected the header \"id,target\", found nothing"),
            ("0,1\n", "line 1: expected the header \"id,target\", found \"0,1\""),
            ("id,target\n", "end of file: expected a target for every node, found none"),
            ("id,target\n0,1\n0,2\n1,3\n", "line 3: node 0 appears twice"),
            ("id,target\n0,1\n3,2\n1,3\n", "line 3: node 3 is outside 0..3, the number of nodes in this file"),
            ("id,target\n0,-5\n", "line 2: target -5 is outside 0..4294967295"),
            ("id,target\n0,17.5\n", "line 2: \"17.5\" is not a whole number"),
            ("id,target\n0\n", "line 2: expected 2 fields, found 1 in \"0\""),
        ] {
            let error = read_texts(text.as_bytes(), EDGES.as_bytes(), FEATURES.as_bytes()).unwrap_err();
            assert_eq!(error, format!("target.csv: {expected}"));
        }
    }

    #[test]
    fn bad_edges_are_named() {
        for (text, expected) in [
            ("id,id\n", "line 1: expected the header \"id1,id2\", found \"id,id\""),
            ("id1,id2\n0,1\n0,3\n", "line 3: node 3 is outside 0..3"),
            ("id1,id2\n-1,0\n", "line 2: node -1 is outside 0..3"),
            ("id1,id2\n0,1,2\n", "line 2: expected 2 fields, found 3 in \"0,1,2\""),
            ("id1,id2\n0,", "line 2: \"\" is not a whole number"),
        ] {
            let error = read_texts(TARGET.as_bytes(), text.as_bytes(), FEATURES.as_bytes()).unwrap_err();
            assert_eq!(error, format!("edges.csv: {expected}"));
        }
    }

    #[test]
    fn bad_words_are_named() {
        for (text, expected) in [
            ("{\"0\": [1], \"1\": [2]}", "json: node 2: is missing"),
            ("{\"0\": [1], \"0\": [2]}", "node 0 appears twice"),
            ("{\"0\": [1], \"3\": [2]}", "node \"3\" is outside 0..3"),
            ("{\"a\": [1]}", "node \"a\" is outside 0..3"),
            ("{\"0\": [1, 13183]}", "node 0: word 13183 is outside 0..13183"),
            ("{\"0\": [-1]}", "invalid value: integer `-1`, expected u32"),
            ("{\"0\": [1.0]}", "invalid type: floating point `1.0`, expected u32"),
            ("{\"0\": [1, 1], \"1\": [], \"2\": []}", "node 0: word 1 appears twice"),
            ("{\"0\": 1}", "invalid type: integer `1`, expected the list of word ids of node 0"),
            ("[]", "invalid type: sequence, expected an object of node ids and lists of word ids"),
            ("{\"0\": [1, ", "EOF while parsing a value"),
            ("", "EOF while parsing a value"),
        ] {
            let error = read_texts(TARGET.as_bytes(), EDGES.as_bytes(), text.as_bytes()).unwrap_err();
            assert!(error.starts_with("features.json: ") && error.ends_with(expected), "{error}");
        }
    }

    #[test]
    fn damaged_files_never_panic() {
        let texts = [TARGET.as_bytes(), EDGES.as_bytes(), FEATURES.as_bytes()];
        for place in 0..3 {
            let mut n_read = 0;
            each_mutation(texts[place], 1500, |damaged| {
                let mut texts = texts;
                texts[place] = damaged;
                if let Ok(graph) = read_texts(texts[0], texts[1], texts[2]) {
                    assert_whole(&graph);
                    n_read += 1;
                }
            });
            assert!((1..1500).contains(&n_read), "{n_read}");
        }
    }

    #[test]
    fn real_files_have_the_numbers_of_the_paper() {
        for (topic, n_nodes, n_edges, n_loops, sizes) in [
            (Topic::Chameleon, 2277, 36_101, 50, [429, 492, 357, 343, 449, 207]),
            (Topic::Crocodile, 11_631, 180_020, 145, [2522, 1437, 1541, 1798, 2187, 2146]),
        ] {
            let Some(dir) = real_files(topic.name()) else { continue };
            let graph = read(&dir, topic, 1 << 30).unwrap();
            assert_whole(&graph);
            assert_eq!((graph.n_nodes, graph.edges.len()), (n_nodes, n_edges));
            assert_eq!(graph.edges.iter().filter(|[source, destination]| source == destination).count(), n_loops);
            let Some(RawLabels::Classes { n_classes: 6, classes }) = graph.labels else { panic!("six classes") };
            let size = |class| classes.iter().filter(|other| **other == class).count();
            assert_eq!([0, 1, 2, 3, 4, 5].map(size), sizes);
            if topic == Topic::Chameleon {
                assert_eq!(edge_sum(&graph.edges), 24_014_239_987_649);
                let Some(RawRows::Sparse { indptr, mut indices, .. }) = graph.rows else { panic!("sparse rows") };
                let row = |node: usize| &indices[indptr[node] as usize..indptr[node + 1] as usize];
                let words = |node| row(node).iter().map(|word| u64::from(*word) + 1).sum::<u64>();
                let sum: u64 = (0..2277).map(|node| (node as u64 + 1) * words(node)).sum();
                assert_eq!((indices.len(), sum), (49_057, 86_075_660_206));
                indices.sort_unstable();
                indices.dedup();
                assert_eq!(indices.len(), 3132);
            }
        }
    }
}
