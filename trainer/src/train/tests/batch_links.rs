//! Link prediction in mini-batches, against full-batch link prediction on the same graph.

use std::collections::HashSet;

use kith_client::{BatchMaker, Stock};
use kith_run::{
    measured::{Measured, Metric},
    prediction::{Moment, What},
};

use super::{
    batches::{batch_input, first_step_of, store, whole_and_cut},
    *,
};
use crate::{
    data::{feed::batches_of, opened::Opened},
    inference::{
        evaluate::Evaluator,
        predict::{PredictedNodes, Question, Table, predict},
    },
    model::{Model, oracle::error},
};

const LINKS: [&str; 5] = ["early_stop=off", "links.valid=0.1", "links.test=0.1", "links.dim=6", "train.epochs=3"];
const BATCHES: [&str; 4] = ["train.mode=mini-batch", "train.fanouts=[4, 3]", "train.batch_size=50", "train.slices=3"];
const SAGE: [&str; 4] = ["model=off", "model.kind=sage", "edge_loss=off", "model.dropout=0.3"];

fn of(options: &[&[&str]]) -> RunConfig {
    config(&[&LINKS[..], &options.concat()].concat())
}

fn load(opened: &Opened, config: &RunConfig) -> Data {
    crate::engine::device::start();
    Data::load(opened, config, 7).unwrap()
}

/// All targets in one step, all neighbors, every node a root, and targets in message passing: what full-batch training does.
#[test]
fn full_fanout_equals_full_batch_for_links() {
    let opened = Opened::store(store());
    for (model, more) in [
        (&["model.attention=mx"][..], "links.disjoint_train_ratio=0.3"),
        (&["model.kind=gat", "edge_loss=off"], "links.neg_sample_ratio=2"),
        (&["model=off", "model.kind=gcn", "edge_loss=off"], "links.neg_sample_ratio=0.5"),
        (
            &["model=off", "model.kind=sage", "edge_loss=off", "model.norm=batch", "model.bias=false"],
            "links.disjoint_train_ratio=0.5",
        ),
    ] {
        for kernels in KERNELS {
            let full = of(&[model, &[kernels, more]]);
            let data = load(&opened, &full);
            let (expected, expected_gradient) = first_step_of(&data, full.clone());
            let batch_size = format!("train.batch_size={}", expected.n_seeds);
            let all = ["train.mode=mini-batch", "train.fanouts=all", "train.edge_seeds=150", &batch_size];
            let config = of(&[model, &[kernels, more, "links.exclude_targets=false"], &all]);
            let batches = load(&opened, &config);
            let (found, gradient) = first_step_of(&batches, config);
            assert!((found.loss - expected.loss).abs() <= 1e-6 * expected.loss, "{model:?}: {found:?} {expected:?}");
            assert_eq!(found.n_seeds, expected.n_seeds);
            for ((name, found), (_, expected)) in gradient.iter().zip(&expected_gradient) {
                assert!(error(found, expected) <= 1e-5, "{model:?}: {name} {}", error(found, expected));
            }
            // Evaluations see the same pairs and the same graph.
            let model = Model::new(&full, 5, 6, 3, Device::Cpu).unwrap();
            let measured = [&data, &batches].map(|data| measure(&model, data, Metric::Auc));
            assert!((measured[0].valid_loss - measured[1].valid_loss).abs() < 1e-6, "{more}: {measured:?}");
            assert!((measured[0].test - measured[1].test).abs() < 1e-3, "{more}: {measured:?}");
        }
    }
}

fn measure(model: &Model, data: &Data, metric: Metric) -> Measured {
    let room = Room { n_together: 40, ..Room::default() };
    Evaluator::default().evaluate(model, data, metric, &room, alone()).unwrap()
}

#[test]
fn exact_ranks_are_the_same_in_chunks() {
    let temp = tempfile::tempdir().unwrap();
    let [whole, cut] = whole_and_cut(temp.path());
    let exact = ["links.ranking=exact", "train.metric=mrr"];
    let full = of(&[&SAGE, &exact]);
    let data = load(&whole, &full);
    let batches = [&whole, &cut].map(|opened| load(opened, &of(&[&SAGE, &exact, &BATCHES])));
    let model = Model::new(&full, 5, 6, 3, Device::Cpu).unwrap();
    for metric in [Metric::Auc, Metric::Mrr, Metric::HitsAt10] {
        let expected = measure(&model, &data, metric);
        assert!(expected.test > 0.0 && expected.test < 1.0, "{expected:?}");
        batches.iter().for_each(|data| assert_eq!(measure(&model, data, metric), expected, "{metric:?}"));
        let sampled = load(&whole, &of(&[&SAGE]));
        assert_ne!(measure(&model, &sampled, metric).test, expected.test, "{metric:?}");
    }
}

