//! Faults that a key draws, and what they do.

use std::time::Duration;

use kith_group::launch::{attempt::Request, ended::Ended};

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
    /// All processes of a rank's host end. The run folder is on another host.
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
    /// Somebody presses Ctrl-C, and perhaps once more.
    Interrupt { again: Option<Duration> },
    /// A rank computes for ever, though its heart beats.
    Wedge { rank: usize },
    /// A connection of a rank breaks.
    Reset { rank: usize, which: usize },
    /// A bit on the way to a rank flips.
    Garble { rank: usize },
    /// All hosts and the disk lose their power at once.
    Blackout { lasts: Duration },
    /// Writing to the disk fails until it is over.
    DiskError { lasts: Duration },
    /// The disk is full until it is over.
    DiskFull { lasts: Duration },
    /// The disk says that it has synced, and has not.
    DiskLies { lasts: Duration },
    /// The disk is gone for good with the power, and the run goes on from the copy of its folder.
    DiskLost { lasts: Duration },
    /// Object storage refuses until it is over.
    StorageRefuses { lasts: Duration },
    /// The sampling servers do not answer a rank, or any of them.
    ServersAway { rank: Option<usize>, lasts: Duration },
    /// A sampling server of the launcher is killed.
    KillServer,
    /// A sampling server of the launcher ends with code 0.
    EndServer,
    /// A sampling server of the launcher is killed, and the next one is never ready.
    HangServer,
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
            | Fault::Blackout { lasts }
            | Fault::DiskError { lasts }
            | Fault::DiskFull { lasts }
            | Fault::DiskLost { lasts }
            | Fault::StorageRefuses { lasts }
            | Fault::ServersAway { lasts, .. } => *lasts,
            Fault::DiskLies { lasts } => *lasts + OFF,
            Fault::Interrupt { again } => again.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }
}

impl Fault {
    /// True if processes go on and reach each other.
    pub(crate) fn leaves_connections(&self) -> bool {
        matches!(
            self,
            Fault::DiskError { .. }
                | Fault::DiskFull { .. }
                | Fault::StorageRefuses { .. }
                | Fault::ServersAway { .. }
                | Fault::Wedge { .. }
        )
    }
}

/// Time without power after a disk has lied.
const OFF: Duration = Duration::from_secs(3);

/// The faults of a key, and when they begin.
pub(crate) fn drawn(plan: &Plan, draws: &mut Draws) -> Vec<(Duration, Fault)> {
    let n = [0, 1, 1, 2, 2, 3, 4, 6][draws.below(8) as usize];
    // Joining, training, or long after: of all lengths.
    let span = [2_000, 20_000, 90_000][draws.below(3) as usize];
    let mut faults: Vec<_> = (0..n).map(|_| (draws.millis(0, span), fault(plan, draws))).collect();
    if n > 0 && draws.in_percent(30) {
        faults.push((draws.millis(0, span), fault_of_disk(draws)));
    }
    if n > 0 && draws.in_percent(30) {
        faults.push((draws.millis(0, span), fault_of_servers(plan, draws)));
    }
    if n > 0 && draws.in_percent(15) {
        faults.push((draws.millis(0, span), fault_of_programs(plan, draws)));
    }
    faults
}

fn fault_of_programs(plan: &Plan, draws: &mut Draws) -> Fault {
    let again = draws.in_percent(50).then(|| draws.millis(10, 40_000));
    match draws.below(if plan.has_launcher { 5 } else { 1 }) {
        0 => Fault::Wedge { rank: draws.below(plan.n_ranks as u64) as usize },
        1 => Fault::EndServer,
        2 => Fault::HangServer,
        _ => Fault::Interrupt { again },
    }
}

fn fault_of_servers(plan: &Plan, draws: &mut Draws) -> Fault {
    let lasts = [draws.millis(100, 20_000), draws.millis(20_000, 120_000)][draws.below(2) as usize];
    let rank = draws.below(2 * plan.n_ranks as u64) as usize;
    match draws.below(5) {
        0 => Fault::StorageRefuses { lasts },
        1 => Fault::DiskLost { lasts },
        _ => Fault::ServersAway { rank: (rank < plan.n_ranks).then_some(rank), lasts },
    }
}

fn fault_of_disk(draws: &mut Draws) -> Fault {
    let lasts = draws.millis(100, 20_000);
    match draws.below(4) {
        0 => Fault::DiskFull { lasts },
        1 => Fault::DiskLies { lasts },
        _ => Fault::Blackout { lasts },
    }
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
            Fault::Stop => self.stop_launcher(Request { code: 75, is_interrupt: false }),
            Fault::Interrupt { again } => {
                self.stop_launcher(Request { code: 130, is_interrupt: true });
                if let Some(pause) = again {
                    self.queue.add(self.now + pause, Event::Fault(Fault::Interrupt { again: None }));
                }
            }
            Fault::Wedge { rank } => {
                let process = self.of_rank(rank);
                if let Some(training) = process.and_then(|process| self.processes[process].training.as_mut()) {
                    training.is_wedged = true;
                    self.see("wedged");
                }
            }
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
            Fault::Blackout { lasts } => self.black_out(lasts),
            Fault::DiskError { lasts } => self.disk.faults.fails_until = self.now + lasts,
            Fault::DiskFull { lasts } => self.disk.faults.is_full_until = self.now + lasts,
            Fault::DiskLies { lasts } => {
                self.disk.faults.lies_until = self.now + lasts;
                self.queue.add(self.now + lasts, Event::Fault(Fault::Blackout { lasts: OFF }));
            }
            Fault::DiskLost { lasts } => {
                if self.disk.lose() {
                    self.see("the disk is lost");
                    self.black_out(lasts);
                }
            }
            Fault::StorageRefuses { lasts } => self.disk.faults.storage_refuses_until = self.now + lasts,
            Fault::ServersAway { rank, lasts } => {
                let ranks = rank.map_or(0..self.plan.n_ranks, |rank| rank..rank + 1);
                self.servers_away_until[ranks].fill(self.now + lasts);
            }
            Fault::KillServer => self.end_a_server(Ended::Signal(9)),
            Fault::EndServer => self.end_a_server(Ended::Code(0)),
            Fault::HangServer => {
                self.supervisor.next_server_hangs = true;
                self.end_a_server(Ended::Signal(9));
            }
        }
    }

    fn black_out(&mut self, lasts: Duration) {
        self.see("a blackout");
        for host in 0..self.network.is_down.len() {
            if !self.network.is_down[host] {
                self.queue.add(self.now + lasts, Event::PowerOn(host));
            }
        }
        self.lose_launcher(lasts);
        (0..self.network.is_down.len()).for_each(|host| self.lose_power(host));
        self.disk.lose_power();
    }

    fn cut(&mut self, ways: Vec<(usize, usize)>, lasts: Duration) {
        ways.iter().for_each(|(from, to)| self.network.cut(*from, *to, true));
        self.queue.add(self.now + lasts, Event::Heal(ways));
    }

    fn lose_power(&mut self, host: usize) {
        self.see("power loss");
        self.network.is_down[host] = true;
        for process in 0..self.processes.len() {
            if self.processes[process].host == host && self.processes[process].ended.is_none() {
                self.vanish(process);
            }
        }
    }
}
