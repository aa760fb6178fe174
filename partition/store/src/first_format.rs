//! Manifests of format 1 (Kith 0.1.0), read as those of today. Columns are the same but for some names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    item::Dtype,
    manifest::{
        ClusterEntry, ColumnEntry, Contents, CutEntry, FeatureLayout, FeaturesEntry, GraphsEntry, IdsEntry, LabelKind,
        LabelsEntry, Manifest, Provenance, ShardEntry, digest_of, file_name, json_of,
    },
};

/// The version that these manifests state.
pub(crate) const VERSION: u32 = 1;

/// Columns of format 1 with other names today.
const RENAMED: [(&str, &str); 4] = [
    ("rows", "features"),
    ("row_indptr", "feature_indptr"),
    ("row_indices", "feature_indices"),
    ("row_values", "feature_values"),
];

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FirstManifest {
    format_version: u32,
    digest: String,
    contents: FirstContents,
    provenance: FirstProvenance,
    columns: Vec<FirstColumn>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FirstContents {
    n_nodes: u64,
    n_edges: u64,
    is_symmetric: bool,
    rows: Option<FirstRows>,
    labels: Option<FirstLabels>,
    splits: Vec<String>,
    ids: Option<IdsEntry>,
    graphs: Option<GraphsEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cut: Option<FirstCut>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FirstCut {
    Cluster(ClusterEntry),
    Shard(ShardEntry),
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FirstRows {
    dim: u64,
    form: FeatureLayout,
    dtype: Dtype,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FirstLabels {
    n_classes: u64,
    multi_label: bool,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FirstProvenance {
    source: String,
    run_key: Option<u64>,
    options: BTreeMap<String, String>,
    counted: BTreeMap<String, u64>,
    notes: Vec<String>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FirstColumn {
    name: String,
    dtype: Dtype,
    n_items: u64,
    checksum: String,
}

/// Reads a manifest of format 1; `None` if its digest does not match its text.
pub(crate) fn read(bytes: &[u8]) -> serde_json::Result<Option<Manifest>> {
    let first: FirstManifest = serde_json::from_slice(bytes)?;
    let nameless = FirstManifest { digest: String::new(), ..first.clone() };
    if digest_of(&json_of(&nameless)) != first.digest {
        return Ok(None);
    }
    let FirstManifest { format_version, digest, contents, provenance, columns } = first;
    let FirstContents { n_nodes, n_edges, is_symmetric, rows, labels, splits, ids, graphs, cut } = contents;
    let FirstProvenance { source, run_key: seed, options, counted, notes } = provenance;
    Ok(Some(Manifest {
        format_version,
        digest,
        contents: Contents {
            n_nodes,
            n_edges,
            is_symmetric,
            edge_weights: false,
            edge_features: None,
            features: rows.map(|FirstRows { dim, form: layout, dtype }| FeaturesEntry { dim, layout, dtype }),
            labels: labels.map(|FirstLabels { n_classes, multi_label }| LabelsEntry {
                kind: if multi_label { LabelKind::MultiLabel } else { LabelKind::Classes },
                n_classes,
            }),
            splits,
            ids,
            graphs,
            cut: cut.map(|cut| match cut {
                FirstCut::Cluster(entry) => CutEntry::Cluster(entry),
                FirstCut::Shard(entry) => CutEntry::Shard(entry),
            }),
        },
        provenance: Provenance { source, seed, options, counted, notes, upgraded_from: None },
        columns: columns.into_iter().map(column).collect(),
    }))
}

fn column(FirstColumn { name, dtype, n_items, checksum }: FirstColumn) -> ColumnEntry {
    match RENAMED.iter().find(|(first, _)| *first == name) {
        None => ColumnEntry { name, dtype, n_items, checksum, earlier_file: None },
        Some((first, today)) => {
            let earlier_file = Some(file_name(first, dtype));
            ColumnEntry { name: (*today).to_owned(), dtype, n_items, checksum, earlier_file }
        }
    }
}
