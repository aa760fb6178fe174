//! `kith bench scale`: performance of a cluster, measured with processes on this host.

use std::{
    fs, io,
    path::Path,
    sync::mpsc::{Receiver, SyncSender},
    time::Duration,
};

use anyhow::bail;
use kith_store::{Graph, Verify, WorkFolder};
use serde_json::json;

pub(crate) use super::scale_args::Args;
use super::{
    clusters::Clusters,
    combinations::{Combination, Skipped, combinations},
    measured::Measured,
    results::{CombinationResult, Line, RESULTS, Results},
    table::print_tables,
    watcher::Watcher,
};
use crate::{
    answer::print_json,
    launch::{
        attempt::{Attempt, Outcome},
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
    let clusters =
        Clusters { work, method: args.method, fanouts: &args.fanouts[0], seeds_per_step: args.seeds_per_step };
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
    let measured: Vec<(&Combination, &Measured)> = lines
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

/// Time for ranks to finish a step; their results are discarded.
const GRACE: Duration = Duration::from_secs(5);

/// End of one combination.
enum Ended {
    With(CombinationResult),
    /// Stopped by a signal, with its exit code.
    Stopped(u8),
}

/// Starts the processes of a combination, watches them until it is measured, and stops them.
fn measure(
    asked: &Combination,
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
