//! `kith plan --hosts`: predicts the time of steps on hosts, from counts of sampled steps and constants of a machine.

use anyhow::bail;
use kith_client::Found;
use kith_run::config::{Mode, RunConfig};
use kith_sampler::Fanout;
use kith_store::memory::available_bytes;
use serde::Serialize;
use serde_json::json;

use super::{
    args::Args,
    placement::Placement,
    planned::Planned,
    private::{Private, of_rank},
    sampled::{Find, Steps, Wanted, sample, settled},
    speed,
    time::{Job, Layout, Network, StepTime, mean, prefetch_threads, step_time},
    work::{Shape, Work},
};
use crate::{
    answer::{print, print_fields, print_json, print_table},
    bench::combinations::named,
    constants::Constants,
    progress::{bytes, grouped},
};

/// Sampled ranks: the others of a step are like these.
const MOST_RANKS: usize = 8;

/// Numbers of hosts in the table of growth.
const GROWTH: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// One row of the table of growth.
#[derive(Clone, Debug, Serialize)]
struct Row {
    hosts: usize,
    ranks: usize,
    #[serde(flatten)]
    step: StepTime,
    seeds_per_second: f64,
    seconds_per_epoch: f64,
    host_bytes: u64,
    /// Seconds of hosts per seed node, relative to one host.
    cost_per_seed: f64,
}

/// The run file's settings, with the options that override them.
fn configured(args: &Args) -> anyhow::Result<RunConfig> {
    let mut file = named(&args.time.model)?;
    file.set("train.mode=mini-batch")?;
    args.time.assignments.iter().try_for_each(|assignment| file.set(assignment))?;
    let mut config = file.resolve()?;
    if config.train.mode != Mode::MiniBatch {
        bail!("the time of mini-batches is predicted: remove `train.mode` from --set");
    }
    if let Some(fanouts) = &args.fanouts {
        config.train.fanouts = fanouts.0.iter().map(|fanout| fanout.map_or(Fanout::All, Fanout::AtMost)).collect();
        config.model.n_layers = config.model.n_layers.max(fanouts.0.len());
    }
    if args.seeds_per_step.is_some() {
        (config.train.batch_size, config.train.batch_size_per_rank) = (args.seeds_per_step, None);
    }
    if args.edge_seeds > 0 {
        config.train.edge_seeds = Some(args.edge_seeds);
    }
    Ok(config)
}

/// Host of a node if `hosts` hosts hold the shards: shard s is on host s % hosts. More hosts than shards divide each shard at random.
fn host_of(owner: u16, node: u64, n_shards: usize, hosts: usize) -> usize {
    if hosts <= n_shards {
        return usize::from(owner) % hosts;
    }
    let parts = (hosts - usize::from(owner)).div_ceil(n_shards) as u64;
    let part = (node.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % parts;
    usize::from(owner) + n_shards * part as usize
}

/// Everything that is the same for all numbers of hosts.
struct Prediction<'a> {
    args: &'a Args,
    constants: &'a Constants,
    planned: &'a Planned,
    shape: Shape,
    job: Job,
    slices_per_rank: usize,
    n_train: f64,
    /// Cache of a host, in feature vectors.
    n_cached: usize,
    memory: Option<u64>,
}

