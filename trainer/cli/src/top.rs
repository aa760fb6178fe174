//! `kith top`: ranks, servers and launchers of a running job at a glance, from their metrics.

mod launcher;
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

use self::{launcher::LauncherRow, rank::RankRow, server::ServerRow};
use crate::{
    answer::{print, print_json, table_of},
    scrape::{Scraped, scrape},
};

/// Show the ranks, servers and launchers of a running job: progress, phases, seed nodes per second, calls, restarts, and which
/// rank waits for which.
#[derive(clap::Args)]
#[command(after_help = "\
Two ranks and a server:  kith top host-a:9100 host-b:9100 host-c:7001
For a script:            kith top host-a:9100 --once --json")]
pub struct Args {
    /// Metrics addresses of ranks, servers (--metrics) and launchers (--launcher-metrics).
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
const LIMIT: Duration = Duration::from_secs(1);

/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The state of a job.
#[derive(Debug, Default, Serialize)]
struct Glance {
    ranks: Vec<RankRow>,
    servers: Vec<ServerRow>,
    launchers: Vec<LauncherRow>,
    /// One sentence for each rank that waits or is silent.
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
    let mut begun = Instant::now();
    let mut before = scrape_all(&args.places);
    loop {
        thread::sleep((begun + every).saturating_duration_since(Instant::now()));
        begun = Instant::now();
        let now = scrape_all(&args.places);
        let glance = Glance::new(&args.places, &before, &now);
        if args.once && glance.is_empty() {
            anyhow::bail!(
                "no metrics: give the --metrics addresses of running ranks and servers, or --launcher-metrics of launchers\n{}",
                glance.lines().trim_end()
            );
        }
        if args.json {
            print_json(&glance)?;
        } else {
            print(&format!("{}{}", if clears { CLEAR } else { "" }, glance.text()))?;
        }
        if args.once {
            return Ok(());
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
        let mut glance = Glance::default();
        for (place, (before, now)) in places.iter().zip(before.iter().zip(now)) {
            let before = before.as_ref().ok();
            match now {
                Ok(now) if now.sum("kith_sampler_connections", &[]).is_some() => {
                    glance.servers.push(ServerRow::new(place, before, now));
                }
                Ok(now) if now.sum("kith_step", &[]).is_some() => {
                    glance.ranks.push(RankRow::new(place, before, now));
                }
                Ok(now) if now.sum("kith_launch_restarts_total", &[]).is_some() => {
                    glance.launchers.push(LauncherRow::new(place, now));
                }
                Ok(_) => glance.silent.push(Silent {
                    place: place.clone(),
                    problem: "metrics of another program: expected a rank, a server or a launcher".to_owned(),
                }),
                Err(problem) => glance.silent.push(Silent { place: place.clone(), problem: problem.clone() }),
            }
        }
        glance.ranks.sort_by_key(|rank| rank.rank);
        let silent: Vec<&str> = glance.silent.iter().map(|silent| silent.place.as_str()).collect();
        glance.waits = waits::sentences(&glance.ranks, &glance.servers, &silent);
        glance
    }

    /// True if no process was read.
    fn is_empty(&self) -> bool {
        self.ranks.is_empty() && self.servers.is_empty() && self.launchers.is_empty()
    }

    /// Sentences about ranks that wait, and places without metrics.
    fn lines(&self) -> String {
        let silent = self.silent.iter().map(|Silent { place, problem }| format!("{place}: no metrics: {problem}\n"));
        self.waits.iter().map(|wait| format!("{wait}\n")).chain(silent).collect()
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
        if !self.launchers.is_empty() {
            let rows: Vec<Vec<String>> = self.launchers.iter().map(LauncherRow::cells).collect();
            parts.push(table_of(&[&[LauncherRow::heading()], &*rows].concat()));
        }
        parts.extend(Some(self.lines()).filter(|lines| !lines.is_empty()));
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
            "kith_step{{{own}}} {steps}\nkith_epoch{{{own}}} 1\nkith_seeds_total{{{own}}} {}\n\
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
        let expected = "rank 0 repeats calls to sampling servers: 7 since the last reading";
        assert_eq!(glance(3, 10).waits, [expected]);
        assert_eq!(glance(3, 3).waits, [""; 0]);
        assert_eq!(glance(10, 3).waits, [""; 0], "the process has started again");
    }

    #[test]
    fn a_launcher_has_its_row() {
        let page = "kith_launch_processes{kind=\"rank\"} 2\nkith_launch_processes{kind=\"server\"} 1\n\
                    kith_launch_ends_total{kind=\"rank\",code=\"0\"} 2\n\
                    kith_launch_ends_total{kind=\"rank\",code=\"signal 9\"} 3\nkith_launch_restarts_total 4\n\
                    kith_launch_restarts_without_progress 1\nkith_launch_max_restarts_without_progress 3\n";
        let page = [at(page, Instant::now())];
        let glance = Glance::new(&["l:1".to_owned()], &page, &page);
        let text = glance.text();
        let cells: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(cells, ["l:1", "2", "1", "3", "4", "1", "of", "3"], "{text}");
    }

    #[test]
    fn a_silent_rank_is_named_by_those_that_hear_nothing_of_it() {
        let begun = Instant::now();
        let page = |age: f64| {
            let page = rank(0, 10, [0.0, 0.0, 1.0], "exchange");
            format!(
                "{page}kith_heartbeat_age_seconds{{rank=\"0\",peer=\"1\"}} {age}\nkith_heartbeat_age_seconds{{rank=\"0\",peer=\"2\"}} 0.5\n"
            )
        };
        let glance = |age: f64| Glance::new(&["x:1".to_owned()], &[at(&page(0.0), begun)], &[at(&page(age), begun)]);
        let expected = "rank 0 has heard nothing of rank 1 for 6.5 s: it is paused, or its host is away";
        assert_eq!(glance(6.5).waits, [expected]);
        assert_eq!(glance(1.5).waits, [""; 0]);
    }

    #[test]
    fn a_busy_server_is_named_and_an_idle_one_is_not() {
        let begun = Instant::now();
        let later = begun + Duration::from_secs(1);
        let places = ["r:1", "s:1", "gone:1"].map(str::to_owned);
        let server = |n: u32, bound: &str| {
            format!(
                "kith_sampler_connections 2\nkith_sampler_queue_seconds_bucket{{le=\"{bound}\"}} {n}\n\
                 kith_sampler_queue_seconds_bucket{{le=\"+Inf\"}} {n}\n"
            )
        };
        let waits = |bound: &str, n_places: usize| {
            let before = [
                at(&rank(0, 10, [1.0; 3], "sample"), begun),
                at(&server(0, bound), begun),
                Err("connection refused".to_owned()),
            ];
            let now = [
                at(&rank(0, 10, [3.0, 1.0, 1.0], "sample"), later),
                at(&server(9, bound), later),
                Err("connection refused".to_owned()),
            ];
            Glance::new(&places[..n_places], &before[..n_places], &now[..n_places]).waits.join(" ")
        };
        assert!(waits("0.5", 2).ends_with("the busiest server is s:1, where work waits up to 500 ms"));
        assert!(
            waits("+Inf", 2).ends_with("the busiest server is s:1, where work waits up to long"),
            "{}",
            waits("+Inf", 2)
        );
        assert!(waits("0.5", 3).contains("the busiest server is s:1"), "a busy server is named first");
        assert!(waits("0.0001", 2).contains("no work waits for a thread"), "{}", waits("0.0001", 2));
        assert!(waits("0.0001", 3).contains("there are no metrics of gone:1"), "{}", waits("0.0001", 3));
    }

    #[test]
    fn other_programs_are_named() {
        let page = [at("go_goroutines 7\n", Instant::now())];
        let glance = Glance::new(&["x:1".to_owned()], &page, &page);
        assert!(glance.text().contains("x:1: no metrics: metrics of another program: expected"), "{}", glance.text());
        assert!(glance.is_empty());
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
