//! Table of the datasets. Sizes and hashes are only those published for exactly the file at the address.

use super::{
    entry::{Dataset, Download, Member, Published, Reader},
    heterophilous, ogb,
};
use crate::dataset::{
    attributed, four_univ,
    musae::{self, Topic},
    planetoid, ppi, saint,
    treatment::Treatment,
    wiki_cs,
};

macro_rules! planetoid {
    ($name:literal: $($part:literal $n_bytes:literal $sha256:literal),+ $(,)?) => {
        &[$(Download::at(
            concat!("https://github.com/kimiyoung/planetoid/raw/master/data/ind.", $name, ".", $part),
            concat!("ind.", $name, ".", $part),
        )
        .bytes($n_bytes)
        .sha256($sha256)),+]
    };
}

macro_rules! drive {
    ($id:literal, $file:literal) => {
        Download::at(concat!("https://drive.usercontent.google.com/download?id=", $id, "&confirm=t"), $file)
    };
}

/// Every named dataset.
pub static CATALOG: &[Dataset] = &[
    Dataset {
        name: "cora",
        title: "Cora",
        about: "papers and their citations; words; 7 topics",
        published: Published::new([2708, 5429], [1433, 7], [140, 500, 1000]),
        raw_dim: 1433,
        read: Reader::Whole(|dir, _| planetoid::read(dir, "cora")),
        treatment: Treatment::UNDIRECTED,
        downloads: planetoid!["cora":
            "x" 22119 "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
            "tx" 148025 "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
            "allx" 257305 "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
            "y" 4054 "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
            "ty" 28135 "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
            "ally" 47959 "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
            "graph" 59847 "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
            "test.index" 5000 "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
        ],
    },
    Dataset {
        name: "citeseer",
        title: "CiteSeer",
        about: "papers and their citations; words; 6 topics",
        published: Published::new([3327, 4732], [3703, 6], [120, 500, 1000]),
        raw_dim: 3703,
        read: Reader::Whole(|dir, _| planetoid::read(dir, "citeseer")),
        treatment: Treatment::UNDIRECTED,
        downloads: planetoid!["citeseer":
            "x" 31087 "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
            "tx" 260321 "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
            "allx" 595021 "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
            "y" 3014 "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
            "ty" 24135 "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
            "ally" 55623 "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
            "graph" 61987 "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
            "test.index" 5000 "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
        ],
    },
    Dataset {
        name: "pubmed",
        title: "PubMed",
        about: "papers on diabetes and their citations; words; 3 kinds",
        published: Published::new([19717, 44338], [500, 3], [60, 500, 1000]),
        raw_dim: 500,
        read: Reader::Whole(|dir, _| planetoid::read(dir, "pubmed")),
        treatment: Treatment::UNDIRECTED,
        downloads: planetoid!["pubmed":
            "x" 23172 "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
            "tx" 405505 "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
            "allx" 7578385 "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
            "y" 854 "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
            "ty" 12135 "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
            "ally" 224739 "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
            "graph" 471808 "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
            "test.index" 6000 "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
        ],
    },
    Dataset {
        name: "cora-ml",
        title: "Cora-ML",
        about: "papers on machine learning and their citations; words; 7 topics",
        published: Published::new([2995, 8158], [2879, 7], [140, 210, 2645]),
        raw_dim: 2879,
        read: Reader::Whole(|dir, _| attributed::read(dir, "cora-ml")),
        treatment: Treatment::BINARIZED,
        downloads: &[Download::at(
            "https://github.com/abojchevski/graph2gauss/raw/master/data/cora_ml.npz",
            "cora_ml.npz",
        )],
    },
    Dataset {
        name: "cora-full",
        title: "Cora-Full",
        about: "papers and their citations; words; 70 topics",
        published: Published::new([19793, 63421], [500, 70], [1395, 2049, 16349]),
        raw_dim: 8710,
        read: Reader::Whole(|dir, _| attributed::read(dir, "cora-full")),
        treatment: Treatment::SHORTENED,
        downloads: &[Download::at(
            "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/cora_full.npz",
            "cora_full.npz",
        )
        .bytes(11_159_872)
        .sha256("a4e0516cf23ec24eca1ecc57e627414350219fa94337b5b2e232ab58acaf2df7")],
    },
    Dataset {
        name: "dblp",
        title: "DBLP",
        about: "papers and their citations; words; 4 topics",
        published: Published::new([17716, 52867], [1639, 4], [80, 120, 17516]),
        raw_dim: 1639,
        read: Reader::Whole(|dir, _| attributed::read(dir, "dblp")),
        treatment: Treatment::BINARIZED,
        downloads: &[Download::at("https://github.com/abojchevski/graph2gauss/raw/master/data/dblp.npz", "dblp.npz")
            .git_blob("3e179a9ebf2968d9ad67544c8978bf4759e489d8")],
    },
    Dataset {
        name: "cs",
        title: "CS",
        about: "authors in computer science who wrote together; words; 15 fields",
        published: Published::new([18333, 81894], [500, 15], [300, 450, 17583]),
        raw_dim: 6805,
        read: Reader::Whole(|dir, _| attributed::read(dir, "cs")),
        treatment: Treatment::SHORTENED,
        downloads: &[Download::at(
            "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/ms_academic_cs.npz",
            "ms_academic_cs.npz",
        )
        .bytes(12_835_626)
        .git_blob("9bdd7da943d86b74297e8d32e99eb64245b52835")],
    },
    Dataset {
        name: "physics",
        title: "Physics",
        about: "authors in physics who wrote together; words; 5 fields",
        published: Published::new([34493, 247_962], [500, 5], [100, 150, 34243]),
        raw_dim: 8415,
        read: Reader::Whole(|dir, _| attributed::read(dir, "physics")),
        treatment: Treatment::SHORTENED,
        downloads: &[Download::at(
            "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/ms_academic_phy.npz",
            "ms_academic_phy.npz",
        )
        .bytes(16_374_005)
        .git_blob("8d8bc12e29aa67f6753a712080eae81079bd7d01")],
    },
    Dataset {
        name: "photo",
        title: "Photo",
        about: "photo goods bought together; words of reviews; 8 kinds",
        published: Published::new([7650, 119_081], [745, 8], [160, 240, 7250]),
        raw_dim: 745,
        read: Reader::Whole(|dir, _| attributed::read(dir, "photo")),
        treatment: Treatment::WITH_ISOLATED,
        downloads: &[Download::at(
            "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/amazon_electronics_photo.npz",
            "amazon_electronics_photo.npz",
        )
        .bytes(17_113_960)
        .git_blob("97323743cb56aca9dd611f5b4b46862c1c9c6bd9")],
    },
    Dataset {
        name: "computers",
        title: "Computers",
        about: "computer goods bought together; words of reviews; 10 kinds",
        published: Published::new([13752, 245_861], [767, 10], [200, 300, 13252]),
        raw_dim: 767,
        read: Reader::Whole(|dir, _| attributed::read(dir, "computers")),
        treatment: Treatment::WITH_ISOLATED,
        downloads: &[Download::at(
            "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/amazon_electronics_computers.npz",
            "amazon_electronics_computers.npz",
        )
        .bytes(31_921_488)
        .git_blob("8120e4148a330b3fafe37c4476823302d9d834b9")],
    },
    Dataset {
        name: "wiki-cs",
        title: "Wiki-CS",
        about: "articles on computer science and their links; averaged word vectors; 10 branches",
        published: Published::new([11701, 297_110], [300, 10], [580, 1769, 5847]),
        raw_dim: 300,
        read: Reader::Whole(wiki_cs::read),
        treatment: Treatment::FROM_FILES,
        downloads: &[Download::at(
            "https://github.com/pmernyei/wiki-cs-dataset/raw/master/dataset/data.json",
            "data.json",
        )
        .git_blob("f1b743119df1a7a3bca449039c54034ae623a756")],
    },
    Dataset {
        name: "chameleon",
        title: "Chameleon",
        about: "articles on chameleons and their links; nouns; 6 ranges of traffic",
        published: Published::new([2277, 36101], [500, 6], [120, 180, 1977]),
        raw_dim: 13183,
        read: Reader::Whole(|dir, limit_bytes| musae::read(dir, Topic::Chameleon, limit_bytes)),
        treatment: Treatment::WORDS,
        downloads: &[
            Download::at("https://snap.stanford.edu/data/wikipedia.zip", "wikipedia.zip").unzip(64 << 20, CHAMELEON)
        ],
    },
    Dataset {
        name: "crocodile",
        title: "Crocodile",
        about: "articles on crocodiles and their links; nouns; 6 ranges of traffic",
        published: Published::new([11631, 180_020], [500, 6], [120, 180, 11331]),
        raw_dim: 13183,
        read: Reader::Whole(|dir, limit_bytes| musae::read(dir, Topic::Crocodile, limit_bytes)),
        treatment: Treatment::WORDS,
        downloads: &[
            Download::at("https://snap.stanford.edu/data/wikipedia.zip", "wikipedia.zip").unzip(64 << 20, CROCODILE)
        ],
    },
    Dataset {
        name: "four-univ",
        title: "Four-Univ",
        about: "web pages of universities and their links, 5 graphs; words; 6 kinds",
        published: Published::new([4518, 3426], [2000, 6], [4014, 248, 256]),
        raw_dim: 2000,
        read: Reader::Whole(four_univ::read),
        treatment: Treatment::FROM_FILES,
        downloads: &[Download::at(
            "http://www.cs.cmu.edu/afs/cs.cmu.edu/project/theo-20/www/data/webkb-data.gtar.gz",
            "webkb-data.gtar.gz",
        )],
    },
    Dataset {
        name: "flickr",
        title: "Flickr",
        about: "pictures that share a place, a gallery or comments; words of tags; 7 kinds",
        published: Published::new([89250, 449_878], [500, 7], [44625, 22312, 22313]),
        raw_dim: 500,
        read: Reader::Whole(|dir, _| saint::read(dir)),
        treatment: Treatment::FROM_FILES,
        downloads: &[
            drive!("1crmsTbd1-2sEXsGwa2IKnIB7Zd3TmUsy", "adj_full.npz"),
            drive!("1join-XdvX3anJU_MLVtick7MgeAQiWIZ", "feats.npy"),
            drive!("1uxIkbtg5drHTsKt-PAsZZ4_yJmgFmle9", "class_map.json"),
            drive!("1htXCtuktuCW8TR8KiKfrFDAxUgekQoV7", "role.json"),
        ],
    },
    Dataset {
        name: "ppi",
        title: "PPI",
        about: "proteins that act together, 24 tissues as 24 graphs; gene sets; any of 121 roles",
        published: Published::new([56944, 818_716], [50, 121], [44906, 6514, 5524]),
        raw_dim: 50,
        read: Reader::Whole(|dir, _| ppi::read(dir)),
        treatment: Treatment::UNDIRECTED,
        downloads: &[Download::at("https://data.dgl.ai/dataset/ppi.zip", "ppi.zip").unzip(1 << 30, PPI)],
    },
    ogb::ARXIV,
    heterophilous::ROMAN_EMPIRE,
    heterophilous::AMAZON_RATINGS,
    heterophilous::MINESWEEPER,
    heterophilous::TOLOKERS,
    heterophilous::QUESTIONS,
    ogb::PRODUCTS,
    ogb::PAPERS100M,
    ogb::COLLAB,
];

