//! Private memory of a rank in mini-batch training: its parts, and the plan that fits into `--memory`.

use crate::{
    config::RunConfig,
    graph_size::{LayerSize, activation_bytes, message_bytes},
};

/// Sizes of a mini-batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchSize {
    /// Bytes of features, blocks and ids.
    pub bytes: u64,
    /// Bytes that sampling works with beside it.
    pub scratch_bytes: u64,
    /// Nodes.
    pub n_nodes: u64,
    /// Blocks, from the input layer to the output layer.
    pub layers: Vec<LayerSize>,
    /// Pairs of edge losses, all layers together.
    pub n_pairs: u64,
}

/// Counts of a run that affect its memory.
#[derive(Clone, Copy, Debug)]
pub struct RunSize {
    /// Features per node.
    pub dim: u64,
    /// Classes; in link prediction, numbers of an output.
    pub n_classes: u64,
    /// Weights of the model.
    pub n_weights: u64,
    /// True if a GPU computes steps.
    pub on_gpu: bool,
}

/// Bytes of each part, before a plan is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryNeeds {
    /// The program, loaded data, weights and moments.
    pub held: u64,
    /// A sampling thread's table of positions with an entry for every node; `None` for graphs that are relabeled by hash in any case.
    pub table: Option<u64>,
    /// A sampling thread's positions by hash.
    pub hash: u64,
    /// A sampling thread's other arrays.
    pub scratch: u64,
    /// A mini-batch.
    pub batch: u64,
    /// Forward, backward and update.
    pub step: u64,
    /// An evaluation, at least. It does not run at the same time as a step.
    pub evaluation: u64,
}

impl BatchSize {
    /// Bytes of forward and backward.
    fn step_bytes(&self, config: &RunConfig, run: RunSize) -> u64 {
        let (model, has_labels) = (&config.model, config.train.label_input.is_some());
        let dim = run.dim + if has_labels { run.n_classes } else { 0 };
        let bytes = activation_bytes(model, (dim, run.n_classes), |layer| self.layers[layer]);
        // The features of the first layer are those of the mini-batch, and have no gradient.
        let is_copied = model.has_input_linear() || has_labels;
        let features = if is_copied { 0 } else { 8 * self.n_nodes * run.dim };
        let messages = message_bytes(config, run.n_classes, |layer| self.layers[layer]);
        bytes.saturating_sub(features) + messages + PAIR_BYTES * self.n_pairs * model.heads.max(model.out_heads) as u64
    }
}

/// Bytes that a layer of an evaluation on a graph of `n_nodes` takes at least: for records, blocks and the rows that are being read, and
/// for the nodes of a window and of the next (a bit for each node, and a count for 64 of them).
pub fn least_evaluation_bytes(n_nodes: u64) -> u64 {
    LEAST_LAYER_BYTES + 2 * (n_nodes / 4)
}

/// Least memory for a layer of an evaluation.
const LEAST_LAYER_BYTES: u64 = 96 << 20;

/// Sampling threads and mini-batches ahead that fit into a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The limit.
    pub limit: u64,
    /// Sampling threads.
    pub n_threads: usize,
    /// Finished mini-batches that wait for each thread.
    pub depth: usize,
    /// True if nodes are relabeled by hash.
    pub by_hash: bool,
    /// Bytes of the program, loaded data, weights and moments.
    pub held: u64,
    /// Bytes of the positions of all threads.
    pub positions: u64,
    /// Bytes of the mini-batches of all threads.
    pub batches: u64,
    /// Bytes of a step.
    pub step: u64,
}

/// Share of the limit that tables of positions may take.
const TABLES_SHARE: u64 = 4;

/// Mini-batches are up to this much larger than one that was measured: five quarters.
const LARGER: (u64, u64) = (5, 4);

/// Copies of the gradient in an update, besides that of each slice.
const N_GRADIENTS: u64 = 6;

/// Bytes of a pair of an edge loss for each head.
const PAIR_BYTES: u64 = 16;

impl MemoryNeeds {
    /// Needs of steps whose mini-batches are like `batch`, without those of the program and of evaluations. `table` and `hash`: bytes of
    /// the positions of a sampling thread, by mini-batches of this many nodes.
    pub fn of_steps(
        batch: &BatchSize,
        (config, run): (&RunConfig, RunSize),
        (table, hash): (Option<u64>, impl Fn(u64) -> u64),
    ) -> MemoryNeeds {
        let larger = |bytes: u64| bytes / LARGER.1 * LARGER.0;
        let gradients = 4 * run.n_weights * (N_GRADIENTS + config.train.slices as u64);
        MemoryNeeds {
            table,
            hash: hash(larger(batch.n_nodes)),
            scratch: larger(batch.scratch_bytes),
            batch: larger(batch.bytes),
            // A GPU gets copies.
            step: if run.on_gpu { 2 * larger(batch.bytes) } else { larger(batch.step_bytes(config, run)) + gradients },
            ..MemoryNeeds::default()
        }
    }

