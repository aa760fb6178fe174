//! ogbn-papers100M: `raw/data.npz` with edges and features, `raw/node-label.npz` with labels, NaN for none. Both are streamed.

use std::path::Path;

use super::nodes::{ANY_LENGTH, PAPERS, add_ids, check_memory, possible_n_nodes, read_split};
use crate::{
    Result,
    dataset::streamed::{Edge, EdgeSource, FeatureSource, StreamedGraph},
    raw::{
        RawGraph, RawLabels,
        array::{Dtype, show_shape},
        member::Member,
        npy::NpyStream,
        npz::Npz,
        number::{Item, Number},
    },
};

/// Items read at a time.
const CHUNK_ITEMS: usize = 1 << 16;
/// Limit of arrays that are read at once: they hold one number per graph.
const SMALL_BYTES: u64 = 1 << 20;

/// Opens ogbn-papers100M.
pub(crate) fn read(dir: &Path, memory_bytes: u64) -> Result<StreamedGraph> {
    let path = dir.join("raw/data.npz");
    let mut file = Npz::open(&path, SMALL_BYTES)?;
    let nodes_list = file.required("num_nodes_list")?;
    let [n_nodes] = nodes_list.to_indices()?[..] else {
        return Err(nodes_list.error("shape", "expected the number of nodes of one graph"));
    };
    let possible = possible_n_nodes(i64::try_from(n_nodes).unwrap_or(i64::MAX));
    let n_nodes = possible.map_err(|problem| nodes_list.error("item 0", problem))?;
    check_memory(n_nodes, memory_bytes)?;
    let edges_list = file.required("num_edges_list")?;
    let [n_edges] = edges_list.to_indices()?[..] else {
        return Err(edges_list.error("shape", "expected the number of edges of one graph"));
    };

    let edges = NpzEdges::open(&mut file, n_nodes, n_edges)?;
    let rows = NpzFeatures::open(&mut file, n_nodes, memory_bytes)?;
    let labels = read_labels(&dir.join("raw/node-label.npz"), n_nodes)?;
    let splits = vec![read_split(dir, &PAPERS, n_nodes, &labels, ANY_LENGTH)?];
    let mut nodes = RawGraph { n_nodes, labels: Some(labels), splits, ..RawGraph::default() };
    add_ids(&mut nodes, dir, &PAPERS.ids, memory_bytes)?;
    Ok(StreamedGraph { nodes, edges: Box::new(edges), rows: Some(Box::new(rows)) })
}

/// A class, or `u32::MAX` where a node has none.
#[derive(Clone, Copy)]
struct Label(u32);

impl Item for Label {
    const PROBLEM: &'static str = "is neither a class nor NaN";

    fn from_number(number: impl Number) -> (Label, bool) {
        let (index, is_index) = number.to_index();
        let value = number.to_f32();
        match is_index {
            true => (Label(u32::try_from(index).unwrap_or(u32::MAX)), index < u64::from(u32::MAX)),
            false if value.is_nan() => (Label(u32::MAX), true),
            // Floats hold every whole number up to 2^24: there are fewer classes.
            false => (Label(value as u32), (0.0..16_777_216.0).contains(&value) && value.fract() == 0.0),
        }
    }
}

fn read_labels(path: &Path, n_nodes: u32) -> Result<RawLabels> {
    let mut stream = Npz::open(path, SMALL_BYTES)?.stream("node_label")?;
    match stream.header().shape[..] {
        [n_labels] | [n_labels, 1] if n_labels as u64 == u64::from(n_nodes) => {}
        _ => {
            let problem = format!("expected a label for each of {n_nodes} nodes, found {}", shape_of(&stream));
            return Err(stream.origin().error("shape", problem));
        }
    }
    let n_classes = PAPERS.n_classes;
    let (mut classes, mut labels) = (Vec::with_capacity(n_nodes as usize), Vec::<Label>::new());
    while stream.read_chunk(&mut labels, CHUNK_ITEMS)? > 0 {
        let is_class = |Label(class): &Label| *class < n_classes || *class == u32::MAX;
        if let Some(at) = labels.iter().position(|label| !is_class(label)) {
            let problem = format!("label {} is outside 0..{n_classes}", labels[at].0);
            return Err(stream.origin().error(format!("item {}", classes.len() + at), problem));
        }
        classes.extend(labels.iter().map(|Label(class)| *class));
    }
    Ok(RawLabels::Classes { n_classes, classes })
}

fn shape_of(stream: &NpyStream<Member>) -> String {
    show_shape(&stream.header().shape)
}

