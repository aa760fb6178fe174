//! Wire protocol between sampling servers and their clients. `sampler.proto` is the contract and defines every call.
//! This crate has its messages, and the tools to send large answers without copies: gRPC frames and byte fields
//! ([`start_frame`], [`Messages`], [`Fields`]) and packed numbers ([`pack_ids`], [`unpack`] and similar functions).
//!
//! Depends neither on graphs nor on the server or client.

mod fields;
mod head;
mod messages;
mod packed;
mod sentence;

pub use crate::{
    fields::{FieldError, Fields},
    head::{FRAME_HEAD_BYTES, frame_chunk, frame_fields, frame_message, put_checksum, start_frame},
    messages::{ChecksumError, Message, MessageError, Messages},
    packed::{IdWidth, PackedError, pack_bits, pack_ids, unpack, unpack_bits, unpack_ids},
    sentence::sentence,
};

/// Messages of `sampler.proto`, and a stock client for tools and tests; `kith-client` speaks the same wire.
#[allow(missing_docs, unreachable_pub)]
pub mod v2 {
    tonic::include_proto!("kith.v2");
}

/// The description of `sampler.proto`, for reflection.
pub const FILE_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sampler.bin"));

/// The version of the contract.
pub const PROTOCOL: u32 = 2;

/// The header in which both ends state it.
pub const PROTOCOL_HEADER: &str = "kith-protocol";

/// The header in which a server states that every chunk of its answer has a checksum: `crc32`.
pub const CHECKSUM_HEADER: &str = "kith-checksum";

/// The header in which a client names itself: up to [`MAX_SESSION_BYTES`] letters, digits and hyphens. Servers put it in lines of
/// their logs.
pub const SESSION_HEADER: &str = "kith-session";

/// The longest name of a client.
pub const MAX_SESSION_BYTES: usize = 64;

/// The service's name, as in paths and health checks.
pub const SERVICE: &str = "kith.v2.Sampler";

/// The calls of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Facts about the partitioned graph.
    Info,
    /// Labeled nodes of a part of a split.
    Seeds,
    /// The neighbors that a frontier draws.
    SampleHop,
    /// Features.
    FetchFeatures,
    /// Existence of edges.
    HasEdges,
}

impl Call {
    /// All of them, in the order of the contract.
    pub const ALL: [Call; 5] = [Call::Info, Call::Seeds, Call::SampleHop, Call::FetchFeatures, Call::HasEdges];

    /// Its name in the contract.
    pub fn name(self) -> &'static str {
        match self {
            Call::Info => "Info",
            Call::Seeds => "Seeds",
            Call::SampleHop => "SampleHop",
            Call::FetchFeatures => "FetchFeatures",
            Call::HasEdges => "HasEdges",
        }
    }

    /// Its path in a request.
    pub fn path(self) -> &'static str {
        match self {
            Call::Info => "/kith.v2.Sampler/Info",
            Call::Seeds => "/kith.v2.Sampler/Seeds",
            Call::SampleHop => "/kith.v2.Sampler/SampleHop",
            Call::FetchFeatures => "/kith.v2.Sampler/FetchFeatures",
            Call::HasEdges => "/kith.v2.Sampler/HasEdges",
        }
    }

    /// The call that a path names.
    pub fn of_path(path: &str) -> Option<Call> {
        Call::ALL.into_iter().find(|call| call.path() == path)
    }
}
