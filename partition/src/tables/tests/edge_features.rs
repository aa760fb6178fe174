//! Features of edges, in every format.

use kith_store::Cluster;

use super::*;
use crate::tables::EdgeWeightRule;

/// (source, destination, features), by destination.
fn featured(graph: &Graph) -> Vec<(u64, u64, Vec<f32>)> {
    let features = graph.edge_features().unwrap();
    let mut found = Vec::new();
    for destination in 0..graph.n_nodes() {
        let (start, _) = graph.lists().bounds(destination).unwrap();
        for (slot, source) in graph.lists().of(destination).unwrap().iter().enumerate() {
            let mut own = vec![0.0; features.dim()];
            features.read((start + slot) as u64, &mut own).unwrap();
            found.push((source, destination, own));
        }
    }
    found
}

#[test]
fn features_of_every_format() {
    let folder = Folder::new();
    // Parallel edges are in the order of the tables.
    let expected = [(2, 0, vec![1.0, 2.0]), (0, 1, vec![3.0, 4.5]), (0, 1, vec![-7.0, 8.0]), (1, 2, vec![5.0, 6.0])];
    let csv = folder.write("edges.csv", "source,target\n2,0\n0,1\n1,2\n0,1\n");
    let array = folder.write("edges.npy", npy(&[4, 2], &[2i64, 0, 0, 1, 1, 2, 0, 1]));
    let texts = folder.write("texts.csv", "from,to\nc,a\na,b\nb,c\na,b\n");
    let rows = [1.0f32, 2.0, 3.0, 4.5, 5.0, 6.0, -7.0, 8.0];
    let features = [
        vec![folder.write("features.npy", npy(&[4, 2], &rows))],
        vec![folder.write("features.csv", "a,b\n1,2\n3,4.5\n5,6\n-7,8\n")],
        vec![folder.write("one.npy", npy(&[1, 2], &rows[..2])), folder.write("three.npy", npy(&[3, 2], &rows[2..]))],
    ];
    for edges in [&csv, &array, &texts] {
        for edge_features in &features {
            for ids in [IdRule::Auto, IdRule::Mapped] {
                let tables = Tables { edge_features: edge_features.clone(), ids, ..tables(&[edges]) };
                let manifest = folder.import_and(&tables, |graph| assert_eq!(featured(graph), expected)).unwrap();
                assert!(!manifest.contents.edge_weights && !manifest.contents.is_symmetric);
            }
        }
    }
}

/// More edges than a piece of a file has, in several files, with mapped ids, weights and reverses.
#[test]
fn features_follow_their_edges_through_every_sort() {
    let folder = Folder::new();
    let all = edges(90, 4_000);
    let id = |node: u64| node * 1_000_003 + 17;
    let line = |(place, (source, destination)): (usize, &(u64, u64))| {
        format!("{} {} {}\n", id(*source), id(*destination), place % 5)
    };
    let text = |part: &[(u64, u64)], first: usize| -> String {
        part.iter().enumerate().map(|(place, edge)| line((first + place, edge))).collect()
    };
    let parts = [folder.write("a.txt", text(&all[..1500], 0)), folder.write("b.txt", text(&all[1500..], 1500))];
    let values: Vec<f32> = (0..all.len()).flat_map(|place| [place as f32, -(place as f32) / 2.0]).collect();
    let features = folder.write("features.npy", npy(&[all.len(), 2], &values));
    for symmetrize in [false, true] {
        let tables = Tables {
            edge_weights: Some(EdgeWeightRule::Column("2".to_owned())),
            edge_features: vec![features.clone()],
            edge_options: EdgeOptions { symmetrize, ..EdgeOptions::default() },
            ids: IdRule::Mapped,
            ..tables(&[&parts[0], &parts[1]])
        };
        let manifest = folder
            .import_and(&tables, |graph| {
                let own = |node: u64| match graph.ids().unwrap().of(node).unwrap().to_string().parse::<u64>() {
                    Ok(id) => (id - 17) / 1_000_003,
                    Err(error) => panic!("{error}"),
                };
                let mut n_found = 0;
                for (source, destination, features) in featured(graph) {
                    let place = features[0] as usize;
                    let (from, to) = all[place];
                    let ends = (own(source), own(destination));
                    assert!(ends == (from, to) || symmetrize && ends == (to, from), "{ends:?} has row {place}");
                    assert_eq!(features[1], -features[0] / 2.0);
                    n_found += 1;
                }
                let n_loops = all.iter().filter(|(from, to)| from == to).count();
                assert_eq!(n_found, if symmetrize { 2 * all.len() - n_loops } else { all.len() });
                assert!(kith_store::verify(graph.dir(), &|_| ()).unwrap().findings.is_empty());
            })
            .unwrap();
        assert_eq!((manifest.contents.is_symmetric, manifest.contents.edge_weights), (symmetrize, true));
    }
}

