//! Faults that a key draws, and what they do.

use std::time::Duration;

use crate::{
    draws::Draws,
    world::{Event, Plan, World},
};

/// A fault. Ranks stand for the processes that have them then.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// A rank is killed.
    Kill { rank: usize },
    /// A rank pauses.
    Pause { rank: usize, lasts: Duration },
    /// All processes of a rank's host end, and what was not synced is lost.
    PowerLoss { rank: usize, lasts: Duration },
    /// A rank's host does not reach another's; the other way may work.
    Cut { from: usize, to: usize, is_both: bool, lasts: Duration },
    /// A rank's host reaches nobody.
    Isolate { rank: usize, lasts: Duration },
    /// A rank's machine freezes: it reaches nobody, and its process pauses.
    Freeze { rank: usize, lasts: Duration },
    /// Everything takes longer on a rank's host.
    Slow { rank: usize, factor: u32, lasts: Duration },
    /// A rank is asked to stop, as before maintenance.
    Terminate { rank: usize },
    /// The launcher is asked to stop.
    Stop,
    /// A connection of a rank breaks.
    Reset { rank: usize, which: usize },
    /// A bit on the way to a rank flips.
    Garble { rank: usize },
    /// Writing to the disk fails until it is over.
    DiskError { lasts: Duration },
    /// A sampling server of the launcher is killed.
    KillServer,
}

impl Fault {
    /// Until it is over.
    pub(crate) fn lasts(&self) -> Duration {
        match self {
            Fault::Pause { lasts, .. }
            | Fault::PowerLoss { lasts, .. }
            | Fault::Cut { lasts, .. }
            | Fault::Isolate { lasts, .. }
            | Fault::Freeze { lasts, .. }
            | Fault::Slow { lasts, .. }
            | Fault::DiskError { lasts } => *lasts,
            _ => Duration::ZERO,
        }
    }
}

/// The faults of a key, and when they begin.
pub(crate) fn drawn(plan: &Plan, draws: &mut Draws) -> Vec<(Duration, Fault)> {
    let n = [0, 1, 1, 2, 2, 3, 4, 6][draws.below(8) as usize];
    // Joining, training, or long after: of all lengths.
    let span = [2_000, 20_000, 90_000][draws.below(3) as usize];
    (0..n).map(|_| (draws.millis(0, span), fault(plan, draws))).collect()
}

fn fault(plan: &Plan, draws: &mut Draws) -> Fault {
    let rank = draws.below(plan.n_ranks as u64) as usize;
    let lasts = [draws.millis(10, 2_000), draws.millis(4_000, 16_000), draws.millis(8_000, 60_000)];
    let lasts = lasts[draws.below(3) as usize];
    match draws.below(if plan.has_launcher { 12 } else { 17 }) {
        0 | 1 => Fault::Kill { rank },
        2..=4 => Fault::Pause { rank, lasts },
        5 => Fault::Slow { rank, factor: draws.from(2, 100) as u32, lasts },
        6 => Fault::Terminate { rank },
        7 => Fault::Reset { rank, which: draws.below(8) as usize },
        8 => Fault::Garble { rank },
        9 => Fault::DiskError { lasts },
        10 if plan.has_launcher => Fault::KillServer,
        11 if plan.has_launcher => Fault::Stop,
        10..=12 => Fault::PowerLoss { rank, lasts },
        13 => Fault::Isolate { rank, lasts },
        14 => Fault::Freeze { rank, lasts },
        _ => {
            let to = (rank + 1 + draws.below(plan.n_ranks as u64 - 1) as usize) % plan.n_ranks;
            Fault::Cut { from: rank, to, is_both: draws.in_percent(50), lasts }
        }
    }
}

impl World {
    pub(crate) fn begin_fault(&mut self, fault: Fault) {
        self.note(|| format!("fault: {fault:?}"));
        match fault {
            Fault::Kill { rank } => self.of_rank(rank).into_iter().for_each(|process| self.kill(process, 9)),
            Fault::Pause { rank, lasts } => {
                if let Some(process) = self.of_rank(rank) {
                    self.see("pause");
                    self.processes[process].is_paused = true;
                    self.queue.add(self.now + lasts, Event::Continue(process));
                }
            }
            Fault::PowerLoss { rank, lasts } => {
                let host = self.supervisor.host_of(rank);
                if !self.network.is_down[host] {
                    self.lose_power(host);
                    self.queue.add(self.now + lasts, Event::PowerOn(host));
                }
            }
            Fault::Cut { from, to, is_both, lasts } => {
                let (from, to) = (self.supervisor.host_of(from), self.supervisor.host_of(to));
                let ways = if is_both { vec![(from, to), (to, from)] } else { vec![(from, to)] };
                self.cut(ways, lasts);
            }
            Fault::Isolate { rank, lasts } => {
                let host = self.supervisor.host_of(rank);
                let others = (0..self.network.is_down.len()).filter(|other| *other != host);
                let ways = others.flat_map(|other| [(host, other), (other, host)]).collect();
                self.cut(ways, lasts);
                self.supervisor_lost(rank, lasts);
            }
            Fault::Freeze { rank, lasts } => {
                self.begin_fault(Fault::Isolate { rank, lasts });
                self.begin_fault(Fault::Pause { rank, lasts });
            }
            Fault::Slow { rank, factor, lasts } => {
                let host = self.supervisor.host_of(rank);
                self.network.slow[host] = self.network.slow[host].saturating_mul(factor);
                self.queue.add(self.now + lasts, Event::Fast { host, factor });
            }
            Fault::Terminate { rank } => {
                if let Some(process) = self.of_rank(rank) {
                    self.supervisor_terminates(process);
                }
            }
            Fault::Stop => self.stop_launcher(),
            Fault::Reset { rank, which } => {
                let Some(process) = self.of_rank(rank) else { return };
                let lines = self.network.lines_of(process);
                if let Some(line) = lines.get(which % lines.len().max(1)) {
                    self.network.reset(*line, self.now, &mut self.queue);
                }
            }
            Fault::Garble { rank } => {
                let Some(process) = self.of_rank(rank) else { return };
                for line in self.network.lines_of(process) {
                    if self.network.garble(line, self.network.end_of(line, process)) {
                        self.see("a garbled frame");
                        return;
                    }
                }
            }
            Fault::DiskError { lasts } => self.supervisor.disk_fails_until = self.now + lasts,
            Fault::KillServer => self.kill_server(),
        }
    }

    fn cut(&mut self, ways: Vec<(usize, usize)>, lasts: Duration) {
        ways.iter().for_each(|(from, to)| self.network.cut(*from, *to, true));
        self.queue.add(self.now + lasts, Event::Heal(ways));
    }

    fn lose_power(&mut self, host: usize) {
        self.see("power loss");
        // The disk of the run is that of the host of rank 0: others write nothing.
        if host == self.supervisor.disk_host {
            self.disk.lose_power();
        }
        self.network.is_down[host] = true;
        for process in 0..self.processes.len() {
            if self.processes[process].host == host && self.processes[process].ended.is_none() {
                self.vanish(process);
            }
        }
    }
}
