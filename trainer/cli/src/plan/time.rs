//! Time of a step, out of counts and constants. Pure functions; docs/grow/plan.md explains the terms.
//!
//! Prefetch threads make mini-batches while the training thread computes. A step therefore takes as long as the slowest of
//! five stages: the training thread, the prefetch threads, the servers, the network link of a host, its disk; or as long as the CPU time of
//! all processes of a host takes on its cores.

use serde::Serialize;

use super::work::Work;
use crate::constants::{Constants, N_PARTS};

/// Processes and hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Layout {
    /// Hosts with ranks.
    pub(crate) hosts: usize,
    pub(crate) ranks_per_host: usize,
    /// Servers on hosts of their own; 0: every host with ranks has one, of its shards.
    pub(crate) servers: usize,
    /// Threads of a rank, and of a server.
    pub(crate) threads: usize,
    pub(crate) server_threads: usize,
    /// Cores of a host.
    pub(crate) cores: usize,
    /// True if GPUs compute, one per rank.
    pub(crate) has_gpus: bool,
    /// True if all processes are on one machine, as in `kith bench scale`, whose loopback device is the only network.
    pub(crate) is_one_machine: bool,
}

/// The network between hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Network {
    /// Bytes per second, in each direction.
    pub(crate) rate: f64,
    /// Seconds of a round trip.
    pub(crate) latency: f64,
}

/// Properties of a run that the time of a step depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Job {
    pub(crate) vector_bytes: f64,
    pub(crate) id_bytes: f64,
    pub(crate) n_weights: f64,
    /// Slices of a step, of all ranks.
    pub(crate) slices: usize,
    /// True if gradients are added in the order of slices.
    pub(crate) is_deterministic: bool,
    /// Constants of forward and backward of the model.
    pub(crate) compute: [f64; N_PARTS],
    /// Pages of lists and features of a step that hosts read from their disks, because their memory does not hold them.
    pub(crate) disk_pages: f64,
}

/// The stage that limits a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Bound {
    /// The training thread: forward, backward, exchange, update.
    #[default]
    Training,
    /// The prefetch threads: their CPU time, and their waits for servers.
    Prefetch,
    /// The CPU time of a server.
    Server,
    /// The bytes of a network link.
    Network,
    /// The cores of a host, which all its processes share.
    Cores,
    /// The disk of a host.
    Disk,
}

impl Bound {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Bound::Training => "training",
            Bound::Prefetch => "prefetch",
            Bound::Server => "server",
            Bound::Network => "network",
            Bound::Cores => "cores",
            Bound::Disk => "disk",
        }
    }
}

/// Predicted seconds of a step. Parts of several ranks are those of the slowest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct StepTime {
    /// The whole step.
    pub(crate) total: f64,
    /// CPU time of a rank: hops, pairs of the edge loss, features.
    pub(crate) sample: f64,
    pub(crate) pairs: f64,
    pub(crate) features: f64,
    /// Time that a mini-batch waits for answers of servers.
    pub(crate) answers: f64,
    /// Forward and backward.
    pub(crate) compute: f64,
    /// Exchange of gradients.
    pub(crate) exchange: f64,
    pub(crate) update: f64,
    /// CPU time of all servers / their number / threads of a server.
    pub(crate) server: f64,
    /// Time of the busiest network link.
    pub(crate) network: f64,
    /// Time of the disk.
    pub(crate) disk: f64,
    /// The training thread waits for mini-batches.
    pub(crate) waiting: f64,
    pub(crate) bound: Bound,
    /// Bytes of requests to servers and of their answers, of all ranks.
    pub(crate) request_bytes: f64,
    pub(crate) answer_bytes: f64,
    /// Bytes of gradients that all ranks send.
    pub(crate) gradient_bytes: f64,
    /// Seed nodes of all ranks.
    pub(crate) seeds: f64,
}

/// Threads of a rank that make mini-batches: as in `trainer/src/data/feed.rs`.
pub(super) fn prefetch_threads(layout: &Layout, waits: bool) -> usize {
    let n = if layout.has_gpus { layout.threads.saturating_sub(1).max(1) } else { layout.threads.div_ceil(4) };
    if waits { n.max(4) } else { n }
}

impl Layout {
    pub(crate) fn n_ranks(&self) -> usize {
        self.hosts * self.ranks_per_host
    }

