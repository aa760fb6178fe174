//! Runs to measure. Those of one model differ in one kind of work each, so that each kind gets a price of its own.

use std::fmt;

use kith_partition::{
    generate::{EdgeAmount, PowerLaw},
    split::Fractions,
};
use kith_run::{choice::Choice, config::RunConfig, model_kind::ModelKind};
use kith_store::Dtype;

use super::super::combinations::{FOREVER, named, several};

/// A generated graph. Edges of the narrow one take longer than its features, those of the wide one the other way around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Like {
    Usual,
    Wide,
    Narrow,
}

/// Run to measure: model, graph, and number of processes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Subject {
    pub(super) kind: ModelKind,
    pub(super) graph: Like,
    /// Fanouts, and seed nodes of each rank.
    pub(super) fanouts: &'static str,
    pub(super) batch: u64,
    /// Features of each of 8 heads, or of each eighth of a layer without heads.
    hidden: usize,
    /// Negative pairs per edge of the edge loss, if not as in the model's run file.
    negatives: Option<u8>,
    pub(super) servers: usize,
    pub(super) ranks: usize,
    pub(super) threads: usize,
    pub(super) device: String,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Subject { kind, graph, fanouts, batch, servers, ranks, threads, device, .. } = self;
        let (kind, dim, width) = (kind.name(), graph.size().1, 8 * self.hidden);
        write!(f, "{kind} of width {width}, fanouts {fanouts}, batch size {batch}, {dim} features, ")?;
        let parts = [(*servers, "server"), (*ranks, "rank"), (*threads, "thread")];
        let parts =
            parts.iter().filter(|(n, what)| *n > 1 || *what == "server" && *n > 0).map(|(n, what)| several(*n, what));
        write!(f, "{}{device}", parts.map(|part| part + ", ").collect::<String>())
    }
}

impl Subject {
    /// Runs of one rank for the prices of a model.
    pub(super) fn shapes(kind: ModelKind) -> Vec<Subject> {
        let shape = |fanouts, batch, hidden, graph| Subject {
            kind,
            graph,
            fanouts,
            batch,
            hidden,
            negatives: None,
            servers: 0,
            ranks: 1,
            threads: 1,
            device: "cpu".to_owned(),
        };
        let mut all = vec![
            shape("10,10", 256, 16, Like::Usual),
            // Multiplications.
            shape("15,5", 256, 32, Like::Usual),
            shape("5,5", 256, 16, Like::Wide),
            // Input features.
            shape("5,5", 256, 2, Like::Wide),
            // Edges, of all widths and times width.
            shape("15,15", 256, 16, Like::Narrow),
            shape("15,15", 256, 2, Like::Narrow),
            // The step itself.
            shape("2,2", 16, 8, Like::Usual),
        ];
        if kind == ModelKind::Supergat {
            all.push(Subject { negatives: Some(4), ..shape("10,5", 256, 16, Like::Narrow) });
        }
        all
    }

    /// The run that several ranks, threads and servers are compared with.
    fn usual(kind: ModelKind) -> Subject {
        Subject::shapes(kind).swap_remove(0)
    }

    /// Everything that is measured on a machine with `n_cores`.
    pub(super) fn all(models: &[ModelKind], n_cores: usize, device: &str) -> Vec<Subject> {
        let mut all: Vec<Subject> = models.iter().flat_map(|kind| Subject::shapes(*kind)).collect();
        // Pairs are part of supergat alone; what else a mini-batch costs is that of gat.
        for (kind, places) in [(ModelKind::Gat, &[0, 2, 4, 6][..]), (ModelKind::Supergat, &[0, 7])] {
            let shapes = Subject::shapes(kind);
            all.extend(places.iter().map(|place| Subject { servers: 1, ..shapes[*place].clone() }));
        }
        let mut ranks = 2;
        while ranks <= n_cores {
            let is_end = ranks == 2 || ranks == n_cores;
            let kinds = [ModelKind::Supergat, ModelKind::Gat].map(Subject::usual);
            let rings = Subject::rings().into_iter().filter(|_| is_end);
            all.extend(kinds.into_iter().chain(rings).map(|one| Subject { ranks, ..one }));
            ranks = if ranks < n_cores { (2 * ranks).min(n_cores) } else { n_cores + 1 };
        }
        if n_cores > 1 {
            all.push(Subject { threads: n_cores, ..Subject::usual(ModelKind::Supergat) });
        }
        if device != "cpu" {
            let on_gpu = |one: Subject| Subject { device: device.to_owned(), threads: n_cores, ..one };
            all.extend(models.iter().flat_map(|kind| Subject::shapes(*kind)).map(on_gpu));
        }
        // The runs that others are compared with.
        for other in all.clone() {
            let base = Subject { servers: 0, ranks: 1, threads: 1, ..other };
            if base.device == "cpu" && !all.contains(&base) {
                all.push(base);
            }
        }
        all
    }

