//! `FetchFeatures`: features, gathered directly into the frame that is sent.

use bytes::{BufMut, Bytes};
use kith_proto::{frame_fields, start_frame};
use kith_store::{FeatureLayout, Features, Result as StoreResult, StoreError};
use tonic::Status;

use crate::{
    server::{
        answer::chunk::{Answer, CHUNK_BYTES, Chunk, as_bytes},
        error::IntoStatus,
        ids::PackedIds,
        request::FetchFeaturesRequest,
        served::Served,
    },
    shard::ShardSampler,
};

/// Nodes whose rows were not sent.
pub(crate) struct FeatureRows {
    request: FetchFeaturesRequest,
}

const VALUES: u32 = 1;
const LENGTHS: u32 = 2;
const COLUMNS: u32 = 3;

impl FeatureRows {
    pub(crate) fn new(request: FetchFeaturesRequest) -> FeatureRows {
        FeatureRows { request }
    }
}

fn next_dense(nodes: &[u64], sampler: &ShardSampler, rows: &Features) -> StoreResult<(usize, Vec<Bytes>)> {
    let row_bytes = rows.row_bytes();
    let n_rows = (CHUNK_BYTES / row_bytes.max(1)).max(1).min(nodes.len());
    let places = sampler.rows_of(&nodes[..n_rows])?;
    let mut frame = start_frame(VALUES, n_rows * row_bytes);
    for row in &places {
        frame.put_slice(rows.dense_bytes(*row)?.ok_or_else(|| StoreError::damaged("features", *row))?);
    }
    Ok((n_rows, vec![frame.freeze()]))
}

fn next_sparse(nodes: &[u64], sampler: &ShardSampler, rows: &Features) -> StoreResult<(usize, Vec<Bytes>)> {
    let (mut lengths, mut columns, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let max_values = CHUNK_BYTES / (size_of::<u32>() + size_of::<f32>());
    for node in nodes {
        let row = rows.sparse(sampler.shard().row_of(*node)?)?.expect("these rows are sparse");
        if values.len() + row.values.len() > max_values && !lengths.is_empty() {
            break;
        }
        lengths.push(row.values.len() as u32);
        columns.extend_from_slice(row.indices);
        values.extend_from_slice(row.values);
    }
    let n_rows = lengths.len();
    let fields = [(VALUES, as_bytes(values)), (LENGTHS, as_bytes(lengths)), (COLUMNS, as_bytes(columns))];
    Ok((n_rows, frame_fields(fields)))
}

impl Answer for FeatureRows {
    fn next(&mut self, served: &Served) -> Result<Chunk, Status> {
        let FetchFeaturesRequest { shard, nodes } = &mut self.request;
        let sampler = served.shard(*shard)?;
        let rows = sampler.shard().features();
        let rows = rows.ok_or_else(|| Status::failed_precondition("the store has no features"))?;
        let next = nodes.peek().map_err(IntoStatus::into_status)?;
        let (n_rows, pieces) = match rows.layout() {
            FeatureLayout::Dense => next_dense(next, sampler, rows),
            FeatureLayout::Sparse => next_sparse(next, sampler, rows),
        }
        .map_err(IntoStatus::into_status)?;
        nodes.advance(n_rows);
        Ok(Chunk { pieces, is_last: nodes.is_empty(), n_rows: n_rows as u64, ..Chunk::default() })
    }

    fn ids(&mut self) -> Option<&mut PackedIds> {
        Some(&mut self.request.nodes)
    }
}