    /// Cores that are busy on a host with ranks, if servers compute a share of the time.
    fn busy(&self, share: f64) -> f64 {
        let has_server = self.servers == 0 && self.hosts > 1;
        let servers = if self.is_one_machine { self.servers } else { usize::from(has_server) };
        let of_ranks = (self.ranks_per_host * self.threads) as f64;
        let all = of_ranks + share * (servers * self.server_threads) as f64;
        all.min(of_ranks.max(self.cores as f64))
    }

    /// Servers that a rank asks: each once per round, however many shards it has.
    fn n_asked(&self) -> f64 {
        if self.servers > 0 { self.servers as f64 } else { self.hosts as f64 - 1.0 }
    }
}

/// Bytes that one rank sends to the next for the gradients of a step, and hops until all ranks have the sum: see
/// `trainer/src/distributed/collective/ring/sums.rs`.
pub(crate) fn gradients(job: &Job, n_ranks: usize) -> (f64, f64) {
    /// Smaller messages go around the ring whole.
    const SMALL_BYTES: f64 = 16384.0;
    if n_ranks < 2 {
        return (0.0, 0.0);
    }
    let (n, bytes) = (n_ranks as f64, 4.0 * job.n_weights);
    let of_rank = bytes * if job.is_deterministic { (job.slices as f64 / n).ceil() } else { 1.0 };
    if of_rank <= SMALL_BYTES {
        ((n - 1.0) * of_rank, n - 1.0)
    } else if job.is_deterministic {
        ((2.0 - 2.0 / n) * bytes, 2.0 * (n - 1.0))
    } else {
        (2.0 * (n - 1.0) / n * bytes, 2.0 * (n - 1.0))
    }
}

/// Time of a step. `ranks` has the slices of some ranks of the step; the others are like these.
pub(crate) fn step_time(
    constants: &Constants,
    job: &Job,
    layout: &Layout,
    network: &Network,
    ranks: &[Vec<Work>],
) -> StepTime {
    let of = |share: f64| step_time_beside(constants, job, layout, network, ranks, share);
    let alone = of(0.0);
    of((alone.server / alone.total.max(1e-9)).min(1.0))
}

