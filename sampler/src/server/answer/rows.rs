//! `FetchFeatures`: features, gathered directly into the frame that is sent.

use bytes::{BufMut, Bytes};
use kith_proto::{frame_fields, start_frame};
use kith_store::{FeatureLayout, Features, StoreError};
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

/// The most bytes of features of a short answer.
const MAX_SHORT_BYTES: usize = 64 << 10;

const VALUES: u32 = 1;
const LENGTHS: u32 = 2;
const COLUMNS: u32 = 3;

impl FeatureRows {
    pub(crate) fn new(request: FetchFeaturesRequest) -> FeatureRows {
        FeatureRows { request }
    }
}

impl FeatureRows {
    fn next_dense(&mut self, served: &Served, row_bytes: usize) -> Result<(usize, Vec<Bytes>), Status> {
        let FetchFeaturesRequest { parts, nodes } = &mut self.request;
        let next = nodes.peek().map_err(IntoStatus::into_status)?;
        let n_rows = (CHUNK_BYTES / row_bytes.max(1)).max(1).min(next.len());
        let mut frame = start_frame(VALUES, n_rows * row_bytes);
        let mut rest = &next[..n_rows];
        while let Some((shard, n_own)) = parts.next().filter(|_| !rest.is_empty()) {
            let (own, others) = rest.split_at(n_own.min(rest.len()));
            let (sampler, rows) = features_of(served, shard)?;
            for row in sampler.rows_of(own).map_err(IntoStatus::into_status)? {
                let bytes = rows.dense_bytes(row).map_err(IntoStatus::into_status)?;
                frame.put_slice(bytes.ok_or_else(|| StoreError::damaged("features", row).into_status())?);
            }
            parts.advance(own.len());
            rest = others;
        }
        nodes.advance(n_rows);
        Ok((n_rows, vec![frame.freeze()]))
    }

    fn next_sparse(&mut self, served: &Served) -> Result<(usize, Vec<Bytes>), Status> {
        let FetchFeaturesRequest { parts, nodes } = &mut self.request;
        let (mut lengths, mut columns, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let max_values = CHUNK_BYTES / (size_of::<u32>() + size_of::<f32>());
        for node in nodes.peek().map_err(IntoStatus::into_status)? {
            let (shard, _) = parts.next().ok_or_else(|| Status::internal("nodes without a shard"))?;
            let (sampler, rows) = features_of(served, shard)?;
            let row =
                sampler.shard().row_of(*node).and_then(|row| rows.sparse(row)).map_err(IntoStatus::into_status)?;
            let row = row.expect("these rows are sparse");
            if values.len() + row.values.len() > max_values && !lengths.is_empty() {
                break;
            }
            lengths.push(row.values.len() as u32);
            columns.extend_from_slice(row.indices);
            values.extend_from_slice(row.values);
            parts.advance(1);
        }
        let n_rows = lengths.len();
        nodes.advance(n_rows);
        let fields = [(VALUES, as_bytes(values)), (LENGTHS, as_bytes(lengths)), (COLUMNS, as_bytes(columns))];
        Ok((n_rows, frame_fields(fields)))
    }
}

/// A shard and its features.
fn features_of(served: &Served, shard: u32) -> Result<(&ShardSampler, &Features), Status> {
    let sampler = served.shard(shard)?;
    let rows = sampler.shard().features();
    Ok((sampler, rows.ok_or_else(|| Status::failed_precondition("the store has no features"))?))
}

impl Answer for FeatureRows {
    fn next(&mut self, served: &Served) -> Result<Chunk, Status> {
        // Features of all shards have the same layout and length.
        let (n_rows, pieces) = match self.request.parts.next() {
            None => (0, vec![start_frame(VALUES, 0).freeze()]),
            Some((shard, _)) => {
                let (_, rows) = features_of(served, shard)?;
                match rows.layout() {
                    FeatureLayout::Dense => self.next_dense(served, rows.row_bytes())?,
                    FeatureLayout::Sparse => self.next_sparse(served)?,
                }
            }
        };
        let is_last = self.request.nodes.is_empty();
        Ok(Chunk { pieces, is_last, n_rows: n_rows as u64, ..Chunk::default() })
    }

    fn is_short(&self, served: &Served) -> bool {
        let features = self.request.parts.next().and_then(|(shard, _)| features_of(served, shard).ok());
        features.is_some_and(|(_, rows)| {
            rows.layout() == FeatureLayout::Dense
                && self.request.nodes.len().saturating_mul(rows.row_bytes()) <= MAX_SHORT_BYTES
        })
    }

    fn ids(&mut self) -> Option<&mut PackedIds> {
        Some(&mut self.request.nodes)
    }
}
