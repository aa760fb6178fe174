//! A request of arbitrary bytes is valid or refused. The first byte selects the call.

use bytes::Bytes;
use kith_proto::{IdWidth, Message};
use kith_sampler::server::{
    Expected, FetchFeaturesRequest, HasEdgesRequest, InfoRequest, Limits, SampleHopRequest, SeedsRequest,
};

pub(crate) fn run(bytes: &[u8]) {
    let [which, n_bytes, bytes @ ..] = bytes else { return };
    let mut message = Message::default();
    bytes.chunks(usize::from(*n_bytes).max(1)).for_each(|piece| message.push(Bytes::copy_from_slice(piece)));
    let expected = Expected {
        graph: String::new(), // Matches a request without a digest.
        ids: if which & 8 == 0 { IdWidth::Narrow } else { IdWidth::Wide },
        limits: Limits { max_frontier: 64, max_fanout: 100, ..Limits::default() },
    };
    match which % 5 {
        0 => drop(InfoRequest::read(message, &expected)),
        1 => drop(SeedsRequest::read(message, &expected)),
        2 => {
            let n_streamed = usize::from(*n_bytes);
            if let Ok(request) = SampleHopRequest::read(message, n_streamed, &expected) {
                assert!(request.frontier.len() <= 64);
            }
        }
        3 => {
            if let Ok(request) = FetchFeaturesRequest::read(message, 0, &expected) {
                assert!(request.nodes.len() <= 64);
            }
        }
        _ => {
            if let Ok(request) = HasEdgesRequest::read(message, &expected) {
                assert!(request.sources.len() <= 64 && request.counts.len() == 4 * request.destinations.len());
            }
        }
    }
}