/// The same while servers compute a share of the time.
fn step_time_beside(
    constants: &Constants,
    job: &Job,
    layout: &Layout,
    network: &Network,
    ranks: &[Vec<Work>],
    share: f64,
) -> StepTime {
    let get = |name: &str| constants.get(name);
    let dot = |prices: &[f64], work: &[f64]| prices.iter().zip(work).map(|(price, n)| price * n).sum::<f64>();
    let n_ranks = layout.n_ranks() as f64;
    let (servers, busy) = (layout.n_asked(), layout.busy(share));
    let slower = ["sample", "compute"].map(|part| constants.crowding(part, busy, layout.cores));
    // One machine has no network but its loopback device, whose cost is in the constants.
    let rtt = if layout.is_one_machine { get("link.latency") + network.latency } else { network.latency };

    let local = ["local.slice", "local.edge", "local.vector", "local.byte", "local.pair"].map(get);
    let client = ["client.call", "client.edge", "client.vector", "client.byte", "client.pair"].map(get);
    let server = ["server.call", "server.edge", "server.vector", "server.byte", "server.pair"].map(get);
    let mut time = StepTime::default();
    let (mut server_cpu, mut rank_cpu, mut prefetch) = (0.0, 0.0, 0.0_f64);
    let waits = servers > 0.0;
    let threads = prefetch_threads(layout, waits) as f64;
    for slices in ranks {
        let mut own = StepTime::default();
        for work in slices {
            let (mine, asked) = (work.local(job.vector_bytes), work.client(job.vector_bytes, servers));
            let served = dot(&server, &asked);
            own.sample += slower[0] * (dot(&local[..2], &mine[..2]) + dot(&client[..2], &asked[..2]));
            own.features += slower[0] * (dot(&local[2..4], &mine[2..4]) + dot(&client[2..4], &asked[2..4]));
            own.pairs += slower[0] * (local[4] * mine[4] + client[4] * asked[4]);
            own.compute += dot(&job.compute, &work.compute());
            let (requests, answers) = work.remote_bytes(job.vector_bytes, job.id_bytes);
            time.request_bytes += requests;
            time.answer_bytes += answers;
            time.seeds += work.seeds;
            // Servers answer a call at the same time, each its share.
            own.answers += if asked[0] > 0.0 { work.rounds * rtt + slower[0] * served / servers } else { 0.0 };
            server_cpu += slower[0] * served;
        }
        let mut cpu_of_compute = 0.0;
        if !layout.has_gpus {
            cpu_of_compute = slower[1] * own.compute;
            let serial = get("threads.serial");
            own.compute *= slower[1] * (serial + (1.0 - serial) / layout.threads.max(1) as f64);
        }
        let made = own.sample + own.features + own.pairs;
        prefetch = prefetch.max((made + own.answers) / threads).max(made / threads.min(layout.threads as f64));
        rank_cpu += made + cpu_of_compute;
        time.sample = time.sample.max(own.sample);
        time.features = time.features.max(own.features);
        time.pairs = time.pairs.max(own.pairs);
        time.answers = time.answers.max(own.answers);
        time.compute = time.compute.max(own.compute);
    }
    let scale = n_ranks / ranks.len().max(1) as f64;
    for sum in [&mut time.request_bytes, &mut time.answer_bytes, &mut time.seeds, &mut server_cpu] {
        *sum *= scale;
    }
    rank_cpu /= ranks.len().max(1) as f64;

    let (sent, hops) = gradients(job, layout.n_ranks());
    let crosses = layout.hosts > 1;
    let per_byte = if crosses { get("ring.byte").max(1.0 / network.rate) } else { get("ring.byte") };
    let of_hop = get("ring.hop") + if crosses { network.latency / 2.0 } else { 0.0 };
    time.gradient_bytes = sent * n_ranks;
    time.update = slower[1] * (get("update.step") + job.n_weights * get("update.weight"));
    let rank_cpu = rank_cpu + time.update;
    // The longer a step, the later its slowest rank.
    let wait = constants.wait(layout.n_ranks());
    time.exchange = wait * (time.compute + time.update) + hops * of_hop + sent * per_byte;

    let n_servers = if layout.servers > 0 { layout.servers } else { layout.hosts } as f64;
    time.server = server_cpu / n_servers / layout.server_threads.max(1) as f64;
    time.network = link_bytes(&time, layout, sent) / network.rate;
    time.disk = job.disk_pages / layout.hosts as f64 * get("disk.page");
    let training = time.compute + time.exchange + time.update;
    // The cores that a rank may use, and those that all processes of the host share. While the training thread exchanges or updates,
    // prefetch threads have its core.
    let own_cores =
        (1.0 + wait) * rank_cpu / layout.threads.max(1) as f64 + hops * get("ring.hop") + sent * get("ring.byte");
    let beside = if layout.is_one_machine || layout.servers == 0 { server_cpu / layout.hosts as f64 } else { 0.0 };
    let all_cores = (rank_cpu * layout.ranks_per_host as f64 + beside) / layout.cores.max(1) as f64;
    // Crowding has counted ranks that share a core already.
    let cores =
        if layout.ranks_per_host * layout.threads > layout.cores { own_cores } else { own_cores.max(all_cores) };
    let stages = [
        (training, Bound::Training),
        (prefetch, Bound::Prefetch),
        (time.server, Bound::Server),
        (time.network, Bound::Network),
        (cores, Bound::Cores),
        (time.disk, Bound::Disk),
    ];
    let (total, bound) = stages.into_iter().max_by(|one, other| one.0.total_cmp(&other.0)).expect("six stages");
    StepTime { total, bound, waiting: (total - training).max(0.0), ..time }
}

/// Bytes of the busiest network link in its busier direction.
fn link_bytes(time: &StepTime, layout: &Layout, sent: f64) -> f64 {
    let calls = time.request_bytes + time.answer_bytes;
    if layout.is_one_machine {
        return calls + time.gradient_bytes;
    }
    let hosts = layout.hosts as f64;
    // The ring leaves each host once.
    let gradients = if layout.hosts > 1 { sent } else { 0.0 };
    if layout.servers == 0 {
        // A host's server sends as much as its ranks receive.
        return calls / hosts + gradients;
    }
    let of_ranks = time.answer_bytes / hosts + gradients;
    of_ranks.max(time.answer_bytes / layout.servers as f64)
}

