//! Edges and features of OGB's csv files, read line by line.

use std::path::{Path, PathBuf};

use kith_store::{MAX_WEIGHT, is_weight};

use super::nodes::{check_n_edges, csv};
use crate::{
    Result,
    dataset::streamed::{Edge, EdgeSource, FeatureSource},
    raw::lines::{Line, Lines},
};

/// Edges of `raw/edge.csv`, and their weights if they have some.
pub(super) struct CsvEdges {
    dir: PathBuf,
    n_nodes: u32,
    limit_bytes: u64,
    edges: Lines,
    weights: Option<Lines>,
    n_read: u64,
}

impl CsvEdges {
    /// Opens the edges of a folder, of at most `limit_bytes` bytes unpacked.
    pub(super) fn open(dir: &Path, n_nodes: u32, limit_bytes: u64) -> Result<CsvEdges> {
        let edges = Lines::open(&csv(dir, "raw/edge"), limit_bytes)?;
        Ok(CsvEdges { dir: dir.to_owned(), n_nodes, limit_bytes, edges, weights: None, n_read: 0 })
    }

    /// The same with the weights of `raw/edge_weight.csv`, one per edge.
    pub(super) fn open_weighted(dir: &Path, n_nodes: u32, limit_bytes: u64) -> Result<CsvEdges> {
        let edges = CsvEdges::open(dir, n_nodes, limit_bytes)?;
        let other = csv(dir, "raw/edge-weight");
        let path = if other.exists() { other } else { csv(dir, "raw/edge_weight") };
        Ok(CsvEdges { weights: Some(Lines::open(&path, limit_bytes)?), ..edges })
    }

    fn next_weight(&mut self) -> Result<f32> {
        let Some(weights) = &mut self.weights else { return Ok(1.0) };
        let n_read = self.n_read;
        let Some(line) = weights.next_line()? else {
            return Err(weights.error_at_end(format!("expected a weight for each edge, found {n_read}")));
        };
        let [field] = line.fields()?;
        let weight = line.float(field)?;
        match is_weight(weight) {
            true => Ok(weight),
            false => Err(line.error(format!("{weight} is not a weight: expected a number from 0 to {MAX_WEIGHT:e}"))),
        }
    }
}

impl EdgeSource for CsvEdges {
    fn is_weighted(&self) -> bool {
        self.weights.is_some()
    }

    fn next_edge(&mut self) -> Result<Option<Edge>> {
        let Some(line) = self.edges.next_line()? else {
            if let Some(weights) = &mut self.weights
                && let Some(line) = weights.next_line()?
            {
                return Err(line.error(format!("expected {} weights, found more", self.n_read)));
            }
            check_n_edges(&self.dir, self.limit_bytes, self.n_read)?;
            return Ok(None);
        };
        let ends: [i64; 2] = line.ints()?;
        let ends = [line.below("node", ends[0], self.n_nodes)?, line.below("node", ends[1], self.n_nodes)?];
        let weight = self.next_weight()?;
        self.n_read += 1;
        Ok(Some((ends, weight)))
    }
}

/// Features of `raw/node-feat.csv`, a line per node.
pub(super) struct CsvFeatures {
    lines: Lines,
    n_nodes: u32,
    n_read: u32,
    /// Features of node 0: they give the width of all.
    first: Vec<f32>,
}

impl CsvFeatures {
    /// Opens the features of a folder, of at most `limit_bytes` bytes unpacked; `None` if the file is missing.
    pub(super) fn open(dir: &Path, n_nodes: u32, limit_bytes: u64) -> Result<Option<CsvFeatures>> {
        let path = csv(dir, "raw/node-feat");
        if !path.exists() {
            return Ok(None);
        }
        let mut lines = Lines::open(&path, limit_bytes)?;
        let mut first = Vec::new();
        match lines.next_line()? {
            Some(line) => {
                for value in values(line) {
                    first.push(value?);
                }
            }
            None => return Err(lines.error_at_end(format!("expected features of {n_nodes} nodes, found 0"))),
        }
        Ok(Some(CsvFeatures { lines, n_nodes, n_read: 0, first }))
    }
}

impl FeatureSource for CsvFeatures {
    fn dim(&self) -> u32 {
        u32::try_from(self.first.len()).expect("a line is shorter than 2^32 bytes")
    }

    fn next_row(&mut self, row: &mut [f32]) -> Result<()> {
        if self.n_read == 0 {
            row.copy_from_slice(&self.first);
        } else {
            let Some(line) = self.lines.next_line()? else {
                let problem = format!("expected features of {} nodes, found {}", self.n_nodes, self.n_read);
                return Err(self.lines.error_at_end(problem));
            };
            let mut n_values = 0;
            for value in values(line) {
                let value = value?;
                if let Some(place) = row.get_mut(n_values) {
                    *place = value;
                }
                n_values += 1;
            }
            if n_values != row.len() {
                return Err(line.error(format!("has {n_values} values, but line 1 has {}", row.len())));
            }
        }
        self.n_read += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        match self.lines.next_line()? {
            Some(line) => Err(line.error(format!("expected features of {} nodes, found more", self.n_nodes))),
            None => Ok(()),
        }
    }
}

fn values(line: Line<'_>) -> impl Iterator<Item = Result<f32>> {
    line.text.split(',').map(move |field| line.float(field.trim()))
}