pub(super) fn run(args: &Args, planned: &Planned, constants: &Constants) -> anyhow::Result<()> {
    let hosts = args.time.hosts.expect("asked for");
    let (mut config, seeds) = settled(&planned.shards, configured(args)?, hosts * args.time.ranks_per_host())?;
    let (n_train, info) = (seeds.len(), planned.shards.info().clone());
    let (per_host, n_ranks) = (args.time.ranks_per_host(), hosts * args.time.ranks_per_host());
    let slices_per_rank = config.train.slices.max(n_ranks).div_ceil(n_ranks);
    let has_gpus = args.time.gpus_per_host.unwrap_or(0) > 0;
    let shape = Shape::new(&config, info.dim, info.n_classes);
    let batch = config.train.batch_size.expect("settled");
    if batch < n_ranks {
        bail!("--batch-size {batch}: expected at least one seed node for each of {n_ranks} ranks");
    }
    let job = Job {
        vector_bytes: super::forecast::vector_bytes(&planned.contents, planned.stored_per_row),
        id_bytes: if u32::try_from(planned.contents.n_nodes).is_ok() { 4.0 } else { 8.0 },
        n_weights: shape.n_weights(),
        slices: slices_per_rank * n_ranks,
        is_deterministic: config.train.deterministic.unwrap_or(!has_gpus),
        compute: constants.compute(shape.model, has_gpus)?,
        disk_pages: 0.0,
    };
    let n_cached = (planned.owner.len() as f64 * args.cache.unwrap_or(0.0) / 100.0) as usize;
    let memory = args.memory.or_else(available_bytes);
    let prediction =
        Prediction { args, constants, planned, shape, job, slices_per_rank, n_train: n_train as f64, n_cached, memory };

    let mut counts: Vec<usize> = GROWTH.to_vec();
    if !counts.contains(&hosts) {
        counts.push(hosts);
        counts.sort_unstable();
    }
    // The batch of the sampled ranks, each with the seed nodes that it has on the planned hosts.
    let sampled = n_ranks.min(MOST_RANKS);
    let part = |n: usize| (n * sampled).div_ceil(n_ranks);
    (config.train.batch_size, config.train.edge_seeds) = (Some(part(batch)), config.train.edge_seeds.map(part));
    let owners: Vec<Vec<u16>> = counts.iter().map(|hosts| prediction.owners(*hosts)).collect();
    let places: Vec<Placement<'_>> =
        counts.iter().zip(&owners).map(|(hosts, owner)| prediction.placement(*hosts, owner, sampled)).collect();
    let finds: Vec<Box<Find<'_>>> =
        counts.iter().zip(&places).map(|(hosts, place)| prediction.find(*hosts, place)).collect();
    let finds: Vec<&Find<'_>> = finds.iter().map(|find| &**find).collect();
    let wanted = Wanted { run_seed: args.run_key, n_steps: args.steps, ranks: sampled, slices_per_rank };
    let works = sample(&planned.shards, (&config, seeds), wanted, &finds)?;
    let mut rows: Vec<Row> = counts.iter().zip(&works).map(|(hosts, steps)| prediction.row(*hosts, steps)).collect();
    let cost = |row: &Row| row.hosts as f64 / row.seeds_per_second;
    let first = cost(&rows[0]);
    rows.iter_mut().for_each(|row| row.cost_per_seed = cost(row) / first);
    let planned_row = rows.iter().find(|row| row.hosts == hosts).expect("one of the counts").clone();
    let title = format!(
        "{hosts} {} of {per_host} {}, {} per host, {:.0} us",
        if hosts == 1 { "host" } else { "hosts" },
        if has_gpus {
            "GPUs"
        } else if per_host == 1 {
            "rank"
        } else {
            "ranks"
        },
        speed::readable(args.time.network),
        args.time.latency
    );
    let steps = &works[counts.iter().position(|count| *count == hosts).expect("one of the counts")];
    let n_threads = prefetch_threads(&prediction.layout(hosts), hosts > 1 || args.time.servers > 0);
    let private = of_rank(&config, (&info, prediction.job.n_weights, has_gpus), (steps, n_threads));
    prediction.answer((&title, &private), &planned_row, &rows)
}

