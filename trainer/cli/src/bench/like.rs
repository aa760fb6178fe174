//! Generated graphs of the sizes of ogbn-arxiv, ogbn-products and ogbn-papers100M.

use std::{path::Path, str::FromStr};

use kith_partition::{
    generate::{Communities, EdgeAmount, PowerLaw, power_law},
    split::Fractions,
};
use kith_store::{Dtype, Graph};

use crate::{
    data::memory,
    progress::{Shown, say},
};

/// The dataset whose size is imitated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Like {
    Arxiv,
    Products,
    /// A share of the nodes and edges of ogbn-papers100M.
    Papers(f64),
}

/// Memory for generating a graph.
const MEMORY_BYTES: u64 = 2 << 30;

/// Published size of a dataset. Each edge is stored in both directions.
struct Size {
    n_nodes: u64,
    n_edges: u64,
    n_classes: u32,
    dim: u32,
    dtype: Dtype,
    exponent: f64,
    /// Nodes of a community; 0 for none.
    community: u64,
    /// Number of nodes for training, validation and test.
    split: [u64; 3],
}

impl Like {
    fn size(self) -> Size {
        match self {
            Like::Arxiv => Size {
                n_nodes: 169_343,
                n_edges: 1_157_799,
                n_classes: 40,
                dim: 128,
                dtype: Dtype::F32,
                exponent: 2.5,
                community: 0,
                split: [90_941, 29_799, 48_603],
            },
            Like::Products => Size {
                n_nodes: 2_449_029,
                n_edges: 61_859_140,
                n_classes: 47,
                dim: 100,
                dtype: Dtype::F16,
                exponent: 3.0,
                community: 1000,
                split: [196_615, 39_323, 2_213_091],
            },
            Like::Papers(_) => Size {
                n_nodes: 111_059_956,
                n_edges: 1_615_685_872,
                n_classes: 172,
                dim: 128,
                dtype: Dtype::F16,
                exponent: 2.5,
                community: 1000,
                split: [1_207_179, 125_265, 214_338],
            },
        }
    }

    /// Name of the store.
    pub(super) fn store_name(self) -> String {
        match self {
            Like::Arxiv => "store-arxiv".to_owned(),
            Like::Products => "store-products".to_owned(),
            Like::Papers(share) => format!("store-papers-{share}"),
        }
    }

    /// Options of the generator.
    fn graph(self) -> PowerLaw {
        let size = self.size();
        let share = if let Like::Papers(share) = self { share } else { 1.0 };
        let of = |n: u64| (n as f64 * share).round() as u64;
        let n_nodes = of(size.n_nodes);
        // Communities lie within classes, which are small in a small share.
        let community = size.community.min(n_nodes / u64::from(size.n_classes));
        let part = |place: usize| size.split[place] as f64 / size.n_nodes as f64;
        PowerLaw {
            n_nodes,
            edges: EdgeAmount::Edges(of(size.n_edges)),
            exponent: size.exponent,
            n_classes: size.n_classes,
            homophily: 0.6,
            communities: (community > 0).then_some(Communities { size: community, share: 0.5 }),
            is_directed: false,
            has_weights: false,
            dim: size.dim,
            dtype: size.dtype,
            split: Fractions { train: part(0), valid: part(1), test: part(2) },
            run_key: 42,
        }
    }

    /// Opens the store, and generates it if missing.
    pub(super) fn open(self, store: &Path) -> anyhow::Result<Graph> {
        if !store.exists() {
            say(&format!("making {}", store.display()));
            power_law(&self.graph(), store, memory::for_data(MEMORY_BYTES)?, &Shown::new())?;
        }
        Ok(Graph::open(store)?)
    }
}

/// `arxiv`, `products`, `papers:0.01`
impl FromStr for Like {
    type Err = String;

    fn from_str(text: &str) -> Result<Like, String> {
        let share = |text: &str| text.parse().ok().filter(|share| (1e-5..=1.0).contains(share));
        match text.split_once(':') {
            None if text == "arxiv" => Ok(Like::Arxiv),
            None if text == "products" => Ok(Like::Products),
            Some(("papers", text)) if share(text).is_some() => Ok(Like::Papers(share(text).expect("looked at"))),
            _ => Err("expected arxiv, products or papers:SHARE, SHARE from 0.00001 to 1, as in papers:0.01".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_have_names() {
        assert_eq!("arxiv".parse(), Ok(Like::Arxiv));
        assert_eq!("papers:0.01".parse(), Ok(Like::Papers(0.01)));
        for wrong in ["", "cora", "papers", "papers:", "papers:0", "papers:2", "papers:NaN", "arxiv:0.5"] {
            assert!(wrong.parse::<Like>().unwrap_err().contains("papers:0.01"), "{wrong}");
        }
    }

    #[test]
    fn a_share_of_a_graph_is_as_dense() {
        let (all, some) = (Like::Papers(1.0).graph(), Like::Papers(0.01).graph());
        assert_eq!((all.n_nodes, some.n_nodes), (111_059_956, 1_110_600));
        assert_eq!((all.edges, some.edges), (EdgeAmount::Edges(1_615_685_872), EdgeAmount::Edges(16_156_859)));
        assert_eq!(all.split, some.split);
        let communities = |share: f64| Like::Papers(share).graph().communities.unwrap().size;
        assert_eq!([1.0, 0.01, 0.001, 1e-5].map(communities), [1000, 1000, 645, 6]);
    }
}
