//! Small files of the formats, for tests.

use std::{fs, io::Write, path::Path};

use flate2::{Compression, write::GzEncoder};
use tempfile::TempDir;
use zip::CompressionMethod;

use crate::{
    Result,
    dataset::streamed::StreamedGraph,
    raw::{
        RawGraph,
        lines::mutation::scratch,
        samples::{npy, npy_of, zip},
    },
};

/// Writes a csv file, gzip or plain; `file` is its path without the ending.
pub(super) fn write(dir: &Path, file: &str, bytes: &[u8], packed: bool) {
    let path = dir.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    if !packed {
        return fs::write(path.with_extension("csv"), bytes).unwrap();
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    fs::write(path.with_extension("csv.gz"), encoder.finish().unwrap()).unwrap();
}

/// ogbn-products of four nodes, with a self-loop and an edge that stands there twice.
pub(super) const PRODUCTS_FILES: [(&str, &str); 9] = [
    ("raw/num-node-list", "4\n"),
    ("raw/num-edge-list", "4\n"),
    ("raw/node-label", "0\n46\n7\n7\n"),
    ("raw/node-feat", "0.5,-1e-2\n1,2\n-0.0,3.25\n4,5\n"),
    ("raw/edge", "0,1\n3,3\n2,0\n0,1\n"),
    ("split/sales_ranking/train", "3\n"),
    ("split/sales_ranking/valid", "0\n"),
    ("split/sales_ranking/test", "1\n2\n"),
    ("mapping/nodeidx2asin", "node idx,asin\n0,B00A\n1,B00B\n2,000X\n3,B00D\n"),
];

/// ogbl-collab of three nodes; two joint years of nodes 0 and 1.
pub(super) const COLLAB_FILES: [(&str, &str); 7] = [
    ("raw/num-node-list", "3\n"),
    ("raw/num-edge-list", "3\n"),
    ("raw/node-feat", "0.5,1\n2,3\n4,5\n"),
    ("raw/edge", "0,1\n1,0\n2,1\n"),
    ("raw/edge_weight", "1\n3\n2\n"),
    ("raw/edge_year", "2010\n2011\n2017\n"),
    ("mapping/nodeidx2authorid", "node idx,author id\n0,12\n1,7\n2,30\n"),
];

/// A folder with these csv files.
pub(super) fn made(files: &[(&str, &str)], packed: bool) -> TempDir {
    let dir = scratch();
    for (file, text) in files {
        write(dir.path(), file, text.as_bytes(), packed);
    }
    dir
}

/// Members of the two npz files of ogbn-papers100M: four nodes, three edges, node 2 without a label.
pub(super) fn papers_members() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("edge_index", npy(&[2, 3], &[0i64, 3, 2, 1, 3, 0])),
        ("node_feat", npy(&[4, 2], &[0.5f32, 1.0, 2.0, 3.0, -1.0, 0.0, 7.0, 8.0])),
        ("node_year", npy(&[4, 1], &[2001i64, 2002, 2003, 2004])),
        ("num_nodes_list", npy(&[1], &[4i64])),
        ("num_edges_list", npy(&[1], &[3i64])),
        ("node_label", npy(&[4, 1], &[171f32, 0.0, f32::NAN, 3.0])),
    ]
}

/// A folder with ogbn-papers100M of these members.
pub(super) fn made_papers(members: Vec<(&'static str, Vec<u8>)>, method: CompressionMethod) -> TempDir {
    let dir = scratch();
    let (labels, data): (Vec<_>, Vec<_>) = members.into_iter().partition(|(name, _)| *name == "node_label");
    fs::create_dir_all(dir.path().join("raw")).unwrap();
    fs::write(dir.path().join("raw/data.npz"), zip(&data, method)).unwrap();
    fs::write(dir.path().join("raw/node-label.npz"), zip(&labels, method)).unwrap();
    for (file, text) in [("train", "0\n"), ("valid", "1\n"), ("test", "3\n")] {
        write(dir.path(), &format!("split/time/{file}"), text.as_bytes(), true);
    }
    write(dir.path(), "mapping/nodeidx2paperid", b"node idx,paper id\n0,9\n1,8\n2,7\n3,6\n", true);
    dir
}

/// Half-precision numbers as an npy file.
pub(super) fn npy_f16(shape: &str, values: &[f32]) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| half::f16::from_f32(*value).to_le_bytes()).collect();
    npy_of("<f2", shape, &bytes)
}

/// Reads a streamed dataset to its end; errors have paths relative to the folder.
pub(super) fn drain(dir: &Path, read: fn(&Path, u64) -> Result<StreamedGraph>) -> Result<Drained, String> {
    let folder = format!("{}/", dir.display());
    let all = || -> Result<Drained> {
        let StreamedGraph { nodes, mut edges, rows } = read(dir, 1 << 20)?;
        let n_nodes = nodes.n_nodes;
        let mut drained = Drained { nodes, edges: Vec::new(), rows: Vec::new() };
        while let Some(edge) = edges.next_edge()? {
            drained.edges.push(edge);
        }
        if let Some(mut rows) = rows {
            for _ in 0..n_nodes {
                let mut row = vec![0.0; rows.dim() as usize];
                rows.next_row(&mut row)?;
                drained.rows.push(row);
            }
            rows.finish()?;
        }
        Ok(drained)
    };
    all().map_err(|error| error.to_string().replace(&folder, ""))
}

/// Nodes, and the edges and features that were streamed.
#[derive(Debug, PartialEq)]
pub(super) struct Drained {
    pub(super) nodes: RawGraph,
    pub(super) edges: Vec<([u32; 2], f32)>,
    pub(super) rows: Vec<Vec<f32>>,
}
