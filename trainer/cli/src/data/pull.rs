//! `kith data pull`.

use std::path::PathBuf;

use kith_bucket::{Place, Pull, Wanted};
use kith_partition::progress::{Piece, Unit};
use kith_sampler::program::parse_wanted;
use serde_json::json;

use crate::{
    answer::{print, print_json},
    progress::{Shown, bytes},
};

/// Download a folder from object storage and verify every byte. An interrupted pull resumes.
#[derive(clap::Args)]
#[command(after_help = "\
A store:             kith data pull s3://bucket/stores/mine stores/mine
Two shards:          kith data pull s3://bucket/graphs/mine.shards graphs/mine.shards --shards 0,2
From a web server:   kith data pull https://host/stores/mine stores/mine

Credentials and endpoint are environment variables: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and
AWS_ENDPOINT_URL.")]
pub(crate) struct Args {
    /// URL that `kith data push` wrote to: s3://BUCKET/PATH, file:///PATH or https://HOST/PATH.
    url: String,
    /// The folder to write.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Shards of a partitioned graph: comma-separated numbers and ranges, as in 0,2-3, or all (default: all).
    #[arg(long, default_value = "all", hide_default_value = true, value_name = "LIST", value_parser = parse_wanted)]
    shards: Wanted,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let place = Place::parse(&args.url)?;
    let pull = Pull::new(&place, &args.dir, &args.shards)?;
    let progress = Shown::new();
    let pulled = {
        let piece = Piece::begin(&progress, "pulling", Some(pull.n_bytes()), Unit::Bytes);
        pull.run(&|n| piece.advance(n))?
    };
    if args.json {
        let (n_bytes, received_bytes) = (pulled.n_bytes, pulled.received_bytes);
        return print_json(&json!({ "dir": args.dir, "bytes": n_bytes, "received_bytes": received_bytes }));
    }
    let (whole, received) = (bytes(pulled.n_bytes), bytes(pulled.received_bytes));
    print(&format!("{}: {whole}, {received} of them received now\n", args.dir.display()))
}
