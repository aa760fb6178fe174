//! One end-to-end test binary: the built programs as processes, and the rules the tree must obey.
#![allow(missing_docs)]

mod bad_input;
mod batches;
mod bench_scale;
mod cluster;
mod compose;
mod docs;
mod hosts;
mod images;
mod kith;
mod kubernetes;
mod lab;
mod launch;
mod memory;
mod models;
mod object_storage;
mod parity;
mod partition;
mod published_statistics;
mod ranks;
mod report;
mod servers;
mod several_hosts;
mod slurm;
mod tidy;
mod tune;
mod whole_path;
mod worlds;
