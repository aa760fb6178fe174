//! Evaluation: losses and metrics over the valid and test nodes, without dropout and gradients.

use kith_client::Seeds;
use kith_draw::{exp, ln, ln_1p};
use kith_run::{
    choice::Choice,
    config::TrainConfig,
    measured::{Measured, Metric},
    report::Confusion,
};
use kith_store::LabelKind;
use rayon::prelude::*;

use crate::{
    data::{
        BatchInput, Data,
        batch_links::BatchLinks,
        input::{GraphInput, Input, Labels},
        link_pairs::Links,
        matrix::{Matrix, rows_of},
        target_scale::TargetScale,
    },
    distributed::world::World,
    error::TrainError,
    inference::{
        confusion,
        errors::Errors,
        layerwise::{self, Ending, Prepared, Room},
        receptive::{NodeSet, ReceptiveSets},
        scores::Scores,
        tally::Tally,
        wanted_logits::{WantedLogits, wanted},
    },
    model::{Model, Pass},
};

/// Nodes per piece of a sum: cut by place, added in order, so the same bits come out of any number of threads.
const PIECE_LEN: usize = 4096;

/// Metric of a run on some data.
pub fn metric_of(config: &TrainConfig, data: &Data) -> Result<Metric, TrainError> {
    let kind = data.shape().labels;
    let are_several = kind == LabelKind::MultiLabel;
    let wrong = |name: Metric, why: &str| Err(TrainError::Labels(format!("`train.metric`: {} {why}", name.name())));
    match (data, config.metric) {
        (data, None | Some(Metric::RocAuc)) if data.predicts_links() => Ok(Metric::Auc),
        (data, Some(metric)) if data.predicts_links() => Ok(metric),
        (Data::Full(Input { links: Some(_), .. }), None) => Ok(Metric::Auc),
        (Data::Full(Input { links: Some(_), .. }), Some(metric)) => {
            wrong(metric, "is for nodes, and this graph is measured by edges that were held out: leave the key out")
        }
        (_, None) if kind == LabelKind::Targets => Ok(Metric::R2),
        (_, Some(metric)) if kind == LabelKind::Targets && !metric.is_of_numbers() => {
            wrong(metric, "is for classes, and these nodes have targets: use r2, mae or rmse")
        }
        (_, Some(metric)) if kind != LabelKind::Targets && metric.is_of_numbers() => wrong(
            metric,
            "is for targets, and these nodes have classes: use accuracy, balanced-accuracy, macro-f1, roc-auc or average-precision",
        ),
        (_, None) if are_several => Ok(Metric::MicroF1),
        (_, None) => Ok(Metric::Accuracy),
        (_, Some(metric @ (Metric::Accuracy | Metric::BalancedAccuracy))) if are_several => {
            wrong(metric, "is for nodes with one class, and these may have several")
        }
        (_, Some(metric @ (Metric::RocAuc | Metric::AveragePrecision))) if !data.validates_two_classes() => {
            wrong(metric, "needs validation nodes of at least two classes")
        }
        (_, Some(metric)) => Ok(metric),
    }
}

/// Refuses a sample of the validation nodes that the metric is not defined for, where it is for all of them.
pub(crate) fn check_sample(config: &TrainConfig, share: f64, sampled: &Data) -> Result<(), TrainError> {
    let refused = |metric: &str, needed: &str, found: &str| {
        TrainError::Labels(format!(
            "`evaluate.sample`: {metric} needs validation nodes {needed}, and those of the sample have {found}: set a larger share than {share}"
        ))
    };
    let name = config.metric.map_or("the metric", Metric::name);
    match (metric_of(config, sampled), sampled) {
        (Err(_), _) => Err(refused(name, "of at least two classes", "one")),
        (Ok(Metric::R2), Data::Batches(input)) if !differ(input.valid.labels()) => {
            Err(refused("r2", "with different targets", "the same"))
        }
        (Ok(_), _) => Ok(()),
    }
}

/// True if there are two nodes whose targets differ.
fn differ(labels: &kith_sampler::Labels) -> bool {
    match labels {
        kith_sampler::Labels::Numbers { width, values } => {
            let mut nodes = values.chunks_exact((*width).max(1));
            let first = nodes.next();
            nodes.any(|node| Some(node) != first)
        }
        _ => true,
    }
}

/// Results of some nodes.
#[derive(Clone, Debug)]
struct Judged {
    tally: Tally,
    errors: Errors,
    /// For metrics that need them.
    scores: Scores,
}

