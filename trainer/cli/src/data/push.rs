//! `kith data push`.

use std::path::PathBuf;

use kith_bucket::{Place, Push};
use kith_partition::progress::{Piece, Unit};
use serde_json::json;

use crate::{
    answer::{print, print_json},
    progress::{Shown, bytes},
};

/// Put a folder (a store, a cluster, a run) into object storage, going on where a push was broken off.
#[derive(clap::Args)]
#[command(after_help = "\
To S3 or what speaks like it:  kith data push clusters/mine s3://bucket/clusters/mine
To another folder:             kith data push clusters/mine file:///mnt/shared/clusters/mine

Credentials and the server come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL.")]
pub(crate) struct Args {
    /// The folder.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Where to put it.
    url: String,
    /// Remove what was pushed there before, if it is something else.
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
