//! A table of arbitrary bytes, as edges, features, labels or a split, is imported or refused; a store of it is whole.

use std::path::Path;

use kith_partition::{
    csr::{EdgeOptions, MIN_MEMORY_BYTES},
    progress::Quiet,
    tables::{IdRule, SplitRule, Tables, import},
};
use kith_store::{Dtype, verify};

use crate::scratch::with_file;
use kith_corruption::scratch;

/// Edges of the tables whose other tables are arbitrary.
const RING: &[u8] = b"0,1\n1,2\n2,3\n3,0\n";

pub(crate) fn csv(bytes: &[u8]) {
    with_file("t.csv", bytes, import_as_each);
}

pub(crate) fn parquet(bytes: &[u8]) {
    with_file("t.parquet", bytes, import_as_each);
}

fn import_as_each(path: &Path) {
    with_file("ring.csv", RING, |ring| {
        let path = vec![path.to_owned()];
        let tables = |edges: &Path| Tables {
            edges: vec![edges.to_owned()],
            edge_weights: None,
            edge_features: Vec::new(),
            rows: Vec::new(),
            labels: Vec::new(),
            targets: Vec::new(),
            split: None,
            n_nodes: None,
            n_classes: None,
            ids: IdRule::Auto,
            edge_options: EdgeOptions::default(),
            dtype: Dtype::F32,
            memory_bytes: MIN_MEMORY_BYTES,
            run_key: 5,
            source: "fuzz".to_owned(),
        };
        let roles = [
            tables(&path[0]),
            Tables { rows: path.clone(), ..tables(ring) },
            Tables { labels: path.clone(), ..tables(ring) },
            Tables { split: Some(SplitRule::Path(path[0].clone())), ..tables(ring) },
        ];
        for tables in roles {
            let place = scratch();
            let out = place.path().join("store");
            match import(&tables, &out, &Quiet) {
                Ok(_) => assert!(verify(&out, &|_| ()).expect("it has a manifest").findings.is_empty()),
                Err(_) => assert!(!out.exists(), "a store was left behind"),
            }
        }
    });
}
