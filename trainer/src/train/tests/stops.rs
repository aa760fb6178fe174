//! Runs that are asked to stop: a checkpoint of the last finished step, and no trace after they resume.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use kith_run::stop::{Request, Stop};

use super::*;
use crate::{data::opened::Opened, distributed::world::on_worlds};

fn heeding(stop: &Stop) -> &'static mut World {
    let world = alone();
    world.heed(stop.clone());
    world
}

/// Asks a run to stop after a number of steps: it ends after the next.
fn ask_after(plan: RunPlan<'_>, n_steps: u64, request: Request) -> TrainError {
    let stop = Stop::default();
    let mut run = Run::new(plan, heeding(&stop)).unwrap();
    train(&mut run, |record| {
        if record.step + 1 == n_steps {
            stop.ask(request);
        }
        ControlFlow::Continue(())
    })
    .unwrap_err()
}

fn n_recorded(dir: &Path) -> usize {
    fs::read_to_string(dir.join(STEPS)).unwrap().lines().count()
}

/// Name, data, steps per epoch, and settings.
fn cases() -> Vec<(&'static str, Data, u64, Vec<&'static str>)> {
    let temp = tempfile::tempdir().unwrap();
    let store = batches::write_store(&graph(60, 0, 1), temp.path());
    let in_batches = vec!["train.mode=mini-batch", "train.fanouts=3", "train.batch_size=7", "train.evaluate_every=2"];
    let data = Data::load(&Opened::store(store), &config(&in_batches), 7).unwrap();
    let Data::Batches(_) = &data else { panic!("loaded for mini-batches") };
    vec![
        ("one", input(vec![graph(60, 0, 1)]), 1, vec!["train.evaluate_every=5"]),
        ("set", set(), 2, vec![]),
        ("batches", data, 3, in_batches),
    ]
}

#[test]
fn a_run_that_was_asked_to_stop_goes_on_without_a_trace() {
    crate::engine::device::start();
    let temp = tempfile::tempdir().unwrap();
    let mut n_due = 0;
    for (name, data, steps_per_epoch, assignments) in cases() {
        let config = || config(&[&assignments[..], &["train.checkpoint_every=100"]].concat());
        let whole = temp.path().join(format!("{name}-whole"));
        to_the_end(plan(&data, config(), Some(&whole), false));
        let n_steps = n_recorded(&whole) as u64;
        assert_eq!(n_steps, 12 * steps_per_epoch, "{name}");
        for asked_after in (1..n_steps - 1).step_by(2).chain([n_steps - 1]) {
            let dir = temp.path().join(format!("{name}-{asked_after}"));
            let error = ask_after(plan(&data, config(), Some(&dir), false), asked_after, Request::Terminate);
            let n_done = asked_after + 1;
            let state = Checkpoints::of(&dir).last().unwrap().state().clone();
            assert_eq!(state.step, n_done, "{name}");
            let ends = n_done / steps_per_epoch;
            let evaluates = ends.is_multiple_of(config().train.evaluate_every) || ends == 12;
            let is_due = n_done.is_multiple_of(steps_per_epoch) && evaluates;
            assert_eq!(state.due.is_some(), is_due, "{name} after {n_done}");
            assert_eq!(n_recorded(&dir) as u64, n_done - u64::from(is_due), "{name} after {n_done}");
            n_due += usize::from(is_due);
            assert_eq!(
                error.to_string(),
                format!("stopped by SIGTERM after {n_done} steps: go on from its checkpoint with --resume")
            );
            assert_eq!(error.code(), 75);
            let resumed = to_the_end(plan(&data, config(), Some(&dir), true));
            assert_eq!(resumed[0].step, n_done - u64::from(is_due), "{name} after {n_done}");
            assert_eq!(left_behind(&dir), left_behind(&whole), "{name} after {n_done}");
        }
    }
    assert!(n_due > 10, "{n_due} evaluations were due");
}