impl Judged {
    /// Of no nodes yet.
    fn new(scales: &[TargetScale]) -> Judged {
        Judged { tally: Tally::default(), errors: Errors::new(scales), scores: Scores::default() }
    }

    fn add(&mut self, metric: Metric, logits: &Matrix, labels: &Labels, positions: &[u32]) {
        if let Labels::Numbers { width, values } = labels {
            return self.errors.add(logits, (*width, values), positions);
        }
        self.tally.add(tally(logits, labels, positions));
        if needs_scores(metric) {
            self.scores.add(logits, labels, positions);
        }
    }

    fn metric(&self, metric: Metric) -> f64 {
        match metric {
            Metric::R2 | Metric::Mae | Metric::Rmse => self.errors.metric(metric),
            metric if needs_scores(metric) => self.scores.metric(metric),
            _ => self.tally.metric(),
        }
    }

    fn measured(metric: Metric, valid: &Judged, test: &Judged) -> Measured {
        let valid_loss = if metric.is_of_numbers() { valid.errors.loss() } else { valid.tally.loss() };
        Measured { valid_loss, valid: valid.metric(metric), test: test.metric(metric) }
    }
}

/// True for metrics that counts of right nodes do not tell.
pub(crate) fn needs_scores(metric: Metric) -> bool {
    !matches!(metric, Metric::Accuracy | Metric::MicroF1 | Metric::Auc)
}

/// Evaluates a model again and again on the same data.
#[derive(Debug, Default)]
pub struct Evaluator {
    /// Known from the first evaluation of mini-batches on, for as many validation and test nodes.
    prepared: Option<Prepared>,
    n_wanted: usize,
}

impl Evaluator {
    /// Evaluates a model on its valid and test nodes, each as one set. The ranks share the work; each gets all results.
    pub fn evaluate(
        &mut self,
        model: &Model,
        data: &Data,
        metric: Metric,
        room: &Room,
        world: &mut World,
    ) -> Result<Measured, TrainError> {
        let input = match data {
            Data::Full(input) => return evaluate_graphs(model, input, metric),
            Data::Batches(input) => input,
        };
        let logits = self.logits_of_store(model, input, room, world)?;
        Ok(match &input.links {
            Some(links) => logits.measure_links(links, self.computed(model), metric),
            None => measure_nodes(&logits, input, self.computed(model), metric),
        })
    }

    /// The held-out pairs of link prediction, and their scores: of validation, then of test.
    pub(crate) fn link_scores(
        &mut self,
        model: &Model,
        (input, links): (&BatchInput, &BatchLinks),
        room: &Room,
    ) -> Result<[Vec<f32>; 2], TrainError> {
        let logits = self.logits_of_store(model, input, room, &mut World::alone())?;
        Ok([&links.valid, &links.test].map(|pairs| logits.scores(pairs, self.computed(model))))
    }

    /// Counts the valid and test nodes by true and predicted class. The ranks share the work; each gets all counts.
    pub(crate) fn confusion(
        &mut self,
        model: &Model,
        data: &Data,
        room: &Room,
        world: &mut World,
    ) -> Result<Confusion, TrainError> {
        let input = match data {
            Data::Full(input) => return confusion_of_graphs(model, input),
            Data::Batches(input) => input,
        };
        let logits = self.logits_of_store(model, input, room, world)?;
        Ok(logits.confusion(input, self.computed(model)))
    }

    /// Logits of the valid and test nodes.
    fn logits_of_store(
        &mut self,
        model: &Model,
        input: &BatchInput,
        room: &Room,
        world: &mut World,
    ) -> Result<WantedLogits, TrainError> {
        let n_wanted = input.valid.len() + input.test.len();
        let prepared = match self.prepared.take().filter(|_| n_wanted == self.n_wanted) {
            Some(prepared) => prepared,
            None => {
                room.trim();
                let wanted = (wanted(input), model.layers().len());
                Prepared::of_nodes(model, &*input.shards, room, world, wanted)?.with_labels(&input.train)
            }
        };
        self.n_wanted = n_wanted;
        logits_of_store(model, input, room, world, self.prepared.insert(prepared))
    }

    /// Nodes that the last layer computes.
    fn computed(&self, model: &Model) -> &NodeSet {
        self.prepared.as_ref().expect("prepared above").sets().computed_by(model.layers().len() - 1)
    }

    /// Nodes of evaluations; `None` before the first, and in full-batch training.
    pub(crate) fn sets(&self) -> Option<&ReceptiveSets> {
        self.prepared.as_ref().map(Prepared::sets)
    }
}

