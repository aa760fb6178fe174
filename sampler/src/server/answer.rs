//! Turns requests into answers, in chunks that are computed one at a time.

use kith_proto::{Call, Message};
use tonic::Status;

use crate::server::{
    answer::{edges::Edges, hop::HopDraws, info::Facts, rows::FeatureRows, seeds::LabeledNodes},
    request::{FetchFeaturesRequest, HasEdgesRequest, InfoRequest, SampleHopRequest, SeedsRequest},
    served::Served,
};

mod chunk;
mod edges;
mod hop;
mod info;
mod rows;
mod seeds;

pub(crate) use crate::server::answer::chunk::{Answer, Chunk};

/// Reads a request and starts its answer; `n_streamed` bytes of ids follow the message.
pub(crate) fn start(
    call: Call,
    message: Message,
    n_streamed: usize,
    served: &Served,
) -> Result<Box<dyn Answer>, Status> {
    let expected = &served.expected;
    Ok(match call {
        Call::Info => Box::new(Facts::new(InfoRequest::read(message, expected)?)),
        Call::Seeds => Box::new(LabeledNodes::new(SeedsRequest::read(message, expected)?)),
        Call::SampleHop => Box::new(HopDraws::new(SampleHopRequest::read(message, n_streamed, expected)?)),
        Call::FetchFeatures => Box::new(FeatureRows::new(FetchFeaturesRequest::read(message, n_streamed, expected)?)),
        Call::HasEdges => Box::new(Edges::new(HasEdgesRequest::read(message, expected)?)),
    })
}

#[cfg(target_endian = "big")]
compile_error!("packed numbers are little-endian");