    /// The plan with the most sampling threads and mini-batches ahead, at most those that are wanted. If none fits: the bytes that the
    /// least one needs.
    pub fn plan(&self, limit: u64, (n_threads, depth): (usize, usize)) -> Result<MemoryPlan, u64> {
        let mut least = 0;
        for n_threads in (n_threads.min(1)..=n_threads).rev() {
            for depth in (depth.min(1)..=depth).rev() {
                let has_table = self.table.is_some_and(|table| n_threads as u64 * table <= limit / TABLES_SHARE);
                for by_hash in [false, true].into_iter().skip(usize::from(!has_table)) {
                    let plan = self.plan_of(limit, (n_threads, depth), by_hash);
                    least = plan.during_training().max(plan.beside_evaluations() + self.evaluation);
                    if least <= limit {
                        return Ok(plan);
                    }
                }
            }
        }
        Err(least)
    }

    fn plan_of(&self, limit: u64, (n_threads, depth): (usize, usize), by_hash: bool) -> MemoryPlan {
        let n = n_threads as u64;
        let table = self.table.filter(|_| !by_hash);
        let n_batches = if n > 0 { n * (depth as u64 + 1) + 1 } else { 0 };
        MemoryPlan {
            limit,
            n_threads,
            depth,
            by_hash: table.is_none(),
            held: self.held,
            positions: n * table.unwrap_or(self.hash),
            batches: n_batches * self.batch + n * self.scratch,
            step: self.step,
        }
    }
}

impl MemoryPlan {
    /// Bytes during a step.
    pub fn during_training(&self) -> u64 {
        self.beside_evaluations() + self.step
    }

    /// Bytes that evaluations leave to the rest of the process.
    pub fn beside_evaluations(&self) -> u64 {
        self.held + self.positions + self.batches
    }
}

/// A plan as users read it.
pub fn shown(plan: &MemoryPlan) -> String {
    let MemoryPlan { limit, n_threads, depth, by_hash, held, positions, batches, step } = *plan;
    let threads = if n_threads == 1 { "thread" } else { "threads" };
    let of_batches = match n_threads {
        0 => "mini-batches on the GPU".to_owned(),
        _ => format!(
            "mini-batches {} ({n_threads} sampling {threads}, {depth} ahead of each), {} {}",
            bytes(batches),
            if by_hash { "relabeling by hash" } else { "relabeling tables" },
            bytes(positions)
        ),
    };
    format!(
        "memory of {}: program and data {}, {of_batches}, a step {}, evaluation up to {}",
        bytes(limit),
        bytes(held),
        bytes(step),
        bytes(limit.saturating_sub(plan.beside_evaluations()))
    )
}

/// A number of bytes for people: `900 B`, `1.5 MiB`.
pub fn bytes(n: u64) -> String {
    let (mut value, mut unit) = (n as f64, "B");
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    if unit == "B" { format!("{n} B") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: MemoryNeeds =
        MemoryNeeds { held: 100, table: Some(80), hash: 10, scratch: 5, batch: 20, step: 50, evaluation: 30 };

    fn planned(limit: u64, wanted: (usize, usize)) -> (usize, usize, bool, u64) {
        let plan = NEEDS.plan(limit, wanted).unwrap();
        assert!(plan.during_training() <= limit && plan.beside_evaluations() + NEEDS.evaluation <= limit);
        (plan.n_threads, plan.depth, plan.by_hash, plan.during_training())
    }

    #[test]
    fn tables_threads_and_batches_ahead_fit_the_limit() {
        assert_eq!(planned(1000, (3, 1)), (3, 1, false, 100 + 3 * 80 + 7 * 20 + 15 + 50));
        assert_eq!(planned(959, (3, 1)), (3, 1, true, 100 + 30 + 140 + 15 + 50), "a quarter is less than 3 tables");
        assert_eq!(planned(334, (3, 1)), (2, 1, true, 100 + 20 + 100 + 10 + 50));
        assert_eq!(planned(244, (1, 2)), (1, 1, true, 225), "one ahead instead of two");
        assert_eq!(NEEDS.plan(224, (3, 1)), Err(225));
        assert_eq!(NEEDS.plan(10_000, (0, 0)).unwrap().beside_evaluations(), 100, "a GPU samples");
        let evaluated = MemoryNeeds { evaluation: 80, ..NEEDS };
        assert_eq!(evaluated.plan(225, (1, 1)), Err(255), "an evaluation needs more than a step");
        let tight = MemoryNeeds { held: 270, ..NEEDS }.plan(400, (1, 1)).unwrap();
        assert!(
            tight.by_hash && tight.during_training() == 395,
            "the table is a fifth, and nothing else fits beside it"
        );
        assert!(MemoryNeeds { table: None, ..NEEDS }.plan(10_000, (1, 1)).unwrap().by_hash);
    }

    #[test]
    fn a_plan_names_its_parts() {
        let plan = NEEDS.plan(1000, (3, 1)).unwrap();
        let expected = "memory of 1000 B: program and data 100 B, mini-batches 155 B (3 sampling threads, 1 ahead of each), relabeling \
                        tables 240 B, a step 50 B, evaluation up to 505 B";
        assert_eq!(shown(&plan), expected);
        let on_gpu = NEEDS.plan(1 << 20, (0, 0)).unwrap();
        let expected = "memory of 1.0 MiB: program and data 100 B, mini-batches on the GPU, a step 50 B, evaluation up to 1023.9 KiB";
        assert_eq!(shown(&on_gpu), expected);
    }
}