/// No held-out edge and no target of its own slice is in a block, no negative is a known edge, and every target comes once an epoch.
#[test]
fn messages_do_not_travel_along_what_is_predicted() {
    let opened = Opened::store(store());
    let whole = opened.whole().unwrap();
    for (options, excludes) in [
        (&["links.neg_sample_ratio=2.5"][..], true),
        (&["links.negatives=in-batch"], true),
        (&["links.disjoint_train_ratio=0.4"], true),
        (&["links.exclude_targets=false"], false),
    ] {
        let mut config = of(&[&SAGE, &BATCHES, options]);
        let data = load(&opened, &config);
        data.settle(&mut config, 1);
        let input = batch_input(&data);
        let links = input.links.as_ref().unwrap();
        let (plan, batch_config) = batches_of(input, &config, 7).unwrap();
        let held_out: HashSet<(u64, u64)> = [&links.valid, &links.test]
            .into_iter()
            .flat_map(|pairs| pairs.each().filter(|(.., is_edge)| *is_edge))
            .map(|(a, b, _)| (a.into(), b.into()))
            .collect();
        assert!(held_out.len() > 20);
        let is_edge = |a: u64, b: u64| whole.lists().of(b).unwrap().iter().any(|source| source == a);
        let n_steps = plan.steps_per_epoch();
        let mut maker = BatchMaker::new(Arc::clone(&input.shards), plan, batch_config, Stock::new(1));
        let (mut targets, mut n_along) = (Vec::new(), 0);
        for (step, slice) in (0..n_steps).flat_map(|step| (0..3).map(move |slice| (step, slice))) {
            let batch = maker.make(step, slice).unwrap();
            let pairs = batch.links.as_ref().unwrap();
            let id = |position: &u32| batch.roots()[*position as usize];
            let ids: Vec<(u64, u64)> =
                pairs.sources.iter().zip(&pairs.destinations).map(|(a, b)| (id(a), id(b))).collect();
            let (edges, negatives) = ids.split_at(pairs.n_edges);
            assert!(edges.iter().all(|(a, b)| a < b && is_edge(*a, *b) && !held_out.contains(&(*a, *b))));
            for (a, b) in negatives {
                let pair = (*a.min(b), *a.max(b));
                assert!(a != b && (!is_edge(*a, *b) || held_out.contains(&pair)), "{pair:?}");
                if options == ["links.negatives=in-batch"] {
                    let has = |node| edges.iter().any(|edge| edge.0 == node || edge.1 == node);
                    assert!(has(*a) && has(*b));
                }
            }
            assert!(pairs.n_step_pairs >= ids.len());
            for block in &batch.blocks {
                for destination in 0..block.n_destinations() {
                    let own = block.id(destination);
                    for edge in block.edges_into(destination) {
                        let source = block.id(block.sources()[edge] as usize);
                        let pair = (source.min(own), source.max(own));
                        assert!(!held_out.contains(&pair), "{pair:?} is held out");
                        n_along += usize::from(edges.contains(&pair));
                    }
                }
            }
            targets.extend_from_slice(edges);
        }
        assert_eq!(n_along == 0, excludes, "{options:?}: {n_along}");
        targets.sort_unstable();
        let mut all: Vec<(u64, u64)> = links.targets.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
        all.sort_unstable();
        assert_eq!(targets, all, "each target once an epoch");
    }
}

#[test]
fn shards_ranks_threads_and_resumes_change_no_bit_of_links() {
    let temp = tempfile::tempdir().unwrap();
    let [whole, cut] = whole_and_cut(temp.path());
    let sage = of(&[&SAGE, &BATCHES]);
    let mx = of(&[&BATCHES, &["model.norm=batch", "links.negatives=in-batch", "links.disjoint_train_ratio=0.5"]]);
    for config in [sage, mx] {
        let data = load(&whole, &config);
        let expected = to_the_end(plan(&data, config.clone(), None, false));
        assert!(expected.iter().all(|record| record.digests.len() == 3 && record.n_seeds > 0));
        let last = expected.last().unwrap().measured.unwrap();
        assert!(last.valid_loss.is_finite() && (0.0..=1.0).contains(&last.test));
        assert_eq!(to_the_end(plan(&load(&cut, &config), config.clone(), None, false)), expected, "shards");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        assert_eq!(pool.install(|| to_the_end(plan(&data, config.clone(), None, false))), expected, "threads");
        let found = losses_on(2, &data, &config);
        assert_eq!(found, losses_of(&expected), "ranks");
        let [straight, killed] = ["straight", "killed"].map(|name| temp.path().join(config.name() + name));
        to_the_end(plan(&data, config.clone(), Some(&straight), false));
        kill(plan(&data, config.clone(), Some(&killed), false), expected.len() as u64 - 2);
        to_the_end(plan(&data, config, Some(&killed), true));
        assert_eq!(left_behind(&killed), left_behind(&straight));
    }
}

fn held_out_of(dir: &Path, opened: &Opened, pairs: Option<&Path>) -> Table {
    let checkpoint = Checkpoints::of(dir).last().unwrap();
    let question = Question {
        checkpoint: &checkpoint,
        opened,
        what: What::Links,
        pairs,
        nodes: &PredictedNodes::All,
        layer: None,
        moment: Moment::Last,
        device: Device::Cpu,
        gpu: None,
        room: Room { n_together: 40, ..Room::default() },
    };
    predict(&question).unwrap()
}