    /// Runs of tiny mini-batches: the exchange of few and of many gradients takes most of their steps.
    fn rings() -> [Subject; 2] {
        let few = Subject::shapes(ModelKind::Gat).swap_remove(6);
        [Subject { hidden: 64, graph: Like::Wide, ..few.clone() }, few]
    }

    /// True for the run of which ranks are compared by their work.
    pub(super) fn is_usual(&self) -> bool {
        self.is_like(&Subject::usual(self.kind))
    }

    /// True if both train the same model on the same graph.
    pub(super) fn is_like(&self, other: &Subject) -> bool {
        let Subject { servers, ranks, threads, .. } = other.clone();
        Subject { servers, ranks, threads, ..self.clone() } == *other
    }

    /// True for a rank of one thread that computes on a core, and shares the machine with no other.
    pub(super) fn is_alone(&self) -> bool {
        self.ranks * self.threads == 1 && self.device == "cpu"
    }

    pub(super) fn config(&self) -> anyhow::Result<RunConfig> {
        let name = if self.kind == ModelKind::Supergat { "supergat-mx" } else { self.kind.name() };
        let mut file = if self.kind == ModelKind::Gin {
            let mut file = named("sage")?;
            file.set("model.kind=gin")?;
            file
        } else {
            named(name)?
        };
        let hidden = self.hidden * if self.kind.has_attention() { 1 } else { 8 };
        file.set("train.mode=mini-batch")?;
        file.set(&format!("model.hidden={hidden}"))?;
        file.set(&format!("train.fanouts=[{}]", self.fanouts))?;
        file.set(&format!("train.batch_size={}", self.batch as usize * self.ranks))?;
        file.set(&format!("train.slices={}", self.ranks))?;
        if let Some(negatives) = self.negatives {
            file.set(&format!("edge_loss.neg_sample_ratio={negatives}"))?;
        }
        let mut config = file.resolve()?;
        config.model.n_layers = 2;
        config.train.epochs = FOREVER;
        config.train.evaluate_every = FOREVER;
        config.train.checkpoint_every = FOREVER;
        config.early_stop = None;
        Ok(config)
    }
}

impl Like {
    pub(super) const ALL: [Like; 3] = [Like::Usual, Like::Wide, Like::Narrow];

    pub(super) fn name(self) -> &'static str {
        match self {
            Like::Usual => "usual",
            Like::Wide => "wide",
            Like::Narrow => "narrow",
        }
    }

    /// Nodes, and features of a node.
    fn size(self) -> (u64, u32) {
        match self {
            Like::Usual => (200_000, 128),
            Like::Wide => (50_000, 512),
            Like::Narrow => (20_000, 16),
        }
    }

    pub(super) fn options(self) -> PowerLaw {
        let (n_nodes, dim) = self.size();
        PowerLaw {
            n_nodes,
            edges: EdgeAmount::AverageDegree(14.0),
            exponent: 2.5,
            n_classes: 40,
            homophily: 0.6,
            communities: None,
            is_directed: false,
            has_weights: false,
            dim,
            dtype: Dtype::F32,
            split: Fractions { train: 0.5, valid: 0.1, test: 0.1 },
            run_key: 42,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::MODELS, *};

    #[test]
    fn every_subject_is_a_run_and_measured_once() {
        for (n_cores, device) in [(1, "cpu"), (2, "cpu"), (16, "cuda")] {
            let all = Subject::all(&MODELS, n_cores, device);
            for (place, subject) in all.iter().enumerate() {
                assert!(!all[..place].contains(subject), "{subject}");
                let config = subject.config().unwrap();
                assert_eq!((config.model.kind, config.train.slices), (subject.kind, subject.ranks), "{subject}");
            }
            assert!(all.iter().any(|subject| subject.ranks == n_cores), "{n_cores}");
            assert_eq!(all.iter().any(|subject| subject.device == "cuda"), device == "cuda");
        }
        let alone = Subject::all(&[ModelKind::Mlp], 16, "cpu");
        for subject in &alone {
            let is_base = |other: &&Subject| other.is_alone() && other.servers == 0 && other.is_like(subject);
            assert_eq!(alone.iter().filter(is_base).count(), 1, "{subject} is compared with one rank");
        }
    }
}
