//! Stores with adjacency only.

use std::path::Path;

use kith_store::{Contents, Graph, Provenance, StoreWriter};

/// The store whose node n has list n, in a folder that must outlive it.
pub(crate) fn store(folder: &Path, lists: &[Vec<u64>], is_wide: bool) -> Graph {
    write(folder, lists, None, is_wide)
}

/// The same with the weights of all edges.
#[allow(dead_code)]
pub(crate) fn weighted_store(folder: &Path, lists: &[Vec<(u64, f32)>], is_wide: bool) -> Graph {
    let weights = lists.iter().flatten().map(|(_, weight)| *weight).collect();
    let lists: Vec<Vec<u64>> = lists.iter().map(|list| list.iter().map(|(id, _)| *id).collect()).collect();
    write(folder, &lists, Some(weights), is_wide)
}

fn write(folder: &Path, lists: &[Vec<u64>], weights: Option<Vec<f32>>, is_wide: bool) -> Graph {
    let path = folder.join("store");
    let mut writer = StoreWriter::create(&path).unwrap();
    let mut indptr = vec![0u64];
    lists.iter().for_each(|list| indptr.push(indptr.last().unwrap() + list.len() as u64));
    let indices: Vec<u64> = lists.concat();
    writer.write("indptr", &indptr).unwrap();
    if is_wide {
        writer.write("indices", &indices).unwrap();
    } else {
        writer.write("indices", &indices.iter().map(|id| *id as u32).collect::<Vec<_>>()).unwrap();
    }
    if let Some(weights) = &weights {
        writer.write("edge_weights", weights).unwrap();
    }
    // Said to be symmetric so that one set of lists is enough; hops read no other.
    let (n_nodes, n_edges) = (lists.len() as u64, indices.len() as u64);
    let contents =
        Contents { n_nodes, n_edges, is_symmetric: true, edge_weights: weights.is_some(), ..Contents::default() };
    writer.finish(contents, Provenance::default()).unwrap();
    Graph::open(&path).unwrap()
}
