//! `kith bench scale`: what a cluster would do, measured with processes of this host.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender},
    time::Duration,
};

use anyhow::bail;
use kith_partition::assign::Method;
use kith_store::{Graph, Verify, WorkFolder};
use serde_json::json;

use super::{
    clusters::Clusters,
    combinations::{Asked, Skipped, combinations},
    like::Like,
    measured::Measured,
    results::{CombinationResult, Line, RESULTS, Results},
    table::print_tables,
    watcher::Watcher,
};
use crate::{
    answer::print_json,
    graph::percent,
    launch::{
        attempt::{Attempt, Outcome},
        command_line::{CommandLine, HOST, Threads},
        events,
        process::Event,
    },
    partition::fanouts::Fanouts,
    programs,
    progress::{grouped, say},
    signals,
    token::draw_token,
};

/// What will my cluster do? Trains a few steps with every combination of shards, servers, ranks and fanouts, as processes
/// of this host, and says how fast they are, what goes over the wire, and what memory and CPU time they take.
#[derive(clap::Args)]
#[command(after_help = "\
A graph of known size:  kith bench scale --like arxiv --work bench/arxiv
Your own:               kith bench scale stores/mine --work bench/mine --model my.toml
More of everything:     kith bench scale --like products --work bench/products --shards 2,4 --servers 0,2,4 --ranks 1,2,4 \\
                          --fanouts 10,10 --fanouts 15,10
With a cache:           kith bench scale stores/mine --work bench/mine --servers 2 --cache 20

Each combination that was measured is a line of scale.jsonl in --work. Started again after it was killed, or with more
combinations, the bench measures only what is not there. docs/BENCHMARKS.md says how to read it.")]
pub(crate) struct Args {
    /// The store to train on.
    #[arg(value_name = "STORE", required_unless_present = "like", conflicts_with = "like")]
    store: Option<PathBuf>,
    /// Make a graph of this size to train on: arxiv, products or papers:SHARE of ogbn's.
    #[arg(long, value_name = "arxiv|products|papers:SHARE")]
    like: Option<Like>,
    /// The folder for what is made and measured.
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    /// Shards to cut the store into.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2",
        value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(super) shards: Vec<u32>,
    /// Sampling servers; with 0 of them ranks read the shards from files.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0,1,2")]
    pub(super) servers: Vec<usize>,
    /// Trainer processes.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2",
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) ranks: Vec<u16>,
    /// Neighbors drawn per node, from the seeds outwards; may be given several times. A model has a layer for each at least.
    #[arg(long, value_name = "N,N|all", default_value = "10,10")]
    pub(super) fanouts: Vec<Fanouts>,
    /// Seeds of a step, all ranks together.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) seeds_per_step: u64,
    /// Steps that are measured.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) steps: u64,
    /// Steps before them that are not.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) warm_up: u64,
    /// What is trained: a model of the presets for ogbn-arxiv, any preset, or a run file.
    #[arg(long, value_name = "MODEL|PRESET|FILE", default_value = "supergat-mx")]
    pub(super) model: String,
    /// Change a key of the run file, as in train.deterministic=false; may be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(super) assignments: Vec<String>,
    /// Threads of each process; default: the cores divided among ranks, and again among servers.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(super) threads: Option<usize>,
    /// Where ranks compute: cpu, cuda or cuda:N.
    #[arg(long, default_value = "cpu")]
    pub(super) device: String,
    /// Rows that ranks keep of servers, as a percentage of all nodes.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    pub(super) cache: f64,
    /// Who owns which node: metis, stream, hash or range. Default: metis if it fits in memory, else stream.
    #[arg(long)]
    pub(super) method: Option<Method>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let at_once = signals::end_at_once()?;
    let work = &args.work;
    fs::create_dir_all(work).map_err(at(work))?;
    let mut results = Results::open(work)?;
    let store = args.like.map(|like| work.join(like.store_name())).or_else(|| args.store.clone());
    let store = store.expect("one of them is given");
    let graph = match args.like {
        Some(like) => like.open(&store)?,
        None => Graph::open(&store)?,
    };
    let (all, skipped) = combinations(args, &graph.manifest().digest)?;
    for Skipped { why, .. } in &skipped {
        say(&format!("note: {why}"));
    }
    if all.is_empty() {
        bail!("nothing to measure: ask for fewer --servers or more --shards");
    }
    let left: Vec<&Asked> = all.iter().filter(|asked| !results.has(asked)).collect();
    if left.len() < all.len() {
        say(&format!("{} of {} combinations were measured before", all.len() - left.len(), all.len()));
    }
    let clusters =
        Clusters { work, method: args.method, fanouts: &args.fanouts[0], seeds_per_step: args.seeds_per_step };
    for shards in &args.shards {
        if left.iter().any(|asked| asked.shards == *shards) {
            clusters.cut(&graph, *shards)?;
        }
    }
    drop(graph);
    let (sender, events) = events()?;
    drop(at_once); // From now on processes have to be stopped first.
    for (place, asked) in left.iter().enumerate() {
        say(&format!("{} of {}: {asked}", place + 1, left.len()));
        let result = match measure(asked, work, &clusters.dir(asked.shards), (&sender, &events))? {
            Ended::With(result) => result,
            Ended::Stopped(code) => {
                say("stopped: what was measured is kept, and is not measured again");
                return Ok(code);
            }
        };
        match &result {
            CombinationResult::Measured(Measured { seeds_per_second, edges_per_second, .. }) => {
                let [seeds, edges] = [seeds_per_second, edges_per_second].map(|speed| grouped(speed.round() as u64));
                say(&format!("    {seeds} seeds/s, {edges} edges/s"));
            }
            CombinationResult::Failed(sentence) => say(&format!("    failed: {sentence}")),
        }
        results.push(Line { asked: (*asked).clone(), result })?;
    }
    answer(args, &store, &all.iter().filter_map(|asked| results.of(asked)).collect::<Vec<_>>(), &skipped)
}

