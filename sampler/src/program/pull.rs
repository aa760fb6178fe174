//! `kith-sampler pull`: the shards that a server is about to serve, out of object storage.

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

/// Pull shards of a cluster out of object storage, going on where a pull was broken off
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// Where `kith data push` put the cluster: s3://BUCKET/PATH, file:///PATH or https://HOST/PATH
    url: String,
    /// The folder to fill
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Which shards: numbers with commas between them, or all
    #[arg(long, default_value = "all", value_name = "LIST")]
    shards: Wanted,
    /// Instead of --shards, the number of the server that will serve them, as its own --index
    #[arg(long, value_name = "N", conflicts_with = "shards")]
    index: Option<u32>,
}

/// How often a log hears of it.
const LINE_EVERY: Duration = Duration::from_secs(10);

#[allow(clippy::print_stdout, clippy::print_stderr)] // Lines for whoever reads the log of an init container.
pub(crate) fn pull(args: &PullArgs) -> Result<(), BucketError> {
    let wanted = args.index.map_or_else(|| args.shards.clone(), Wanted::ShardByIndex);
    let pull = Pull::new(&Place::parse(&args.url)?, &args.dir, &wanted)?;
    let (total, n_done, last_line) = (pull.n_bytes(), AtomicU64::new(0), Mutex::new(Instant::now()));
    let pulled = pull.run(&|n| {
        let n_done = n_done.fetch_add(n, Relaxed) + n;
        let Ok(mut last_line) = last_line.try_lock() else { return };
        if last_line.elapsed() > LINE_EVERY {
            *last_line = Instant::now();
            eprintln!("pulling: {} of {} MiB", n_done >> 20, total >> 20);
        }
    })?;
    println!("{}: {} bytes, {} received", args.dir.display(), pulled.n_bytes, pulled.received_bytes);
    Ok(())
}
