//! `kith data push`.

use std::path::PathBuf;

use kith_bucket::{Place, Push};
use kith_partition::progress::{Piece, Unit};
use serde_json::json;

use crate::{
    answer::{print, print_json},
    progress::{Shown, bytes},
};

/// Upload a folder (a store, a partitioned graph or a run) to object storage. An interrupted push resumes.
#[derive(clap::Args)]
#[command(after_help = "\
To S3-compatible storage:  kith data push graphs/mine.shards s3://bucket/graphs/mine.shards
To another folder:         kith data push graphs/mine.shards file:///mnt/shared/graphs/mine.shards

Credentials and endpoint are environment variables: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and
AWS_ENDPOINT_URL.")]
pub(crate) struct Args {
    /// The folder to upload.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Destination: s3://BUCKET/PATH or file:///PATH.
    url: String,
    /// Replace a different folder that was pushed to this URL before.
    #[arg(long)]
    replace: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let place = Place::parse(&args.url)?;
    let progress = Shown::new();
    let push = {
        let piece = Piece::begin(&progress, "counting checksums", Some(Push::n_bytes_in(&args.dir)?), Unit::Bytes);
        Push::new(&args.dir, &place, args.replace, &|n| piece.advance(n))?
    };
    let pushed = {
        let piece = Piece::begin(&progress, "pushing", Some(push.n_bytes()), Unit::Bytes);
        push.run(&|n| piece.advance(n))?
    };
    if args.json {
        let (files, n_bytes, sent_bytes) = (pushed.n_files, pushed.n_bytes, pushed.sent_bytes);
        return print_json(&json!({ "url": args.url, "files": files, "bytes": n_bytes, "sent_bytes": sent_bytes }));
    }
    let (whole, sent) = (bytes(pushed.n_bytes), bytes(pushed.sent_bytes));
    print(&format!("{place}: {} files, {whole}, {sent} of them sent now\n", pushed.n_files))
}