/// Mean of several steps.
pub(crate) fn mean(steps: &[StepTime]) -> StepTime {
    let n = steps.len().max(1) as f64;
    let of = |part: fn(&StepTime) -> f64| steps.iter().map(part).sum::<f64>() / n;
    let bounds = steps.iter().map(|step| step.bound);
    StepTime {
        total: of(|step| step.total),
        sample: of(|step| step.sample),
        pairs: of(|step| step.pairs),
        features: of(|step| step.features),
        answers: of(|step| step.answers),
        compute: of(|step| step.compute),
        exchange: of(|step| step.exchange),
        update: of(|step| step.update),
        server: of(|step| step.server),
        network: of(|step| step.network),
        disk: of(|step| step.disk),
        waiting: of(|step| step.waiting),
        // The bound of most steps; of several, the first.
        bound: bounds
            .clone()
            .rev()
            .max_by_key(|bound| bounds.clone().filter(|other| other == bound).count())
            .unwrap_or_default(),
        request_bytes: of(|step| step.request_bytes),
        answer_bytes: of(|step| step.answer_bytes),
        gradient_bytes: of(|step| step.gradient_bytes),
        seeds: of(|step| step.seeds),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::work::{LayerWork, Split},
        *,
    };
    use crate::constants::tests::some;

    const JOB: Job = Job {
        vector_bytes: 400.0,
        id_bytes: 4.0,
        n_weights: 1e5,
        slices: 8,
        is_deterministic: true,
        compute: [1e-3, 1e-10, 0.0, 0.0, 1e-9, 1e-9],
        disk_pages: 0.0,
    };
    const FAST: Network = Network { rate: 1e12, latency: 0.0 };

    fn layout(hosts: usize) -> Layout {
        Layout {
            hosts,
            ranks_per_host: 1,
            servers: 0,
            threads: 1,
            server_threads: 1,
            cores: 4,
            has_gpus: false,
            is_one_machine: false,
        }
    }

    /// A mini-batch of which servers have a share.
    fn work(remote: f64) -> Work {
        let split = |n: f64| Split { local: n * (1.0 - remote), remote: n * remote };
        Work {
            seeds: 100.0,
            frontier: split(1e3),
            drawn: split(1e4),
            vectors: split(8e3),
            looked_up: split(5e3),
            rounds: 3.0,
            layers: vec![LayerWork { multiplies: 1e8, inputs: 1e6, edges: 1e5, features: 1e6, pairs: 1e5 }],
            ..Work::default()
        }
    }

    fn of(job: &Job, layout: &Layout, network: &Network, remote: f64) -> StepTime {
        step_time(&some(), job, layout, network, &vec![vec![work(remote)]; layout.n_ranks().min(4)])
    }

    #[test]
    fn a_rank_of_one_core_takes_the_sum_of_its_parts() {
        let time = of(&JOB, &layout(1), &FAST, 0.0);
        let sum = time.sample + time.pairs + time.features + time.compute + time.update;
        assert!((time.total - sum).abs() < 1e-12 && time.bound == Bound::Cores, "{time:?}");
        assert!((time.compute - (1e-3 + 1e-2 + 1e-3 + 1e-4)).abs() < 1e-12, "{time:?}");
        assert_eq!((time.exchange, time.network, time.server, time.seeds), (0.0, 0.0, 0.0, 100.0));
    }

    #[test]
    fn with_an_endless_network_training_is_the_bound() {
        let heavy = Job { compute: [10.0, 0.0, 0.0, 0.0, 0.0, 0.0], ..JOB };
        let layout = Layout { threads: 4, ..layout(8) };
        let time = of(&heavy, &layout, &Network { rate: f64::INFINITY, latency: 0.0 }, 0.9);
        assert_eq!((time.bound, time.network, time.waiting), (Bound::Training, 0.0, 0.0));
        assert!((time.total - time.compute - time.exchange - time.update).abs() < 1e-12, "{time:?}");
    }

    #[test]
    fn without_computing_a_slow_network_is_the_bound() {
        let nothing = Job { compute: [0.0; N_PARTS], n_weights: 0.0, ..JOB };
        let slow = Network { rate: 1e6, latency: 0.0 };
        let time = of(&nothing, &layout(4), &slow, 0.75);
        let bytes = (time.request_bytes + time.answer_bytes) / 4.0;
        assert!(time.bound == Bound::Network && (time.total - bytes / 1e6).abs() < 1e-9, "{time:?}");
        assert!((time.total - time.waiting).abs() < 1e-5, "{time:?}");
        let twice = of(&nothing, &layout(4), &Network { rate: 2e6, latency: 0.0 }, 0.75);
        assert!((time.total / twice.total - 2.0).abs() < 1e-9, "{twice:?}");
        // All answers of one server leave through its own link.
        let alone = of(&nothing, &Layout { servers: 1, ..layout(4) }, &slow, 1.0);
        assert!((alone.network - alone.answer_bytes / 1e6).abs() < 1e-9, "{alone:?}");
        // On one machine, all processes share the link.
        let one = Layout { servers: 1, ranks_per_host: 4, is_one_machine: true, ..layout(1) };
        let one = of(&nothing, &one, &slow, 1.0);
        assert!((one.network - (one.answer_bytes + one.request_bytes) / 1e6).abs() < 1e-9, "{one:?}");
    }

    #[test]
    fn more_remote_work_hosts_and_latency_never_make_a_step_shorter() {
        let network = Network { rate: 1e8, latency: 1e-4 };
        let mut before = 0.0;
        for hosts in [1, 2, 4, 8, 16, 32, 64] {
            let remote = 1.0 - 1.0 / hosts as f64;
            let job = Job { slices: hosts, ..JOB };
            let time = of(&job, &layout(hosts), &network, remote);
            assert!(time.total >= before, "{hosts} hosts: {time:?} after {before}");
            assert!((time.seeds - 100.0 * hosts as f64).abs() < 1e-6, "all ranks count: {time:?}");
            before = time.total;
            let late = of(&job, &layout(hosts), &Network { latency: 1e-2, ..network }, remote);
            assert!(late.total >= time.total, "{late:?}");
        }
        let on_a_server = Layout { servers: 1, ..layout(1) };
        let steps: Vec<f64> = [1e-5, 1e-2, 0.1, 1.0]
            .map(|latency| of(&JOB, &on_a_server, &Network { latency, ..network }, 1.0).total)
            .to_vec();
        assert!(steps.is_sorted() && steps[3] > 0.7, "four threads wait three rounds of a second: {steps:?}");
    }

    #[test]
    fn one_server_of_many_ranks_is_the_bound() {
        let served = |servers: usize| {
            let layout = Layout { servers, ..layout(64) };
            of(&JOB, &layout, &FAST, 1.0)
        };
        assert_eq!(served(1).bound, Bound::Server);
        // Each of four answers as many calls as one, and a quarter of the rest.
        assert!((3.9..4.0).contains(&(served(1).server / served(4).server)));
        assert!(served(1).total > served(4).total);
    }

    #[test]
    fn gpus_leave_the_cores_to_sampling() {
        let layout = Layout { threads: 4, has_gpus: true, ..layout(1) };
        let time = of(&Job { compute: [1e-3, 0.0, 0.0, 0.0, 0.0, 0.0], ..JOB }, &layout, &FAST, 0.0);
        assert_eq!(time.compute, 1e-3);
        assert!(time.bound != Bound::Training && time.total < time.sample + time.pairs + time.features, "{time:?}");
    }

    #[test]
    fn gradients_go_around_the_ring() {
        let sent = |n_ranks: usize, job: &Job| gradients(job, n_ranks);
        assert_eq!(sent(1, &JOB), (0.0, 0.0));
        assert_eq!(sent(2, &Job { is_deterministic: false, ..JOB }), (4e5, 2.0));
        assert_eq!(sent(4, &JOB), (6e5, 6.0));
        // Few weights: each rank sends the gradients of all slices but its successor's.
        assert_eq!(sent(4, &Job { n_weights: 100.0, ..JOB }), (2400.0, 3.0));
    }

    #[test]
    fn ranks_wait_in_proportion_to_their_steps() {
        let waits = some();
        let mut none = some();
        none.constants.retain(|name, _| !name.starts_with("wait."));
        for heavy in [1.0, 10.0] {
            let job = Job { compute: JOB.compute.map(|price| heavy * price), n_weights: 10.0, ..JOB };
            let works = vec![vec![work(0.0)]; 8];
            let of = |constants: &Constants| step_time(constants, &job, &layout(8), &FAST, &works);
            let (with, without) = (of(&waits), of(&none));
            let waited = with.exchange - without.exchange;
            assert!((waited - 0.2 * (with.compute + with.update)).abs() < 1e-9, "{with:?} {without:?}");
            assert!((with.total / without.total - 1.2).abs() < 0.01, "{with:?} {without:?}");
        }
    }

    #[test]
    fn a_disk_that_is_too_slow_is_the_bound() {
        let time = of(&Job { disk_pages: 1e7, ..JOB }, &layout(1), &FAST, 0.0);
        assert!(time.bound == Bound::Disk && (time.total - 1.0).abs() < 1e-9, "{time:?}");
    }

    #[test]
    fn means_keep_the_usual_bound() {
        let step = |total: f64, bound: Bound| StepTime { total, bound, ..StepTime::default() };
        let mean = mean(&[step(1.0, Bound::Network), step(2.0, Bound::Cores), step(3.0, Bound::Cores)]);
        assert_eq!((mean.total, mean.bound), (2.0, Bound::Cores));
    }
}