static CHAMELEON: &[Member] = &[
    Member::at("wikipedia/chameleon/musae_chameleon_edges.csv", "musae_chameleon_edges.csv"),
    Member::at("wikipedia/chameleon/musae_chameleon_features.json", "musae_chameleon_features.json"),
    Member::at("wikipedia/chameleon/musae_chameleon_target.csv", "musae_chameleon_target.csv"),
];

static CROCODILE: &[Member] = &[
    Member::at("wikipedia/crocodile/musae_crocodile_edges.csv", "musae_crocodile_edges.csv"),
    Member::at("wikipedia/crocodile/musae_crocodile_features.json", "musae_crocodile_features.json"),
    Member::at("wikipedia/crocodile/musae_crocodile_target.csv", "musae_crocodile_target.csv"),
];

static PPI: &[Member] = &[
    Member::at("train_graph.json", "train_graph.json"),
    Member::at("train_graph_id.npy", "train_graph_id.npy"),
    Member::at("train_feats.npy", "train_feats.npy"),
    Member::at("train_labels.npy", "train_labels.npy"),
    Member::at("valid_graph.json", "valid_graph.json"),
    Member::at("valid_graph_id.npy", "valid_graph_id.npy"),
    Member::at("valid_feats.npy", "valid_feats.npy"),
    Member::at("valid_labels.npy", "valid_labels.npy"),
    Member::at("test_graph.json", "test_graph.json"),
    Member::at("test_graph_id.npy", "test_graph_id.npy"),
    Member::at("test_feats.npy", "test_feats.npy"),
    Member::at("test_labels.npy", "test_labels.npy"),
];