/// The table of a prediction is a file of given pairs: a run that reads it has the pairs, the steps and the results of the run that
/// drew them, in both modes, from a store and from shards.
#[test]
fn predicted_pairs_can_be_given_back() {
    let temp = tempfile::tempdir().unwrap();
    let [whole, cut] = whole_and_cut(temp.path());
    for mode in [&["train.mode=full-batch"][..], &BATCHES] {
        let sage = [&SAGE[..], &["links.disjoint_train_ratio=0.3"]].concat();
        let drawn = of(&[&sage, mode]);
        let dir = temp.path().join(mode.len().to_string());
        let expected = to_the_end(plan(&load(&whole, &drawn), drawn.clone(), Some(&dir), false));
        let path = temp.path().join(format!("{}.csv", mode.len()));
        let table = held_out_of(&dir, &whole, None);
        table.write(&path).unwrap();
        assert!(held_out_of(&dir, &cut, None) == table, "from shards");
        let given = of(&[&sage, mode, &[&format!("links.pairs={}", path.display())]]);
        let data = load(&whole, &given);
        let mut settled = given.clone();
        data.settle(&mut settled, 1);
        assert_eq!(settled.links.as_ref().unwrap().pairs_digest.as_ref().unwrap().len(), 64);
        let found = to_the_end(plan(&data, settled.clone(), None, false));
        assert_eq!(found, expected, "{mode:?}");

        // Scores of the same pairs in the whole graph are others.
        let own = held_out_of(&dir, &whole, Some(&path));
        let own_of_shards = held_out_of(&dir, &cut, Some(&path));
        assert!(own.values() != table.values() && own.n_rows() == table.n_rows());
        assert!(own.values().iter().zip(own_of_shards.values()).all(|(a, b)| (a - b).abs() < 1e-6));

        let text = fs::read_to_string(&path).unwrap();
        let error = |changed: &str, config: &RunConfig| {
            fs::write(&path, changed).unwrap();
            Data::load(&whole, config, 7).unwrap_err().to_string()
        };
        let first = text.lines().nth(1).unwrap();
        let ids: Vec<&str> = first.split(',').collect();
        let lists = whole.whole().unwrap().lists();
        let known = (1..150u64).find_map(|node| {
            let source = lists.of(node).unwrap().iter().find(|source| *source < node)?;
            let pair = format!("{},{}", 7 * source + 5, 7 * node + 5);
            (!text.contains(&format!("\n{pair},"))).then_some(pair)
        });
        let known = known.unwrap();
        assert!(error(&format!("{text}\n"), &settled).contains("(links.pairs_digest)"));
        for (line, problem) in [
            (
                format!("{},{},valid,1", ids[1], ids[0]),
                "the same pair as in line 2, in this or the other direction: remove one of the two",
            ),
            (format!("{},{},train,1", ids[0], ids[1]), "expected valid or test, and 1 or 0, found train and 1"),
            (format!("{0},{0},test,0", ids[0]), "twice: remove the line"),
            (format!("{},3,test,0", ids[0]), "the graph has no node 3: use the ids of its import"),
            (format!("{known},test,0"), "is_edge is 0, and the graph has this edge"),
            (format!("{},{}", ids[0], ids[1]), "expected source,destination,part,is_edge, found 2 columns"),
        ] {
            let found = error(&format!("{text}{line}\n"), &given);
            assert!(found.contains(problem), "{found}");
            assert!(found.contains(&format!("line {}:", text.lines().count() + 1)), "{found}");
        }
        let empty = text.lines().filter(|line| !line.contains(",test,1")).collect::<Vec<_>>().join("\n");
        assert!(error(&empty, &given).contains("no line of test with is_edge 1: add its edges"));
        let empty = text.lines().filter(|line| !line.contains(",valid,0")).collect::<Vec<_>>().join("\n");
        assert!(error(&empty, &given).contains("no line of valid with is_edge 0: add pairs without an edge"));
        let exact = of(&[&SAGE, mode, &[&format!("links.pairs={}", path.display()), "links.ranking=exact"]]);
        fs::write(&path, &empty).unwrap();
        Data::load(&whole, &exact, 7).unwrap();
    }
}

#[test]
fn links_are_learned_in_batches() {
    let opened = Opened::store(store());
    let config = of(&[&SAGE, &BATCHES, &["train.epochs=30", "model.dropout=0.0", "links.dim=16"]]);
    let data = load(&opened, &config);
    let records = to_the_end(plan(&data, config, None, false));
    let mean =
        |records: &[StepRecord]| records.iter().map(|record| record.node_loss).sum::<f64>() / records.len() as f64;
    let n = records.len();
    assert!(mean(&records[n - 8..]) < 0.9 * mean(&records[..8]), "{} {}", mean(&records[n - 8..]), mean(&records[..8]));
    assert!(records.last().unwrap().measured.unwrap().test > 0.55);
}
