//! The loop where a GPU computes whole steps: the real one if there is one, and one that is emulated.

use kith_kernels::cuda::{self, Gpu};

use super::*;

#[allow(clippy::print_stderr)]
fn devices() -> Vec<Gpu> {
    let real = cuda::open(0).inspect_err(|error| eprintln!("no GPU here, only an emulated one: {error}")).ok();
    std::iter::once(kith_emulated::gpu()).chain(real).collect()
}

/// The same draws, and nearly the same numbers: losses of every step, and what is measured.
#[test]
fn a_gpu_follows_the_trajectory_of_the_cpu() {
    let input = input(vec![graph(60, 0, 1)]);
    for gpu in devices() {
        for assignments in [
            &[][..],
            &["model.form=sd", "edge_loss.subset=each"],
            &["model.form=go", "edge_loss.negatives=40"],
            &["model.kind=gat", "model.form=dp", "edge_loss=off", "model.n_layers=3"],
            &["edge_loss.weight=0", "model.dropout=0", "model.n_layers=1"],
        ] {
            let plan = || plan(&input, config(assignments), None, false);
            let expected = to_the_end(plan());
            let found = to_the_end(Plan { gpu: Some(gpu.clone()), ..plan() });
            assert_eq!(found.len(), expected.len());
            for (a, b) in found.iter().zip(&expected) {
                let near = |a: f64, b: f64| (a - b).abs() <= 1e-4 * b.abs();
                let (own, theirs) = (a.measured.unwrap(), b.measured.unwrap());
                assert!(near(a.loss, b.loss) && near(a.node_loss, b.node_loss), "{assignments:?}: {a:?} {b:?}");
                assert_eq!(a.edge_losses.len(), b.edge_losses.len());
                assert!(a.edge_losses.iter().zip(&b.edge_losses).all(|(a, b)| near(*a, *b)), "{a:?} {b:?}");
                assert!(near(own.valid_loss, theirs.valid_loss), "{assignments:?}: {a:?} {b:?}");
                assert_eq!((own.valid, own.test), (theirs.valid, theirs.test), "{assignments:?}: {a:?} {b:?}");
                assert_eq!((a.n_seeds, a.n_edges), (b.n_seeds, b.n_edges));
            }
        }
    }
}

#[test]
fn resuming_on_a_gpu_is_invisible() {
    let temp = tempfile::tempdir().unwrap();
    let input = input(vec![graph(60, 0, 1)]);
    for gpu in devices() {
        let dir = |name: &str| temp.path().join(gpu.name()).join(name);
        let (whole, killed) = (dir("whole"), dir("killed"));
        let plan = |dir, resume| Plan { gpu: Some(gpu.clone()), ..plan(&input, config(&[]), Some(dir), resume) };
        to_the_end(plan(&whole, false));
        kill(plan(&killed, false), 8);
        let resumed = to_the_end(plan(&killed, true));
        assert_eq!(resumed[0].step, 6);
        assert_eq!(left_behind(&killed), left_behind(&whole));
    }
}

#[test]
fn what_a_gpu_does_not_take_is_said() {
    let plan = |data, assignments: &[&str]| Plan {
        gpu: Some(kith_emulated::gpu()),
        ..plan(data, config(assignments), None, false)
    };
    let refused = |plan: Plan<'_>| Run::new(plan, alone()).unwrap_err().to_string();
    let one = input(vec![graph(60, 0, 1)]);
    let end = ": train on the CPU, or with --kernels reference";
    let expected = format!("gcn has no kernels for GPUs{end}");
    assert_eq!(refused(plan(&one, &["model=off", "model.kind=gcn", "edge_loss=off"])), expected);
    let expected = format!("the kernels for GPUs take up to 32 heads{end}");
    assert_eq!(refused(plan(&one, &["model.heads=33"])), expected);
    let expected = format!("the kernels for GPUs take one graph at a time{end}");
    assert_eq!(refused(plan(&set(), &[])), expected);
}
