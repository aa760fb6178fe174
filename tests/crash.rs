//! Loss of power and failing disks. The file operations of real commands are recorded; every state that a loss of power may
//! leave of them is opened with the real readers, and the commands are run again on samples of these states. Operations
//! that fail end a command with the documented exit code, and the next run of the command repairs what is left.
mod buckets;
mod case;
mod graphs;
mod recording;
mod replay;
mod runs;

use self::{
    buckets::{pull, push},
    case::ALL,
    graphs::{import, partition, transfer},
    runs::{mirroring, training, training_of_seeds},
};
use crate::kith::is_slow_asked_for;

#[test]
fn slow_stores_and_shards_are_repaired_after_every_loss_of_power() {
    if is_slow_asked_for() {
        import(|recorder, case| case.survives_power_loss(recorder, ALL));
        partition(|recorder, case| case.survives_power_loss(recorder, ALL));
        transfer("copy", |recorder, case| case.survives_power_loss(recorder, ALL));
        transfer("move", |recorder, case| case.survives_power_loss(recorder, ALL));
    }
}

#[test]
fn slow_buckets_are_repaired_after_every_loss_of_power() {
    if is_slow_asked_for() {
        push(false, |recorder, case| case.survives_power_loss(recorder, ALL));
        push(true, |recorder, case| case.survives_power_loss(recorder, ALL));
        pull(|recorder, case| case.survives_power_loss(recorder, ALL));
    }
}

#[test]
fn slow_runs_are_repaired_after_every_loss_of_power() {
    if is_slow_asked_for() {
        training(false, |recorder, case| case.survives_power_loss(recorder, ALL));
        training(true, |recorder, case| case.survives_power_loss(recorder, ALL));
        training_of_seeds(|recorder, case| case.survives_power_loss(recorder, ALL));
    }
}

#[test]
fn slow_mirrored_runs_are_repaired_after_every_loss_of_power() {
    if is_slow_asked_for() {
        mirroring(false, |recorder, case| case.survives_power_loss(recorder, ALL));
        mirroring(true, |recorder, case| case.survives_power_loss(recorder, ALL));
    }
}

#[test]
fn slow_every_fault_of_the_disk_is_survived() {
    if is_slow_asked_for() {
        import(|recorder, case| case.survives_faults(recorder, ALL));
        partition(|recorder, case| case.survives_faults(recorder, ALL));
        transfer("copy", |recorder, case| case.survives_faults(recorder, ALL));
        transfer("move", |recorder, case| case.survives_faults(recorder, ALL));
        push(false, |recorder, case| case.survives_faults(recorder, ALL));
        push(true, |recorder, case| case.survives_faults(recorder, ALL));
        pull(|recorder, case| case.survives_faults(recorder, ALL));
    }
}

#[test]
fn slow_every_fault_of_the_disk_is_survived_by_runs() {
    if is_slow_asked_for() {
        training(false, |recorder, case| case.survives_faults(recorder, ALL));
        training(true, |recorder, case| case.survives_faults(recorder, ALL));
        mirroring(false, |recorder, case| case.survives_faults(recorder, ALL));
        mirroring(true, |recorder, case| case.survives_faults(recorder, ALL));
    }
}
