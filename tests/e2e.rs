//! End-to-end tests: the built programs as processes, and rules of the source tree. Does not link libtorch.
#![allow(missing_docs)]

mod bad_input;
mod batches;
mod bench_scale;
mod book;
mod chaos;
mod cluster;
mod compose;
mod config;
mod damage;
mod devices;
mod docs;
mod errors;
mod foreign;
mod golden;
mod hosts;
mod images;
mod kith;
mod kubernetes;
mod lab;
mod launch;
mod links;
mod memory;
mod object_storage;
mod partition;
mod published_statistics;
mod ranks;
mod report;
mod servers;
mod several_hosts;
mod signals;
mod slurm;
mod tidy;
mod tune;
mod whole_path;
mod worlds;
