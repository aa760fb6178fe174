//! Entries of OGB's datasets, with the counts of its web page.

use super::entry::{Dataset, Download, Member, Published, Reader};
use crate::dataset::{ogb, treatment::Treatment};

pub(super) const ARXIV: Dataset = Dataset {
    name: "ogbn-arxiv",
    title: "ogbn-arxiv",
    about: "papers and their citations; averaged word vectors; 40 subjects, split by year",
    published: Published::new([169_343, 1_166_243], [128, 40], [90941, 29799, 48603]),
    raw_dim: 128,
    read: Reader::Whole(ogb::read_any),
    treatment: Treatment::FROM_FILES,
    downloads: &[Download::at("http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip", "arxiv.zip")
        .unzip(512 << 20, ARXIV_FILES)],
};

pub(super) const PRODUCTS: Dataset = Dataset {
    name: "ogbn-products",
    title: "ogbn-products",
    about: "products bought together; words of descriptions, shortened by PCA; 47 categories, split by sales",
    published: Published::new([2_449_029, 61_859_140], [100, 47], [196_615, 39_323, 2_213_091]),
    raw_dim: 100,
    read: Reader::Streamed(ogb::large::read_products),
    treatment: Treatment::REVERSED,
    downloads: &[Download::at("http://snap.stanford.edu/ogb/data/nodeproppred/products.zip", "products.zip")
        .unzip(8 << 30, PRODUCTS_FILES)],
};

pub(super) const PAPERS100M: Dataset = Dataset {
    name: "ogbn-papers100M",
    title: "ogbn-papers100M",
    about: "papers and their citations; averaged word vectors; 172 subjects of 1.4% of the nodes, split by year",
    published: Published::new([111_059_956, 1_615_685_872], [128, 172], [1_207_179, 125_265, 214_338]),
    raw_dim: 128,
    read: Reader::Streamed(ogb::papers::read),
    treatment: Treatment::FROM_FILES,
    downloads: &[Download::at(
        "http://snap.stanford.edu/ogb/data/nodeproppred/papers100M-bin.zip",
        "papers100M-bin.zip",
    )
    .unzip(128 << 30, PAPERS100M_FILES)],
};

pub(super) const COLLAB: Dataset = Dataset {
    name: "ogbl-collab",
    title: "ogbl-collab",
    about: "authors and their joint papers, as weights; averaged word vectors; links, no classes",
    // Lines of raw/edge.csv; OGB's page also counts validation and test edges.
    published: Published::new([235_868, 1_179_052], [128, 0], [0, 0, 0]),
    raw_dim: 128,
    read: Reader::Streamed(ogb::large::read_collab),
    treatment: Treatment::UNDIRECTED,
    downloads: &[Download::at("http://snap.stanford.edu/ogb/data/linkproppred/collab.zip", "collab.zip")
        .unzip(2 << 30, COLLAB_FILES)],
};

static ARXIV_FILES: &[Member] = &[
    Member::at("arxiv/raw/edge.csv.gz", "raw/edge.csv.gz").git_blob("79a501578454cfb045c7de245e7c7a7804246152"),
    Member::at("arxiv/raw/node-feat.csv.gz", "raw/node-feat.csv.gz")
        .git_blob("9e386dd5dbb585cdc8cb39f883c29ab6fcd684f8"),
    Member::at("arxiv/raw/node-label.csv.gz", "raw/node-label.csv.gz"),
    Member::at("arxiv/raw/node_year.csv.gz", "raw/node_year.csv.gz"),
    Member::at("arxiv/raw/num-node-list.csv.gz", "raw/num-node-list.csv.gz"),
    Member::at("arxiv/raw/num-edge-list.csv.gz", "raw/num-edge-list.csv.gz"),
    Member::at("arxiv/split/time/train.csv.gz", "split/time/train.csv.gz"),
    Member::at("arxiv/split/time/valid.csv.gz", "split/time/valid.csv.gz"),
    Member::at("arxiv/split/time/test.csv.gz", "split/time/test.csv.gz"),
    Member::at("arxiv/mapping/labelidx2arxivcategeory.csv.gz", "mapping/labelidx2arxivcategeory.csv.gz"),
    Member::at("arxiv/mapping/nodeidx2paperid.csv.gz", "mapping/nodeidx2paperid.csv.gz"),
];

/// The members of these files, in the folder `$folder` of an archive.
macro_rules! members {
    ($folder:literal: $($file:literal),+ $(,)?) => {
        &[$(Member::at(concat!($folder, "/", $file), $file)),+]
    };
}

static PRODUCTS_FILES: &[Member] = members!["products":
    "raw/edge.csv.gz",
    "raw/node-feat.csv.gz",
    "raw/node-label.csv.gz",
    "raw/num-node-list.csv.gz",
    "raw/num-edge-list.csv.gz",
    "split/sales_ranking/train.csv.gz",
    "split/sales_ranking/valid.csv.gz",
    "split/sales_ranking/test.csv.gz",
    "mapping/nodeidx2asin.csv.gz",
];

static PAPERS100M_FILES: &[Member] = members!["papers100M-bin":
    "raw/data.npz",
    "raw/node-label.npz",
    "split/time/train.csv.gz",
    "split/time/valid.csv.gz",
    "split/time/test.csv.gz",
    "mapping/nodeidx2paperid.csv.gz",
];

static COLLAB_FILES: &[Member] = members!["collab":
    "raw/edge.csv.gz",
    "raw/edge_weight.csv.gz",
    "raw/node-feat.csv.gz",
    "raw/num-node-list.csv.gz",
    "raw/num-edge-list.csv.gz",
    "mapping/nodeidx2authorid.csv.gz",
];
