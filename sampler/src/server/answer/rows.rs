//! `FetchRows`: feature rows, gathered straight into the frame that is sent.

use bytes::BufMut;
use kith_proto::{frame_fields, start_frame};
use kith_store::{Result as StoreResult, Rows, RowsForm, StoreError};
use tonic::Status;

use crate::{
    server::{
        answer::{Answer, CHUNK_BYTES, Chunk, as_bytes},
        error::IntoStatus,
        request::FetchRowsRequest,
        served::Served,
    },
    shard::ShardSampler,
};

/// Nodes, and how many of their rows were sent.
pub(crate) struct FeatureRows {
    request: FetchRowsRequest,
    n_sent: usize,
}

const VALUES: u32 = 1;
const LENGTHS: u32 = 2;
const COLUMNS: u32 = 3;

/// Rows of a chunk, at most: short ones cost something too.
const MAX_ROWS: usize = 64 << 10;

impl FeatureRows {
    pub(crate) fn new(request: FetchRowsRequest) -> FeatureRows {
        FeatureRows { request, n_sent: 0 }
    }

    fn next_dense(&mut self, sampler: &ShardSampler, rows: &Rows) -> StoreResult<Chunk> {
        let row_bytes = rows.row_bytes();
        let rest = &self.request.nodes[self.n_sent..];
        let n_rows = (CHUNK_BYTES / row_bytes.max(1)).clamp(1, MAX_ROWS).min(rest.len());
        let places = sampler.rows_of(&rest[..n_rows])?;
        let mut frame = start_frame(VALUES, n_rows * row_bytes);
        for row in &places {
            frame.put_slice(rows.dense_bytes(*row)?.ok_or_else(|| StoreError::damaged("rows", *row))?);
        }
        Ok(self.sent(n_rows, vec![frame.freeze()]))
    }

    fn next_sparse(&mut self, sampler: &ShardSampler, rows: &Rows) -> StoreResult<Chunk> {
        let (mut lengths, mut columns, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let max_values = CHUNK_BYTES / (size_of::<u32>() + size_of::<f32>());
        for node in self.request.nodes[self.n_sent..].iter().take(MAX_ROWS) {
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
        Ok(self.sent(n_rows, frame_fields(fields)))
    }

    fn sent(&mut self, n_rows: usize, pieces: Vec<bytes::Bytes>) -> Chunk {
        self.n_sent += n_rows;
        let is_last = self.n_sent == self.request.nodes.len();
        Chunk { pieces, is_last, n_sampled: 0, n_rows: n_rows as u64 }
    }
}

impl Answer for FeatureRows {
    fn next(&mut self, served: &Served) -> Result<Chunk, Status> {
        let sampler = served.shard(self.request.shard)?;
        let rows = sampler.shard().rows();
        let rows = rows.ok_or_else(|| Status::failed_precondition("the store has no feature rows"))?;
        match rows.form() {
            RowsForm::Dense => self.next_dense(sampler, rows),
            RowsForm::Sparse => self.next_sparse(sampler, rows),
        }
        .map_err(IntoStatus::into_status)
    }
}