/// Edges of the array `edge_index`: all sources, then all destinations, or pair after pair in a column-major array.
struct NpzEdges {
    sources: NpyStream<Member>,
    /// The same array from its middle on; `None` if it holds pairs.
    destinations: Option<NpyStream<Member>>,
    n_nodes: u32,
    n_read: u64,
    ends: [Vec<u64>; 2],
    /// The next edge in `ends`.
    at: usize,
}

impl NpzEdges {
    fn open(file: &mut Npz, n_nodes: u32, n_edges: u64) -> Result<NpzEdges> {
        let sources = file.stream("edge_index")?;
        let header = sources.header();
        let n_found = match header.shape[..] {
            [2, n_found] => n_found,
            _ => {
                let problem = format!("expected (2, {n_edges}), found {}", shape_of(&sources));
                return Err(sources.origin().error("shape", problem));
            }
        };
        if n_found as u64 != n_edges {
            let problem = format!("expected {n_edges} edges (num_edges_list), found {n_found}");
            return Err(sources.origin().error("shape", problem));
        }
        if matches!(header.dtype, Dtype::Bool | Dtype::F16 | Dtype::F32 | Dtype::F64) {
            let problem = format!("items are {:?} where whole numbers are needed", header.dtype);
            return Err(sources.origin().error("header", problem));
        }
        let destinations = match header.is_column_major {
            true => None,
            false => {
                let mut destinations = file.stream("edge_index")?;
                destinations.skip(n_found)?;
                Some(destinations)
            }
        };
        Ok(NpzEdges { sources, destinations, n_nodes, n_read: 0, ends: [Vec::new(), Vec::new()], at: 0 })
    }

    /// Reads the next ends; false after the last.
    fn fill(&mut self) -> Result<bool> {
        self.at = 0;
        let [first, second] = &mut self.ends;
        match &mut self.destinations {
            None => {
                self.sources.read_chunk(first, CHUNK_ITEMS)?;
                second.clear();
                second.extend(first.iter().skip(1).step_by(2));
                *first = first.iter().copied().step_by(2).collect();
            }
            Some(destinations) => {
                // The sources end where the destinations begin.
                let n_items = destinations.n_left().min(CHUNK_ITEMS);
                destinations.read_chunk(second, n_items)?;
                self.sources.read_chunk(first, n_items)?;
            }
        }
        Ok(!second.is_empty())
    }
}

impl EdgeSource for NpzEdges {
    fn next_edge(&mut self) -> Result<Option<Edge>> {
        if self.at == self.ends[1].len() && !self.fill()? {
            return Ok(None);
        }
        let mut ends = [0; 2];
        for (end, items) in ends.iter_mut().zip(&self.ends) {
            *end = match u32::try_from(items[self.at]) {
                Ok(node) if node < self.n_nodes => node,
                _ => {
                    let problem = format!("node {} is outside 0..{}", items[self.at], self.n_nodes);
                    return Err(self.sources.origin().error(format!("edge {}", self.n_read), problem));
                }
            };
        }
        self.at += 1;
        self.n_read += 1;
        Ok(Some((ends, 1.0)))
    }
}

/// Features of the array `node_feat`.
struct NpzFeatures {
    stream: NpyStream<Member>,
    dim: u32,
    rows: Vec<f32>,
    at: usize,
}

impl NpzFeatures {
    fn open(file: &mut Npz, n_nodes: u32, memory_bytes: u64) -> Result<NpzFeatures> {
        let stream = file.stream("node_feat")?;
        let header = stream.header();
        let dim = match header.shape[..] {
            [n_rows, dim] if n_rows as u64 == u64::from(n_nodes) && dim > 0 => u32::try_from(dim).ok(),
            _ => None,
        };
        let Some(dim) = dim else {
            let problem = format!("expected features of {n_nodes} nodes, found {}", shape_of(&stream));
            return Err(stream.origin().error("shape", problem));
        };
        // A feature in the buffer, as read, as written, and room to convert it.
        if u64::from(dim) * 16 > memory_bytes / 4 {
            let problem = format!("{dim} features per node need more than a quarter of --memory");
            return Err(stream.origin().error("shape", problem));
        }
        if header.is_column_major && dim > 1 {
            let problem = "is in Fortran order: save it with numpy.ascontiguousarray";
            return Err(stream.origin().error("header", problem));
        }
        Ok(NpzFeatures { stream, dim, rows: Vec::new(), at: 0 })
    }
}

impl FeatureSource for NpzFeatures {
    fn dim(&self) -> u32 {
        self.dim
    }