/// An undirected graph as PyG has it: both directions, with the same features.
#[test]
fn equal_features_of_both_directions_are_symmetric() {
    let folder = Folder::new();
    let edges = folder.write("edges.csv", "0,1\n1,0\n2,1\n1,2\n");
    let import = |features: &str| {
        let tables = Tables { edge_features: vec![folder.write("f.csv", features)], ..tables(&[&edges]) };
        folder.import_and(&tables, |_| ()).unwrap().contents.is_symmetric
    };
    assert!(import("1\n1\n2\n2\n"));
    assert!(!import("1\n1\n2\n3\n"), "other features in one direction");
    assert!(!import("0\n-0\n2\n2\n"), "stores are compared by their bits");
}

#[test]
fn shards_have_the_features_of_their_edges() {
    let folder = Folder::new();
    let edges = folder.write("edges.csv", "0,1\n1,0\n2,1\n1,2\n3,0\n2,3\n");
    let features = folder.write("f.csv", "1,9\n2,8\n3,7\n4,6\n5,5\n6,4\n");
    let tables = Tables { edge_features: vec![features], dtype: Dtype::F16, ..tables(&[&edges]) };
    let look = |graph: &Graph| {
        let out = folder.0.path().join("shards");
        let provenance = kith_store::Provenance::default();
        let owner = [0, 1, 0, 1];
        let cut =
            kith_store::Cut { owner: &owner, n_shards: 2, inclusion: None, method: "test".to_owned(), provenance };
        kith_store::write_cluster(graph, &cut, &out, &|_| ()).unwrap();
        let cluster = Cluster::open(&out).unwrap();
        let expected = featured(graph);
        for shard in 0..2 {
            let shard = cluster.open_shard(shard).unwrap();
            let own = shard.edge_features().unwrap();
            for (row, node) in shard.nodes().enumerate() {
                let (start, end) = shard.lists().bounds(row as u64).unwrap();
                let found: Vec<Vec<f32>> = (start..end)
                    .map(|edge| {
                        let mut features = vec![0.0; 2];
                        own.read(edge as u64, &mut features).unwrap();
                        features
                    })
                    .collect();
                let expected = expected.iter().filter(|(_, to, _)| *to == node).map(|(_, _, own)| own.clone());
                assert_eq!(found, expected.collect::<Vec<_>>(), "node {node}");
            }
        }
    };
    folder.import_and(&tables, look).unwrap();
}

#[test]
fn wrong_features_are_refused() {
    let folder = Folder::new();
    let edges = folder.write("edges.csv", "0,1\n1,0\n2,1\n");
    let refused = |name: &str, text: &str, edge_options: EdgeOptions| {
        let tables = Tables { edge_features: vec![folder.write(name, text)], edge_options, ..tables(&[&edges]) };
        folder.import_and(&tables, |_| ()).unwrap_err().to_string()
    };
    let plain = EdgeOptions::default();
    let few = refused("few.csv", "1\n2\n", plain);
    assert!(few.ends_with("few.csv: rows: expected 3 rows, one per edge, found 2 rows"), "{few}");
    let many = refused("many.csv", "1\n2\n3\n4\n", plain);
    assert!(many.ends_with("many.csv: rows: expected 3 rows, one per edge, found 4 rows"), "{many}");
    let nan = refused("nan.csv", "1\nnan\n3\n", plain);
    assert!(nan.contains("nan.csv"), "{nan}");
    let id = refused("id.csv", "id,a\n0,1\n1,2\n2,3\n", plain);
    assert!(id.contains("rows of edge features come in the order of the edges: leave out the id column"), "{id}");
    let merged = refused("fine.csv", "1\n2\n3\n", EdgeOptions { merge_duplicates: true, ..plain });
    assert!(merged.contains("--merge-duplicates: edges with features are not merged"), "{merged}");
}
