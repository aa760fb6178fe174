//! Lines of a program on stderr: sentences for people ([`say`]), and a log with levels, written with `tracing`'s macros.
//!
//! `KITH_LOG` selects the lines of the log: a level, and levels of single targets, as in `warn,kith_client=debug`. Lines of
//! one kind are limited: a flood of them cannot fill a disk or slow the program down.

mod error;
mod format;
mod kinds;
mod limited;
mod lines;
mod spans;

pub use crate::{
    error::LogError,
    format::{FORMAT_VARIABLE, Format},
    lines::{LogOptions, VARIABLE, finish, format, say, start},
    spans::{OTLP_VARIABLE, SPAN_HEADER, collector, follow, span_header},
};
