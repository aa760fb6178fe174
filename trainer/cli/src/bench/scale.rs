//! `kith bench scale`: performance of a cluster, measured with processes on this host.

use std::{
    fs, io,
    path::Path,
    sync::mpsc::{Receiver, SyncSender},
    time::Duration,
};

use anyhow::bail;
use kith_group::launch::attempt::Outcome;
use kith_store::{Graph, Verify, WorkFolder};
use serde_json::json;

pub(crate) use super::scale_args::Args;
use super::{
    clusters::Clusters,
    combinations::{Combination, Skipped, combinations},
    compared::{Compared, compare, print_compared},
    cores::cores,
    measured::Measured,
    results::{CombinationResult, Line, RESULTS, Results},
    table::print_tables,
    watcher::Watcher,
};
use crate::{
    answer::print_json,
    constants::Constants,
    launch::{
        attempt::{Attempt, Audience},
        command_line::{CommandLine, HOST, Threads},
        events,
        process::Event,
    },
    programs,
    progress::{grouped, say},
    signals,
    token::draw_token,
};

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
    let left: Vec<&Combination> = all.iter().filter(|asked| !results.has(asked)).collect();
    if left.len() < all.len() {
        say(&format!("{} of {} combinations were measured before", all.len() - left.len(), all.len()));
    }
    let inclusion = Some((&args.fanouts[0], args.seeds_per_step));
    let clusters = Clusters { work, method: args.method, inclusion };
    let constants = args.constants.as_deref().map(Constants::read).transpose()?;
    let cores = if args.pin { cores()? } else { Vec::new() };
    for shards in &args.shards {
        if left.iter().any(|asked| asked.shards == *shards) {
            clusters.cut(&graph, *shards)?;
        }
    }
    drop(graph);
    let (sender, events) = events()?;
    drop(at_once); // From here on, processes must be stopped before an exit.
    for (place, asked) in left.iter().enumerate() {
        say(&format!("{} of {}: {asked}", place + 1, left.len()));
        let stage = Stage { work, cluster: &clusters.dir(asked.shards), cores: cores.clone() };
        let result = match measure(asked, &stage, (&sender, &events))? {
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
    let lines: Vec<&Line> = all.iter().filter_map(|asked| results.of(asked)).collect();
    let compared = match &constants {
        Some(constants) => compare(constants, &measured_of(&lines), |shards| clusters.dir(shards))?,
        None => Vec::new(),
    };
    answer(args, &store, &lines, &skipped, &compared)
}

/// Lines of combinations that were measured.
fn measured_of<'a>(lines: &[&'a Line]) -> Vec<(&'a Combination, &'a Measured)> {
    let of = |line: &&'a Line| match &line.result {
        CombinationResult::Measured(measured) => Some((&line.asked, measured)),
        CombinationResult::Failed(_) => None,
    };
    lines.iter().filter_map(of).collect()
}

fn answer(
    args: &Args,
    store: &Path,
    lines: &[&Line],
    skipped: &[Skipped],
    compared: &[Compared],
) -> anyhow::Result<u8> {
    let measured = measured_of(lines);
    if args.json {
        print_json(&json!({ "store": store, "results": lines, "skipped": skipped, "predictions": compared }))?;
    } else if !measured.is_empty() {
        print_tables(&measured)?;
        print_compared(compared)?;
    }
    match lines.len() - measured.len() {
        0 => Ok(0),
        n => bail!("{n} of {} combinations failed: see {}", lines.len(), args.work.join(RESULTS).display()),
    }
}

/// Time for ranks to finish a step; their results are discarded.
const GRACE: Duration = Duration::from_secs(5);

/// End of one combination.
enum Ended {
    With(CombinationResult),
    /// Stopped by a signal, with its exit code.
    Stopped(u8),
}

/// Folders of a combination, and its cores if processes are pinned.
pub(super) struct Stage<'a> {
    pub(super) work: &'a Path,
    pub(super) cluster: &'a Path,
    pub(super) cores: Vec<usize>,
}

/// Starts the processes of a combination, watches them until they end or their observer has seen enough, and stops them. The observer
/// is made for the folder of the run.
pub(super) fn start<'o, O: Audience + 'o>(
    asked: &Combination,
    stage: &Stage<'_>,
    events: (&SyncSender<Event>, &Receiver<Event>),
    observer: impl FnOnce(&Path) -> &'o mut O,
) -> anyhow::Result<Outcome> {
    let folder = WorkFolder::claim(&stage.work.join("scale.draft"))?;
    let (run, run_file) = (folder.path().join("run"), folder.path().join("run.toml"));
    fs::write(&run_file, &asked.run_file).map_err(at(&run_file))?;
    let mut passed = vec![run_file.into_os_string(), "--out".into(), run.clone().into_os_string()];
    passed.extend(["--device".into(), (&asked.device).into()]);
    if asked.servers == 0 {
        passed.extend(["--shards".into(), stage.cluster.as_os_str().to_owned()]);
    } else {
        passed.extend(["--cache".into(), (&asked.cache).into()]);
    }
    let command_line = CommandLine {
        program: programs::kith()?,
        n_ranks: asked.ranks,
        n_servers: asked.servers,
        cluster: (asked.servers > 0).then(|| (stage.cluster.to_owned(), asked.shards as usize)),
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
        cores: stage.cores.clone(),
    };
    Attempt::new(&command_line, observer(&run), events).run(false)
}

/// Measures a combination.
fn measure(
    asked: &Combination,
    stage: &Stage<'_>,
    events: (&SyncSender<Event>, &Receiver<Event>),
) -> anyhow::Result<Ended> {
    let mut watcher = None;
    let outcome = start(asked, stage, events, |run| watcher.insert(Watcher::new(asked, run)))?;
    let watcher = watcher.expect("made at the start");
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