#[test]
fn the_last_step_ends_a_run_as_usual() {
    let input = input(vec![graph(60, 0, 1)]);
    // After the last evaluation there is nothing to stop; before it, it is due.
    let stop = Stop::default();
    let mut run =
        Run::new(plan(&input, config(&["train.epochs=3", "train.evaluate_every=1"]), None, false), heeding(&stop))
            .unwrap();
    let error = train(&mut run, |record| {
        if record.step == 1 {
            stop.ask(Request::Interrupt);
        }
        ControlFlow::Continue(())
    })
    .unwrap_err();
    assert_eq!(error.to_string(), "stopped by SIGINT after 3 steps: nothing is kept without --out");
    assert_eq!(error.code(), 130);
    let stop = Stop::default();
    let mut run = Run::new(plan(&input, config(&["train.epochs=3"]), None, false), heeding(&stop)).unwrap();
    train(&mut run, |record| {
        if record.step == 2 {
            stop.ask(Request::Terminate);
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(run.is_done());
}

/// A signal to any rank in the middle of an evaluation: all ranks abandon it, and do it first when they go on.
#[test]
fn an_evaluation_is_abandoned_and_done_first_later() {
    crate::engine::device::start();
    let temp = tempfile::tempdir().unwrap();
    let store = batches::write_store(&graph(60, 0, 1), temp.path());
    let assignments =
        ["train.mode=mini-batch", "train.fanouts=3", "train.batch_size=7", "train.slices=3", "train.epochs=3"];
    let load = || Data::load(&Opened::store(store.clone()), &config(&assignments), 7).unwrap();
    let (data, whole) = (load(), temp.path().join("whole"));
    to_the_end(plan(&data, config(&assignments), Some(&whole), false));
    for (n_ranks, asked) in [(1, 0), (3, 0), (3, 1), (3, 2)] {
        let dir = temp.path().join(format!("{asked}-of-{n_ranks}"));
        let errors = on_worlds(n_ranks, |world| {
            let stop = Stop::default();
            world.heed(stop.clone());
            let (data, is_asked) = (load(), world.rank() == asked);
            let mut run = Run::new(plan(&data, config(&assignments), Some(&dir), false), world).unwrap();
            let n_steps = run.host.feed.steps_per_epoch();
            for step in 1..=n_steps {
                let mut records = update(&mut run).unwrap();
                let record = &mut records[0];
                if step < n_steps {
                    run.end_epoch(record).unwrap();
                    assert!(record.measured.is_none());
                    run.record(record).unwrap();
                    continue;
                }
                if is_asked {
                    stop.ask(Request::Terminate);
                }
                return run.end_epoch(record).unwrap_err().code();
            }
            unreachable!("an epoch ends")
        });
        assert_eq!(errors, vec![75; n_ranks], "{asked} of {n_ranks}");
        let state = Checkpoints::of(&dir).last().unwrap().state().clone();
        assert_eq!((state.step, state.epoch, state.due.is_some()), (3, 0, true));
        assert_eq!(n_recorded(&dir), 2);
        let resumed = to_the_end(plan(&data, config(&assignments), Some(&dir), true));
        assert!(resumed[0].step == 2 && resumed[0].measured.is_some(), "{:?}", resumed[0]);
        let (steps, report, tensors) = left_behind(&dir);
        assert_eq!((&steps, &tensors), (&left_behind(&whole).0, &left_behind(&whole).2), "{asked} of {n_ranks}");
        assert_eq!(report, left_behind(&whole).1);
    }
}

/// Runs that a GPU computes together stop at one step, each with a checkpoint of it, and go on together.
#[test]
fn runs_that_are_computed_together_stop_together() {
    let input = input(vec![graph(60, 0, 1)]);
    let temp = tempfile::tempdir().unwrap();
    let gpu = kith_cuda_emulator::gpu();
    let assignments = ["train.evaluate_every=3", "train.checkpoint_every=100", "early_stop=off"];
    let dir = |name: &str, run_key: u64| temp.path().join(format!("{name}-{run_key}"));
    let train_all = |name: &str, resume: bool, stop: &Stop, ask_at: usize| {
        let dirs = [5, 6, 7].map(|run_key| (run_key, dir(name, run_key)));
        let n_turns = AtomicUsize::new(0);
        let plans = dirs.iter().map(|(run_key, dir)| RunPlan {
            run_key: *run_key,
            ..plan(&input, config(&assignments), Some(dir), resume)
        });
        let mut runs: Vec<Run<'_>> = plans.map(|plan| Run::new(plan, heeding(stop)).unwrap()).collect();
        let n_due = runs.iter().filter(|run| run.is_due()).count();
        Run::put_on_gpu(&gpu, &mut runs).unwrap();
        let watch = |_, _: &StepRecord| {
            if n_turns.fetch_add(1, SeqCst) + 1 == ask_at {
                stop.ask(Request::Terminate);
            }
            ControlFlow::Continue(())
        };
        let outcome = train_runs(&mut runs, watch, |_| {}).map_err(|error| error.code());
        runs.iter_mut().for_each(Run::free_gpu);
        (outcome, n_due)
    };
    assert_eq!(train_all("whole", false, &Stop::default(), 0), (Ok(()), 0));
    // Asked in the turn of the first, the second or the last of them; after step 5 and, with an evaluation due, step 6.
    for (name, ask_at, n_steps, n_due) in [("first", 13, 5, 0), ("second", 11, 5, 0), ("last", 15, 6, 3)] {
        assert_eq!(train_all(name, false, &Stop::default(), ask_at), (Err(75), 0), "{name}");
        let states = [5, 6, 7].map(|run_key| Checkpoints::of(&dir(name, run_key)).last().unwrap().state().clone());
        assert!(states.iter().all(|state| state.step == states[0].step), "{name}: {states:?}");
        assert!(states[0].step == n_steps || states[0].step == n_steps + 1, "{name}: {}", states[0].step);
        let n_found = states.iter().filter(|state| state.due.is_some()).count();
        assert!(n_found == 0 || n_found == 3, "{name}: {n_found}");
        let (outcome, n_resumed) = train_all(name, true, &Stop::default(), 0);
        assert_eq!((outcome, n_resumed), (Ok(()), n_found), "{name}");
        assert!(n_due == 0 || n_found == n_due, "{name}");
        for run_key in [5, 6, 7] {
            assert_eq!(left_behind(&dir(name, run_key)), left_behind(&dir("whole", run_key)), "{name} {run_key}");
        }
    }
}

/// Checkpoints by time are copies: nothing of the results depends on them.
#[test]
fn checkpoints_by_time_change_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let input = set();
    let kept = |dir: &Path| {
        let names = fs::read_dir(dir.join("checkpoints")).unwrap().map(|file| file.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    let (often, never) = (temp.path().join("often"), temp.path().join("never"));
    for (dir, minutes) in [(&often, "1e-9"), (&never, "0")] {
        let minutes = format!("train.checkpoint_minutes={minutes}");
        let config = config(&["train.checkpoint_every=100", &minutes]);
        to_the_end(plan(&input, config, Some(dir), false));
    }
    assert_eq!(kept(&often), ["step-23.safetensors", "step-24.safetensors"]);
    assert_eq!(kept(&never), ["step-24.safetensors"]);
    let (steps, _, tensors) = left_behind(&often);
    assert_eq!((steps, tensors), (left_behind(&never).0, left_behind(&never).2));
    assert_eq!(config(&[]).train.checkpoint_minutes, 10.0, "on by default");
    // Killed between two steps, a run goes on from the step before.
    let killed = temp.path().join("killed");
    let by_time = || config(&["train.checkpoint_every=100", "train.checkpoint_minutes=1e-9"]);
    kill(plan(&input, by_time(), Some(&killed), false), 9);
    assert_eq!(to_the_end(plan(&input, by_time(), Some(&killed), true))[0].step, 8);
    assert_eq!(left_behind(&killed), left_behind(&often));
}
