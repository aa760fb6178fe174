//! `kith-sampler pull`: pulls the shards that a server will serve from object storage.

use std::{
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use clap::Args;
use kith_bucket::{BucketError, Place, Pull, Wanted};
use kith_log::say;
use kith_store::parse_shard_list;

/// Download shards of a partitioned graph from object storage. An interrupted pull resumes.
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// URL that `kith data push` wrote to: s3://BUCKET/PATH, file:///PATH or https://HOST/PATH.
    url: String,
    /// The folder to write.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Shards to download: comma-separated numbers and ranges, as in 0,2-3, or all (default: all).
    #[arg(long, default_value = "all", hide_default_value = true, value_name = "LIST", value_parser = parse_wanted)]
    shards: Wanted,
    /// Download the shard of the server with --index N, instead of --shards.
    #[arg(long, value_name = "N", conflicts_with = "shards")]
    index: Option<u32>,
}

/// Interval between lines of progress in the log.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shards to pull, as typed: a list, or `all`.
pub fn parse_wanted(text: &str) -> Result<Wanted, String> {
    if text == "all" { Ok(Wanted::All) } else { parse_shard_list(text).map(Wanted::Shards) }
}

#[allow(clippy::print_stdout)] // The answer.
pub(crate) fn pull(args: &PullArgs) -> Result<(), BucketError> {
    let wanted = args.index.map_or_else(|| args.shards.clone(), Wanted::ShardByIndex);
    let pull = Pull::new(&Place::parse(&args.url)?, &args.dir, &wanted)?;
    let (total, n_done, last_line) = (pull.n_bytes(), AtomicU64::new(0), Mutex::new(Instant::now()));
    let pulled = pull.run(&|n| {
        let n_done = n_done.fetch_add(n, Relaxed) + n;
        let Ok(mut last_line) = last_line.try_lock() else { return };
        if last_line.elapsed() > LINE_EVERY {
            *last_line = Instant::now();
            say(&format!("pulling: {} of {} MiB", n_done >> 20, total >> 20));
        }
    })?;
    println!("{}: {} bytes, {} received", args.dir.display(), pulled.n_bytes, pulled.received_bytes);
    Ok(())
}