    fn next_row(&mut self, row: &mut [f32]) -> Result<()> {
        if self.at == self.rows.len() {
            self.stream.read_chunk(&mut self.rows, (CHUNK_ITEMS / row.len()).max(1) * row.len())?;
            self.at = 0;
        }
        row.copy_from_slice(&self.rows[self.at..][..row.len()]);
        self.at += row.len();
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(()) // The shape has one row per node.
    }
}

#[cfg(test)]
mod tests {
    use zip::CompressionMethod::{Deflated, Stored};

    use super::{
        super::samples::{drain, made_papers, npy_f16, papers_members, write},
        *,
    };
    use crate::raw::{
        RawSplit, SplitPart,
        samples::{garbled, npy, npy_of, npy_with, with_member},
    };

    #[test]
    fn stored_and_deflated_files_are_read() {
        use SplitPart::{Test, Train, Valid};
        for method in [Stored, Deflated] {
            let dir = made_papers(papers_members(), method);
            let expected = RawGraph {
                n_nodes: 4,
                labels: Some(RawLabels::Classes { n_classes: 172, classes: vec![171, 0, u32::MAX, 3] }),
                splits: vec![RawSplit { name: "official".into(), parts: vec![Train, Valid, SplitPart::None, Test] }],
                ids: ["9", "8", "7", "6"].map(String::from).to_vec(),
                ..RawGraph::default()
            };
            assert_eq!(read(dir.path(), 1 << 20).unwrap().nodes, expected);
            let drained = drain(dir.path(), read).unwrap();
            assert_eq!(drained.edges, [[0, 1], [3, 3], [2, 0]].map(|ends| (ends, 1.0)));
            assert_eq!(drained.rows, [[0.5, 1.0], [2.0, 3.0], [-1.0, 0.0], [7.0, 8.0]]);
        }
    }

    #[test]
    fn other_types_and_orders_are_read() {
        let whole = drain(made_papers(papers_members(), Deflated).path(), read).unwrap();
        let with = |name, array| {
            let dir = made_papers(with_member(papers_members(), name, Some(array)), Deflated);
            drain(dir.path(), read).unwrap()
        };
        let halves = npy_f16("(4, 2)", &[0.5, 1.0, 2.0, 3.0, -1.0, 0.0, 7.0, 8.0]);
        assert_eq!(with("node_feat", halves), whole);
        let pairs = "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3)}";
        let pairs = npy_with(pairs, bytemuck::cast_slice(&[0i32, 1, 3, 3, 2, 0]));
        assert_eq!(with("edge_index", pairs), whole);
        assert_eq!(with("node_label", npy(&[4], &[171f64, 0.0, f64::NAN, 3.0])), whole);
        let classes = Some(RawLabels::Classes { n_classes: 172, classes: vec![171, 0, 1, 3] });
        assert_eq!(with("node_label", npy(&[4], &[171i64, 0, 1, 3])).nodes.labels, classes);
    }

    #[test]
    fn edges_of_several_chunks_keep_their_order() {
        let n_edges = 2 * CHUNK_ITEMS + 77;
        let ends: Vec<i64> = (0..2 * n_edges as i64).map(|item| item % 4).collect();
        let columns = format!("{{'descr': '<i8', 'fortran_order': True, 'shape': (2, {n_edges})}}");
        let by_row: Vec<i64> = ends.iter().step_by(2).chain(ends.iter().skip(1).step_by(2)).copied().collect();
        for array in [npy_with(&columns, bytemuck::cast_slice(&ends)), npy(&[2, n_edges], &by_row)] {
            let members = with_member(papers_members(), "edge_index", Some(array));
            let members = with_member(members, "num_edges_list", Some(npy(&[1], &[n_edges as i64])));
            let drained = drain(made_papers(members, Deflated).path(), read).unwrap();
            let expected = ends.chunks_exact(2).map(|pair| ([pair[0] as u32, pair[1] as u32], 1.0));
            assert!(drained.edges.iter().copied().eq(expected));
        }
    }

