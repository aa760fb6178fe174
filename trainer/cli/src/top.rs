//! `kith top`: ranks and servers of a running job at a glance, from their metrics.

mod rank;
mod server;
mod shown;
mod waits;

use std::{
    io::{self, IsTerminal},
    thread,
    time::{Duration, Instant},
};

use kith_sampler::server::seconds;
use serde::Serialize;

use self::{rank::RankRow, server::ServerRow};
use crate::{
    answer::{print, print_json, table_of},
    scrape::{Scraped, scrape},
};

/// Show the ranks and servers of a running job: progress, phases, seed nodes per second, calls, and which rank waits for which.
#[derive(clap::Args)]
#[command(after_help = "\
Two ranks and a server:  kith top host-a:9100 host-b:9100 host-c:7001
For a script:            kith top host-a:9100 --once --json")]
pub struct Args {
    /// Metrics addresses of ranks and servers, as given to their --metrics.
    #[arg(value_name = "HOST:PORT", required = true)]
    places: Vec<String>,
    /// Print one table and exit, after two readings.
    #[arg(long)]
    once: bool,
    /// Time between readings (default: 1).
    #[arg(long, value_name = "SECONDS", default_value_t = 1, hide_default_value = true, value_parser = seconds(1))]
    every: u64,
    /// Print one JSON object per reading.
    #[arg(long)]
    json: bool,
}

/// The longest wait for the metrics of a process.
const LIMIT: Duration = Duration::from_secs(2);

/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The state of a job.
#[derive(Debug, Serialize)]
struct Glance {
    ranks: Vec<RankRow>,
    servers: Vec<ServerRow>,
    /// One sentence for each rank that waits.
    waits: Vec<String>,
    silent: Vec<Silent>,
}

/// A process whose metrics cannot be read.
#[derive(Debug, Serialize)]
struct Silent {
    place: String,
    problem: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let every = Duration::from_secs(args.every);
    let clears = io::stdout().is_terminal() && !args.once && !args.json;
    let mut before = scrape_all(&args.places);
    loop {
        let next = Instant::now() + every;
        thread::sleep(next.saturating_duration_since(Instant::now()));
        let now = scrape_all(&args.places);
        let glance = Glance::new(&args.places, &before, &now);
        if args.json {
            print_json(&glance)?;
        } else {
            print(&format!("{}{}", if clears { CLEAR } else { "" }, glance.text()))?;
        }
        if args.once {
            let Some(Silent { place, problem }) = glance.silent.first() else { return Ok(()) };
            anyhow::bail!("{place}: no metrics: {problem}: give the --metrics address of a rank or a server");
        }
        before = now;
    }
}

/// Reads all places side by side.
fn scrape_all(places: &[String]) -> Vec<Result<Scraped, String>> {
    thread::scope(|scope| {
        let reading: Vec<_> = places.iter().map(|place| scope.spawn(|| scrape(place, LIMIT))).collect();
        let read = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        reading.into_iter().map(read).collect()
    })
}

impl Glance {
    fn new(places: &[String], before: &[Result<Scraped, String>], now: &[Result<Scraped, String>]) -> Glance {
        let mut glance = Glance { ranks: Vec::new(), servers: Vec::new(), waits: Vec::new(), silent: Vec::new() };
        for (place, (before, now)) in places.iter().zip(before.iter().zip(now)) {
            let before = before.as_ref().ok();
            match now {
                Ok(now) if now.sum("kith_sampler_connections", &[]).is_some() => {
                    glance.servers.push(ServerRow::new(place, before, now));
                }
                Ok(now) if now.sum("kith_steps_total", &[]).is_some() => {
                    glance.ranks.push(RankRow::new(place, before, now));
                }
                Ok(_) => glance
                    .silent
                    .push(Silent { place: place.clone(), problem: "these are metrics of another program".to_owned() }),
                Err(problem) => glance.silent.push(Silent { place: place.clone(), problem: problem.clone() }),
            }
        }
        glance.ranks.sort_by_key(|rank| rank.rank);
        glance.waits = waits::sentences(&glance.ranks, &glance.servers);
        glance
    }