fn answer(args: &Args, store: &Path, lines: &[&Line], skipped: &[Skipped]) -> anyhow::Result<u8> {
    let measured: Vec<(&Asked, &Measured)> = lines
        .iter()
        .filter_map(|line| match &line.result {
            CombinationResult::Measured(measured) => Some((&line.asked, measured)),
            CombinationResult::Failed(_) => None,
        })
        .collect();
    if args.json {
        print_json(&json!({ "store": store, "results": lines, "skipped": skipped }))?;
    } else if !measured.is_empty() {
        print_tables(&measured)?;
    }
    match lines.len() - measured.len() {
        0 => Ok(0),
        n => bail!("{n} of {} combinations failed: see {}", lines.len(), args.work.join(RESULTS).display()),
    }
}

/// Time for ranks to end a step: nothing of them is kept.
const GRACE: Duration = Duration::from_secs(5);

/// How one combination ended.
enum Ended {
    With(CombinationResult),
    /// Somebody wants us to stop; the exit code that stands for it.
    Stopped(u8),
}

/// Starts the processes of a combination, watches them for as long as it takes, and stops them.
fn measure(
    asked: &Asked,
    work: &Path,
    cluster: &Path,
    events: (&SyncSender<Event>, &Receiver<Event>),
) -> anyhow::Result<Ended> {
    let folder = WorkFolder::claim(&work.join("scale.draft"))?;
    let (run, run_file) = (folder.path().join("run"), folder.path().join("run.toml"));
    fs::write(&run_file, &asked.run_file).map_err(at(&run_file))?;
    let mut passed = vec![run_file.into_os_string(), "--out".into(), run.clone().into_os_string()];
    passed.extend(["--device".into(), (&asked.device).into()]);
    if asked.servers == 0 {
        passed.extend(["--shards".into(), cluster.as_os_str().to_owned()]);
    } else {
        passed.extend(["--cache".into(), (&asked.cache).into()]);
    }
    let command_line = CommandLine {
        program: programs::kith()?,
        n_ranks: asked.ranks,
        n_servers: asked.servers,
        cluster: (asked.servers > 0).then(|| (cluster.to_owned(), asked.shards as usize)),
        passed,
        metrics: None,
        server_metrics: Some((HOST, 0).into()),
        out: None,
        is_resumed: false,
        grace: GRACE,
        token: draw_token()?.into(),
        sampler_token: draw_token()?.into(),
        verify: Verify::default(),
        threads: Threads { rank: asked.rank_threads, server: asked.server_threads },
    };
    let mut watcher = Watcher::new(asked, &run);
    let outcome = Attempt::new(&command_line, &mut watcher, events).run(false)?;
    drop(folder);
    Ok(Ended::With(match (outcome, watcher.measured) {
        (Outcome::Stopped { code }, _) => return Ok(Ended::Stopped(code)),
        (_, Some(measured)) => CombinationResult::Measured(measured),
        (Outcome::Failed { sentence, .. }, None) => CombinationResult::Failed(watcher.error.unwrap_or(sentence)),
        (Outcome::Done, None) => CombinationResult::Failed("the run ended before it was measured".to_owned()),
    }))
}

fn at(path: &Path) -> impl Fn(io::Error) -> anyhow::Error {
    move |error| anyhow::anyhow!("{}: {error}", path.display())
}

fn threads(text: &str) -> Result<usize, String> {
    let n = text.parse().ok().filter(|n| (1..=1024).contains(n));
    n.ok_or_else(|| "write a number from 1 to 1024".to_owned())
}