fn evaluate_graphs(model: &Model, input: &Input, metric: Metric) -> Result<Measured, TrainError> {
    let (mut valid, mut test) = (Judged::new(&input.scales), Judged::new(&input.scales));
    if let (Some(links @ Links { train: Some(_), .. }), [graph]) = (&input.links, &input.graphs[..]) {
        return Ok(links.measure_outputs(&rows_of(&model.forward(graph, Pass::Evaluate)?.logits)?, metric));
    }
    for graph in &input.graphs {
        let Some(labels) = graph.labels.as_ref().filter(|_| !graph.valid.is_empty() || !graph.test.is_empty()) else {
            continue;
        };
        let logits = rows_of(&model.forward(graph, Pass::Evaluate)?.logits)?;
        valid.add(metric, &logits, labels, &graph.valid);
        test.add(metric, &logits, labels, &graph.test);
    }
    let mut measured = Judged::measured(metric, &valid, &test);
    if let (Some(links), [graph]) = (&input.links, &input.graphs[..]) {
        (measured.valid, measured.test) = links.measure(model, graph)?;
    }
    Ok(measured)
}

fn confusion_of_graphs(model: &Model, input: &Input) -> Result<Confusion, TrainError> {
    let mut found = confusion::zeros(input.n_classes);
    for graph in input.graphs.iter().filter(|graph| !graph.valid.is_empty() || !graph.test.is_empty()) {
        confusion::add_graph(&mut found, graph, &rows_of(&model.forward(graph, Pass::Evaluate)?.logits)?);
    }
    Ok(found)
}

/// Evaluates the logits of a graph's nodes.
pub(crate) fn measure_logits(graph: &GraphInput, logits: &Matrix, metric: Metric, scales: &[TargetScale]) -> Measured {
    let (mut valid, mut test) = (Judged::new(scales), Judged::new(scales));
    if let Some(labels) = &graph.labels {
        valid.add(metric, logits, labels, &graph.valid);
        test.add(metric, logits, labels, &graph.test);
    }
    Judged::measured(metric, &valid, &test)
}

/// Measures a model by its nodes, whatever its run is measured by.
pub fn evaluate_nodes(model: &Model, input: &Input) -> Result<Measured, TrainError> {
    let input = Data::Full(Input { links: None, ..input.clone() });
    let metric = metric_of(&TrainConfig::default(), &input)?;
    match input {
        Data::Full(input) => evaluate_graphs(model, &input, metric),
        Data::Batches(_) => unreachable!("made full"),
    }
}

/// Evaluates the valid and test nodes, once all chunks have come.
pub(crate) fn measure_nodes(logits: &WantedLogits, input: &BatchInput, computed: &NodeSet, metric: Metric) -> Measured {
    let judged = |seeds: &Seeds| {
        let (logits, all) = logits.rows(seeds, computed);
        let mut judged = Judged::new(&input.scales);
        judged.add(metric, &logits, seeds.labels(), &all);
        judged
    };
    Judged::measured(metric, &judged(&input.valid), &judged(&input.test))
}

fn logits_of_store(
    model: &Model,
    input: &BatchInput,
    room: &Room,
    world: &mut World,
    prepared: &Prepared,
) -> Result<WantedLogits, TrainError> {
    let last = model.layers().len() - 1;
    let computed = prepared.sets().computed_by(last);
    let mut wanted = WantedLogits::new(input, computed);
    let room = Room { memory: room.memory.map(|memory| memory.saturating_sub(wanted.n_bytes())), ..room.clone() };
    layerwise::walk(model, &*input.shards, &room, world, (prepared, Ending::Output), |seen| {
        let logits = model.logits(seen.looked.output(model, last)?)?;
        wanted.take(seen.places, &rows_of(&logits)?);
        Ok(())
    })?;
    wanted.share(world)?;
    Ok(wanted)
}

fn tally(logits: &Matrix, labels: &Labels, positions: &[u32]) -> Tally {
    let of_node = |position: &u32| {
        let position = *position as usize;
        match labels {
            Labels::Classes(classes) => of_class(logits.row(position), classes[position] as usize),
            Labels::Bits { n_classes, bits } => of_bits(logits.row(position), &bits[position * n_classes..]),
            Labels::Numbers { .. } => unreachable!("errors are added up on their own"),
        }
    };
    let of_piece = |piece: &[u32]| {
        let mut sum = Tally::default();
        piece.iter().for_each(|position| sum.add(of_node(position)));
        sum
    };
    let pieces: Vec<Tally> = positions.par_chunks(PIECE_LEN).map(of_piece).collect();
    pieces.into_iter().fold(Tally::default(), |mut sum, piece| {
        sum.add(piece);
        sum
    })
}