    #[test]
    fn bad_arrays_are_named() {
        let f32s = |values: &[f32]| npy(&[values.len()], values);
        let cases: Vec<(&str, Option<Vec<u8>>, &str)> = vec![
            ("num_nodes_list", None, "raw/data.npz: member num_nodes_list.npy: is missing"),
            ("num_nodes_list", Some(npy(&[2], &[4i64, 4])), "num_nodes_list.npy: shape: expected the number of nodes"),
            (
                "num_nodes_list",
                Some(npy(&[1], &[0i64])),
                "num_nodes_list.npy: item 0: expected 1 to 4294967294 nodes, found 0",
            ),
            (
                "num_nodes_list",
                Some(npy(&[1], &[5i64])),
                "node_feat.npy: shape: expected features of 5 nodes, found (4, 2)",
            ),
            (
                "num_edges_list",
                Some(npy(&[1], &[4i64])),
                "edge_index.npy: shape: expected 4 edges (num_edges_list), found 3",
            ),
            ("edge_index", None, "raw/data.npz: member edge_index.npy: is missing"),
            ("edge_index", Some(npy(&[3, 2], &[0i64; 6])), "edge_index.npy: shape: expected (2, 3), found (3, 2)"),
            ("edge_index", Some(npy(&[2, 3], &[0f32; 6])), "edge_index.npy: header: items are F32 where whole numbers"),
            (
                "edge_index",
                Some(npy(&[2, 3], &[0i64, 1, 2, 0, 4, 0])),
                "edge_index.npy: edge 1: node 4 is outside 0..4",
            ),
            (
                "edge_index",
                Some(npy(&[2, 3], &[0i64, 1, 2, 0, 0, -1])),
                "edge_index.npy: item 5: -1 is not a whole number",
            ),
            (
                "node_feat",
                Some(npy(&[4, 2], &[0f32, 0.0, 0.0, f32::NAN, 0.0, 0.0, 0.0, 0.0])),
                "node_feat.npy: item 3: NaN",
            ),
            ("node_feat", Some(f32s(&[0.0; 4])), "node_feat.npy: shape: expected features of 4 nodes, found (4,)"),
            (
                "node_feat",
                Some(npy_with("{'descr': '<f4', 'fortran_order': True, 'shape': (4, 2)}", &[0; 32])),
                "node_feat.npy: header: is in Fortran order",
            ),
            (
                "node_feat",
                Some(npy(&[4, 16_385], &[0f32; 4 * 16_385])),
                "node_feat.npy: shape: 16385 features per node need more than a quarter of --memory",
            ),
            (
                "node_feat",
                Some(npy_of("<f4", "(4, 2)", &[0; 31])),
                "node_feat.npy: header: shape (4, 2) of '<f4' takes 32",
            ),
            ("node_label", None, "raw/node-label.npz: member node_label.npy: is missing"),
            (
                "node_label",
                Some(f32s(&[0.0; 3])),
                "node_label.npy: shape: expected a label for each of 4 nodes, found (3,)",
            ),
            ("node_label", Some(f32s(&[0.0, 172.0, 0.0, 0.0])), "node_label.npy: item 1: label 172 is outside 0..172"),
            ("node_label", Some(f32s(&[0.0, 0.0, 0.5, 0.0])), "node_label.npy: item 2: 0.5 is neither a class nor NaN"),
            ("node_label", Some(f32s(&[0.0, 0.0, -1.0, 0.0])), "node_label.npy: item 2: -1 is neither a class nor NaN"),
            ("node_label", Some(f32s(&[f32::INFINITY; 4])), "node_label.npy: item 0: inf is neither a class nor NaN"),
        ];
        for (name, array, text) in cases {
            for method in [Stored, Deflated] {
                let dir = made_papers(with_member(papers_members(), name, array.clone()), method);
                let error = drain(dir.path(), read).unwrap_err();
                assert!(error.contains(text), "{error:?} does not say {text:?}");
            }
        }
        let dir = made_papers(papers_members(), Stored);
        write(dir.path(), "split/time/test", b"4\n", true);
        assert_eq!(drain(dir.path(), read).unwrap_err(), "split/time/test.csv.gz: line 1: node 4 is outside 0..4");
        write(dir.path(), "split/time/test", b"3\n2\n", true);
        let expected = "split/time/test.csv.gz: line 2: node 2 is in test, but has no label";
        assert_eq!(drain(dir.path(), read).unwrap_err(), expected);
    }

    #[test]
    fn garbled_files_never_panic() {
        let whole = made_papers(papers_members(), Deflated);
        let expected = drain(whole.path(), read).unwrap();
        for file in ["raw/data.npz", "raw/node-label.npz"] {
            let path = whole.path().join(file);
            let bytes = std::fs::read(&path).unwrap();
            for garbled in garbled(&bytes, 400) {
                std::fs::write(&path, garbled).unwrap();
                if let Ok(drained) = drain(whole.path(), read) {
                    assert_eq!(drained, expected);
                }
            }
            std::fs::write(&path, bytes).unwrap();
        }
    }
}
