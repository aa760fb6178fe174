//! Labels as input: columns after the features hold the classes of the nodes whose labels are shown, and zeros for all others.
//!
//! A node whose label is shown has no node loss in that step, so no label reaches its own loss. With label reuse, the columns of the
//! nodes that are not shown hold probabilities that an earlier pass predicted.

use kith_client::Seeds;
use kith_draw::{Name, Purpose, Stream};
use kith_kernels::InputRows;
use kith_run::config::TrainConfig;

use crate::data::{
    input::{GraphInput, Labels},
    matrix::Matrix,
};

/// Label columns of a model.
#[derive(Clone, Debug)]
pub struct LabelInput {
    /// Columns of features.
    dim: usize,
    n_classes: usize,
    /// Training nodes with a smaller draw of 32 bits are shown.
    threshold: u64,
    n_reuse: usize,
}

/// Training nodes of a graph in one step, by position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawnLabels {
    /// Nodes whose labels are input.
    pub shown: Vec<u32>,
    /// Nodes with a node loss.
    pub predicted: Vec<u32>,
}

impl LabelInput {
    /// Label columns of a run on a graph with `dim` features; `None` if labels are no input.
    pub fn new(config: &TrainConfig, dim: usize, n_classes: usize) -> Option<LabelInput> {
        let share = config.label_input?;
        let threshold = (share * 2f64.powi(32)).round() as u64;
        Some(LabelInput { dim, n_classes, threshold, n_reuse: config.label_reuse.unwrap_or(0) })
    }

    /// Number of columns.
    pub fn n_columns(&self) -> usize {
        self.n_classes
    }

    /// Passes whose predictions are input of the next.
    pub fn n_reuse(&self) -> usize {
        self.n_reuse
    }

    /// Divides the training nodes of a graph in one step. A draw that shows all of them leaves no loss: then none is shown.
    pub fn draw(&self, graph: &GraphInput, run_key: u64, step: u64) -> DrawnLabels {
        let stream = stream_of(run_key, step);
        let is_shown = |position: &u32| self.is_drawn(stream, graph.block.id(*position as usize));
        let (shown, predicted): (Vec<u32>, Vec<u32>) = graph.train.iter().partition(|position| is_shown(position));
        match predicted.is_empty() {
            true => DrawnLabels { shown: predicted, predicted: shown },
            false => DrawnLabels { shown, predicted },
        }
    }

    /// Features of a graph with the labels of the nodes at some positions.
    pub fn of_graph(&self, graph: &GraphInput, shown: &[u32]) -> InputRows {
        let is_shown = marks(graph.n_nodes(), shown);
        match &graph.labels {
            None => self.rows(&graph.rows, &Labels::Classes(Vec::new()), |_| None),
            Some(labels) => self.rows(&graph.rows, labels, |row| is_shown[row].then_some(row)),
        }
    }

    /// Features of a mini-batch's nodes. Training nodes are shown as drawn, except seed nodes of the step, whose places among the
    /// training nodes are `seeds`, ascending.
    pub(crate) fn of_batch(
        &self,
        rows: &InputRows,
        nodes: &[u64],
        (train, seeds): (&Seeds, &[u32]),
        (run_key, step): (u64, u64),
    ) -> InputRows {
        let stream = stream_of(run_key, step);
        self.rows(rows, train.labels(), |row| {
            let place = train.ids().binary_search(&nodes[row]).ok()?;
            let is_shown = seeds.binary_search(&(place as u32)).is_err() && self.is_drawn(stream, nodes[row]);
            is_shown.then_some(place)
        })
    }

    /// Features of some nodes in an evaluation: all training nodes are shown. The other nodes have the probabilities of `reused`, by
    /// node, if there are any.
    pub(crate) fn of_nodes(&self, rows: &InputRows, nodes: &[u64], train: &Seeds, reused: Option<&[f32]>) -> InputRows {
        let place = |row: usize| train.ids().binary_search(&nodes[row]).ok();
        let rows = self.rows(rows, train.labels(), place);
        let Some(reused) = reused else { return rows };
        rows.with_columns(self.dim, self.n_classes, |row, out| {
            if place(row).is_none() {
                out.copy_from_slice(&reused[nodes[row] as usize * self.n_classes..][..self.n_classes]);
            }
        })
    }

    /// Input rows with the probabilities of all nodes that are not shown.
    pub(crate) fn reuse(&self, rows: &InputRows, shown: &[u32], probabilities: &Matrix) -> InputRows {
        let is_shown = marks(rows.n_rows(), shown);
        rows.with_columns(self.dim, self.n_classes, |row, out| {
            if !is_shown[row] {
                out.copy_from_slice(probabilities.row(row));
            }
        })
    }

    /// Features with label columns; `place` gives the place of a row's label, or `None` if it is not shown.
    fn rows(&self, rows: &InputRows, labels: &Labels, place: impl Fn(usize) -> Option<usize> + Sync) -> InputRows {
        rows.with_columns(self.dim, self.n_classes, |row, out| {
            let Some(place) = place(row) else { return };
            match labels {
                Labels::Classes(classes) => {
                    if let Ok(class) = usize::try_from(classes[place]) {
                        out[class] = 1.0;
                    }
                }
                Labels::Bits { n_classes, bits } => {
                    let own = &bits[place * n_classes..][..*n_classes];
                    out.iter_mut().zip(own).for_each(|(out, bit)| *out = f32::from(u8::from(*bit)));
                }
                Labels::Numbers { .. } => unreachable!("targets are no input"),
            }
        })
    }

    fn is_drawn(&self, stream: Stream, node: u64) -> bool {
        u64::from(stream.words(node, 0, 0, 0)[0]) < self.threshold
    }
}

fn stream_of(run_key: u64, step: u64) -> Stream {
    Name { run_key, purpose: Purpose::LabelInput, step, layer: 0 }.stream()
}

fn marks(n: usize, positions: &[u32]) -> Vec<bool> {
    let mut marks = vec![false; n];
    positions.iter().for_each(|position| marks[*position as usize] = true);
    marks
}