/// Softmax cross-entropy, and whether the largest logit (of several, the first) is that of the class.
fn of_class(logits: &[f32], class: usize) -> Tally {
    let largest = confusion::largest(logits);
    let top = f64::from(logits[largest]);
    // Below e^-700 there is nothing to add.
    let sum: f64 = logits.iter().map(|logit| exp((f64::from(*logit) - top).max(-700.0))).sum();
    let is_finite = logits.iter().all(|logit| logit.is_finite());
    let loss = if is_finite { top + ln(sum) - f64::from(logits[class]) } else { f64::NAN };
    Tally { loss, n_terms: 1, n_right: u64::from(largest == class), n_said: 1, n_true: 1 }
}

/// Binary cross-entropy of every class.
fn of_bits(logits: &[f32], bits: &[bool]) -> Tally {
    let mut sum = Tally::default();
    for (logit, is_true) in logits.iter().zip(bits) {
        let x = f64::from(*logit);
        let loss = x.max(0.0) - if *is_true { x } else { 0.0 } + ln_1p(exp(-x.abs().min(700.0)));
        let says_so = x > 0.0;
        sum.add(Tally {
            loss: if x.is_finite() { loss } else { f64::NAN },
            n_terms: 1,
            n_right: u64::from(says_so && *is_true),
            n_said: u64::from(says_so),
            n_true: u64::from(*is_true),
        });
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_measured_by_accuracy() {
        let right = of_class(&[1.0, 3.0, 2.0], 1);
        let wrong = of_class(&[1.0, 3.0, 2.0], 0);
        let loss = |class: f64| (1f64.exp() + 3f64.exp() + 2f64.exp()).ln() - class;
        assert!((right.loss() - loss(3.0)).abs() < 1e-14, "{}", right.loss());
        assert!((wrong.loss() - loss(1.0)).abs() < 1e-14, "{}", wrong.loss());
        let mut both = right;
        both.add(wrong);
        assert_eq!((right.metric(), wrong.metric(), both.metric()), (1.0, 0.0, 0.5));
        assert_eq!(of_class(&[2.0, 2.0], 0).metric(), 1.0, "of several the first");
        assert!((of_class(&[0.0, 5000.0], 0).loss() - 5000.0).abs() < 1e-9, "far apart");
        assert!(of_class(&[f32::NAN, 1.0], 1).loss().is_nan());
        assert!(of_class(&[f32::INFINITY, 1.0], 1).loss().is_nan());
    }

    #[test]
    fn several_classes_are_measured_by_micro_f1() {
        // Said 0 and 1, true are 0 and 2: one right of two said and two true.
        let found = of_bits(&[1.0, 0.5, -2.0], &[true, false, true]);
        assert_eq!(found.metric(), 0.5);
        let bce = |x: f64, y: f64| -(y * (1.0 / (1.0 + (-x).exp())).ln() + (1.0 - y) * (1.0 / (1.0 + x.exp())).ln());
        let expected = (bce(1.0, 1.0) + bce(0.5, 0.0) + bce(-2.0, 1.0)) / 3.0;
        assert!((found.loss() - expected).abs() < 1e-14);
        assert_eq!(of_bits(&[-1.0, -1.0], &[true, true]).metric(), 0.0, "nothing said");
        assert_eq!(of_bits(&[0.0], &[false]).n_said, 0, "a logit of zero says no");
        assert!(of_bits(&[f32::NEG_INFINITY], &[false]).loss().is_nan());
    }

    #[test]
    fn sums_do_not_depend_on_threads() {
        let n = 10_000;
        let values: Vec<f32> = (0..3 * n).map(|i| ((i * 7919) % 1000) as f32 / 137.0).collect();
        let logits = Matrix { values, width: 3 };
        let positions: Vec<u32> = (0..n as u32).collect();
        let labels = Labels::Classes((0..n as i64).map(|i| i % 3).collect());
        let with_threads = |n_threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            pool.install(|| tally(&logits, &labels, &positions))
        };
        let one = with_threads(1);
        assert_eq!(one.loss.to_bits(), with_threads(4).loss.to_bits());
        assert_eq!(one.n_terms, n as u64);
    }
}