    fn text(&self) -> String {
        let mut parts = Vec::new();
        if !self.ranks.is_empty() {
            parts.push(table_of(
                &[&[RankRow::heading()], &*self.ranks.iter().map(RankRow::cells).collect::<Vec<_>>()].concat(),
            ));
        }
        if !self.servers.is_empty() {
            let rows: Vec<Vec<String>> = self.servers.iter().map(ServerRow::cells).collect();
            parts.push(table_of(&[&[ServerRow::heading()], &*rows].concat()));
        }
        let silent = self.silent.iter().map(|Silent { place, problem }| format!("{place}: no metrics: {problem}\n"));
        let lines: String = self.waits.iter().map(|wait| format!("{wait}\n")).chain(silent).collect();
        parts.extend(Some(lines).filter(|lines| !lines.is_empty()));
        parts.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(page: &str, when: Instant) -> Result<Scraped, String> {
        let mut page = Scraped::parse(page).unwrap();
        page.when = when;
        Ok(page)
    }

    fn rank(rank: usize, steps: u32, seconds: [f64; 3], phase: &str) -> String {
        let [sample, compute, exchange] = seconds;
        let own = format!("rank=\"{rank}\"");
        format!(
            "kith_steps_total{{{own}}} {steps}\nkith_epochs_total{{{own}}} 1\nkith_seeds_total{{{own}}} {}\n\
             kith_loss{{{own}}} 0.5\nkith_seconds_total{{{own},phase=\"sample\"}} {sample}\n\
             kith_seconds_total{{{own},phase=\"compute\"}} {compute}\n\
             kith_seconds_total{{{own},phase=\"exchange\"}} {exchange}\nkith_phase{{{own},phase=\"{phase}\"}} 1\n\
             kith_phase_age_seconds{{{own}}} 0.25\nkith_rows_total{{{own},from=\"cached\"}} {steps}\n\
             kith_rows_total{{{own},from=\"remote\"}} {steps}\nkith_remote_retries_total{{{own},call=\"Info\"}} 3\n",
            steps * 100
        )
    }

    #[test]
    fn a_glance_has_rates_shares_and_who_waits() {
        let begun = Instant::now();
        let later = begun + Duration::from_secs(2);
        let places = ["b:1", "a:1", "s:1", "gone:1"].map(str::to_owned);
        let server = |calls: u32| {
            format!(
                "kith_sampler_connections 2\nkith_sampler_requests_total{{call=\"Info\",code=\"OK\"}} {calls}\n\
                 kith_sampler_sent_bytes_total{{call=\"Info\"}} {}\nkith_sampler_call_bytes 1048576\n\
                 process_open_fds 12\nkith_sampler_damaged_blocks 1\n\
                 kith_sampler_refused_connections_total{{reason=\"tls\"}} 4\n",
                calls << 20
            )
        };
        let gone = || Err("connection refused".to_owned());
        let before = [
            at(&rank(1, 10, [1.0, 5.0, 1.0], "compute"), begun),
            at(&rank(0, 10, [1.0, 5.0, 1.0], "compute"), begun),
            at(&server(100), begun),
            gone(),
        ];
        let now = [
            at(&rank(1, 30, [1.0, 6.9, 1.1], "compute"), later),
            at(&rank(0, 30, [1.2, 5.8, 2.0], "exchange"), later),
            at(&server(300), later),
            gone(),
        ];
        let glance = Glance::new(&places, &before, &now);
        assert_eq!(glance.ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0, 1]);
        let first = &glance.ranks[0];
        assert_eq!((first.step, first.seeds_per_second, first.retries), (30, 1000.0, 3));
        assert_eq!(first.cached, Some(0.5));
        assert!((first.shares["exchange"] - 0.5).abs() < 1e-9, "{:?}", first.shares);
        assert_eq!((first.phase.as_deref(), first.phase_seconds), (Some("exchange"), Some(0.25)));
        let [server] = &glance.servers[..] else { panic!("{glance:?}") };
        assert_eq!((server.calls_per_second, server.sent_bytes_per_second), (100.0, 100.0 * 1048576.0));
        assert_eq!((server.refused, server.damaged, server.open_files), (4, 1, Some(12)));
        assert_eq!(
            glance.waits,
            ["rank 0 waits for rank 1: exchange takes 50% of its time; rank 1 is in compute for 95%"]
        );
        let text = glance.text();
        for part in
            ["rank", "1,000", "exchange 250 ms", "gone:1: no metrics: connection refused", "100.0 MiB", "waits for"]
        {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn a_rank_whose_calls_fail_waits_for_servers() {
        let begun = Instant::now();
        let page = |retries: u32| {
            rank(0, 10, [1.0; 3], "evaluate").replace("call=\"Info\"} 3", &format!("call=\"Info\"}} {retries}"))
        };
        let glance = |before: u32, now: u32| {
            let later = begun + Duration::from_secs(1);
            Glance::new(&["x:1".to_owned()], &[at(&page(before), begun)], &[at(&page(now), later)])
        };
        let expected = "rank 0 waits for sampling servers: it tried calls again 7 times since the last reading";
        assert_eq!(glance(3, 10).waits, [expected]);
        assert_eq!(glance(3, 3).waits, [""; 0]);
        assert_eq!(glance(10, 3).waits, [""; 0], "the process has started again");
    }

    #[test]
    fn other_programs_are_named() {
        let page = [at("go_goroutines 7\n", Instant::now())];
        let glance = Glance::new(&["x:1".to_owned()], &page, &page);
        assert!(glance.text().contains("x:1: no metrics: these are metrics of another program"), "{}", glance.text());
    }

    #[test]
    fn a_process_that_restarted_has_no_negative_rate() {
        let begun = Instant::now();
        let before = at(&rank(0, 500, [9.0; 3], "compute"), begun);
        let now = at(&rank(0, 10, [0.5; 3], "compute"), begun + Duration::from_secs(1));
        let glance = Glance::new(&["x:1".to_owned()], &[before], &[now]);
        let row = &glance.ranks[0];
        assert_eq!(row.seeds_per_second, 0.0);
        assert!(row.shares.values().all(|share| (0.0..=1.0).contains(share)), "{:?}", row.shares);
    }
}