impl Prediction<'_> {
    fn layout(&self, hosts: usize) -> Layout {
        let time = &self.args.time;
        let (per_host, cores) = (time.ranks_per_host(), time.cores.unwrap_or(self.constants.cores));
        let planned = time.hosts.expect("asked for");
        // As many hosts of servers per host of ranks as planned.
        let servers = if time.servers == 0 { 0 } else { (time.servers * hosts).div_ceil(planned) };
        Layout {
            hosts,
            ranks_per_host: per_host,
            servers,
            threads: time.threads.unwrap_or((cores / per_host).max(1)),
            server_threads: if servers > 0 { cores } else { (cores / (per_host + 1)).max(1) },
            cores,
            has_gpus: time.gpus_per_host.unwrap_or(0) > 0,
            is_one_machine: false,
        }
    }

    /// Host of each node, for placements.
    fn owners(&self, hosts: usize) -> Vec<u16> {
        let n_shards = self.planned.sizes.len();
        let host = |(node, owner): (usize, &u16)| host_of(*owner, node as u64, n_shards, hosts) as u16;
        self.planned.owner.iter().enumerate().map(host).collect()
    }

    fn placement<'a>(&self, hosts: usize, owner: &'a [u16], sampled: usize) -> Placement<'a> {
        // Ranks without shards of their own all cache the same.
        let world = if self.args.time.servers > 0 { 1 } else { hosts };
        let inclusion = self.planned.inclusion.as_deref().filter(|_| world > 1 || self.args.time.servers > 0);
        Placement::of_ranks(owner, world, inclusion, self.n_cached, sampled.min(world))
    }

    fn find<'a>(&self, hosts: usize, place: &'a Placement<'a>) -> Box<Find<'a>> {
        if self.args.time.servers > 0 {
            Box::new(|_, node| place.find(0, node))
        } else if hosts == 1 {
            Box::new(|_, _| Found::Local)
        } else {
            Box::new(move |rank, node| place.find(rank % hosts, node))
        }
    }

    fn row(&self, hosts: usize, steps: &Steps) -> Row {
        let layout = self.layout(hosts);
        let network = Network { rate: self.args.time.network, latency: self.args.time.latency * 1e-6 };
        let host_bytes = self.host_bytes(&layout, steps);
        let job = Job {
            slices: self.slices_per_rank * layout.n_ranks(),
            disk_pages: self.disk_pages(&layout, steps, host_bytes),
            ..self.job
        };
        let times: Vec<StepTime> =
            steps.iter().map(|ranks| step_time(self.constants, &job, &layout, &network, ranks)).collect();
        let step = mean(&times);
        let seeds_per_second = step.seeds / step.total;
        Row {
            hosts,
            ranks: layout.n_ranks(),
            step,
            seeds_per_second,
            seconds_per_epoch: self.n_train / seeds_per_second,
            host_bytes,
            cost_per_seed: 1.0,
        }
    }

    /// Memory of a host with ranks: its shards, the owners of all nodes, the cache that its ranks share, and of each rank the
    /// mini-batches that wait.
    fn host_bytes(&self, layout: &Layout, steps: &Steps) -> u64 {
        let shards = self.planned.sizes.iter().map(|size| size.n_bytes).sum::<u64>() as f64;
        let shards = if layout.servers > 0 { 0.0 } else { shards / layout.hosts as f64 };
        let works: Vec<&Work> = steps.iter().flatten().flatten().collect();
        let largest = works.iter().map(|work| work.size.bytes as f64).fold(0.0, f64::max);
        let cached =
            if layout.hosts > 1 || layout.servers > 0 { self.n_cached as f64 * self.job.vector_bytes } else { 0.0 };
        // Each prefetch thread makes one and has finished another; one is trained on.
        let n_batches = 2.0 * layout.threads.max(4) as f64 + 1.0;
        let of_rank = n_batches * largest + 16.0 * self.job.n_weights;
        (shards + self.planned.owner_bytes() as f64 + cached + layout.ranks_per_host as f64 * of_rank) as u64
    }

    /// Pages that all hosts together read from their disks in a step: the share of lists and features that is not in memory.
    fn disk_pages(&self, layout: &Layout, steps: &Steps, host_bytes: u64) -> f64 {
        let missing = match self.memory {
            Some(memory) if layout.servers == 0 && host_bytes > memory => 1.0 - memory as f64 / host_bytes as f64,
            _ => return 0.0,
        };
        let per_vector = (self.job.vector_bytes / 4096.0).ceil();
        let pages = |work: &Work| {
            let (vectors, lists) = (work.vectors, work.frontier);
            (vectors.local + vectors.remote) * per_vector + lists.local + lists.remote
        };
        let (n_steps, n_ranks) = (steps.len() as f64, steps[0].len() as f64);
        let all: f64 = steps.iter().flatten().flatten().map(pages).sum();
        let faster = self.args.time.disk.map_or(1.0, |speed| 4096.0 / speed / self.constants.get("disk.page"));
        missing * all / n_steps * layout.n_ranks() as f64 / n_ranks * faster
    }

    fn answer(&self, (title, private): (&str, &Private), row: &Row, rows: &[Row]) -> anyhow::Result<()> {
        let fits = self.memory.is_none_or(|memory| row.host_bytes <= memory);
        let cut_percent = 100.0 * self.planned.n_cut as f64 / self.planned.contents.n_edges.max(1) as f64;
        if self.args.json {
            return print_json(&json!({
                "method": self.planned.method,
                "n_shards": self.planned.sizes.len(),
                "shards": self.planned.sizes,
                "cut_percent": cut_percent,
                "model": self.shape.model,
                "machine": self.constants.machine,
                "layout": title,
                "step": row,
                "memory_bytes": self.memory,
                "fits": fits,
                "rank_private_bytes": private,
                "growth": rows,
            }));
        }
        let StepTime { total, waiting, bound, request_bytes, answer_bytes, gradient_bytes, .. } = row.step;
        let (step, hosts) = (&row.step, row.hosts as f64);
        let size = |n: f64| bytes(n.round() as u64);
        print_fields(&[
            ("hosts", title.to_owned()),
            ("constants", format!("of {}, {} cores", self.constants.machine, self.constants.cores)),
            ("shards", format!("{} by {}, edge cut {cut_percent:.2}%", self.planned.sizes.len(), self.planned.method)),
            ("step", format!("{}, bound by {}", millis(total), bound.name())),
            ("  sampling", format!("{} of CPU per rank", millis(step.sample))),
            ("  pair lookups", format!("{} of CPU per rank", millis(step.pairs))),
            ("  features", format!("{} of CPU per rank", millis(step.features))),
            ("  answers", format!("{} until servers have answered", millis(step.answers))),
            ("  servers", format!("{} per server", millis(step.server))),
            ("  network", format!("{} per host", millis(step.network))),
            ("  disk", format!("{} per host", millis(step.disk))),
            ("  compute", millis(step.compute)),
            ("  exchange", millis(step.exchange)),
            ("  update", millis(step.update)),
            ("  waiting", format!("{} for mini-batches", millis(waiting))),
            (
                "seed nodes",
                format!("{} per step, {} per second", grouped(step.seeds as u64), rate(row.seeds_per_second)),
            ),
            ("epoch", format!("{:.1} s without evaluation", row.seconds_per_epoch)),
            (
                "bytes per step",
                format!(
                    "requests {}, answers {}, gradients {}",
                    size(request_bytes),
                    size(answer_bytes),
                    size(gradient_bytes)
                ),
            ),
            (
                "bytes per host",
                format!(
                    "requests {}, answers {}, gradients {}",
                    size(request_bytes / hosts),
                    size(answer_bytes / hosts),
                    size(gradient_bytes / row.ranks as f64 * f64::from(u8::from(row.hosts > 1)))
                ),
            ),
            ("memory of a rank", private.shown()),
            (
                "memory of a host",
                match self.memory {
                    Some(memory) if fits => format!("{}, fits in {}", bytes(row.host_bytes), bytes(memory)),
                    Some(memory) => {
                        let rest = match self.args.time.servers {
                            0 => "the rest is read from the disk",
                            _ => "add memory, or use fewer ranks per host or a smaller cache",
                        };
                        format!("{}, more than the {} of memory: {rest}", bytes(row.host_bytes), bytes(memory))
                    }
                    None => bytes(row.host_bytes),
                },
            ),
        ])?;
        print(
            "\nweak scaling, with the same number of seed nodes per rank; times in ms, cost in seconds of hosts with ranks per seed node relative to 1 host\n",
        )?;
        let heading = [
            "hosts",
            "seed nodes/s",
            "step",
            "waiting",
            "compute",
            "exchange",
            "server",
            "network",
            "bound",
            "from servers",
            "memory",
            "cost",
        ];
        let mut table = vec![heading.map(str::to_owned).to_vec()];
        for row in rows {
            let step = &row.step;
            let ms = |seconds: f64| format!("{:.2}", seconds * 1e3);
            table.push(vec![
                row.hosts.to_string(),
                rate(row.seeds_per_second),
                ms(step.total),
                ms(step.waiting),
                ms(step.compute),
                ms(step.exchange),
                ms(step.server),
                ms(step.network),
                step.bound.name().to_owned(),
                size(step.answer_bytes),
                bytes(row.host_bytes),
                format!("{:.2}", row.cost_per_seed),
            ]);
        }
        print_table(&table)
    }
}

fn millis(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1e3)
}

fn rate(per_second: f64) -> String {
    grouped(per_second.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_share_shards_and_divide_them() {
        let of = |owner: u16, hosts: usize| host_of(owner, 77, 4, hosts);
        assert_eq!([of(0, 1), of(3, 1), of(3, 2), of(3, 4), of(1, 3)], [0, 0, 1, 3, 1]);
        for hosts in [5, 8, 64] {
            let mut n_nodes = vec![0; hosts];
            (0..64_000).for_each(|node| n_nodes[host_of((node % 4) as u16, node, 4, hosts)] += 1);
            let (least, most) = (n_nodes.iter().min().unwrap(), n_nodes.iter().max().unwrap());
            assert!(*least > 0 && *most < 3 * least, "{hosts} hosts: {n_nodes:?}");
        }
    }
}
