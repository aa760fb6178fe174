//! Routes calls. Answers of the sampler bypass the codec: they are computed as frames and sent unchanged.

use std::sync::Arc;

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::Request;
use kith_proto::{Call, PROTOCOL, SERVICE};
use tonic::Status;

use crate::server::{
    access::Peer,
    call::{answer_call, send_status},
    connections::Connection,
    shared::Shared,
    tools::send_answer,
};

/// Answers a request, whatever it asks for.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    peer: Arc<Peer>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    let _open = connection.start_call();
    let path = request.uri().path();
    if let Some(call) = Call::of_path(path) {
        return answer_call(&shared, &connection, &peer, call, request, respond).await;
    }
    let tools = &shared.tools;
    let Some(_open_tool) = connection.start_tool_call() else {
        return send_status(
            &mut respond,
            &Status::resource_exhausted("this connection has other such calls: end them"),
        );
    };
    if path.starts_with("/grpc.health.v1.Health/") {
        // Probes have no token.
        send_answer(&tools.health, request, respond).await;
    } else if path.starts_with("/grpc.reflection.v1.ServerReflection/") {
        match shared.access.check(&peer, request.headers()) {
            Ok(()) => send_answer(&tools.reflection, request, respond).await,
            Err(status) => send_status(&mut respond, &status),
        }
    } else if path.starts_with("/kith.v") && !path.starts_with(&format!("/{SERVICE}/")) {
        let sentence = format!(
            "this server speaks version {PROTOCOL} of the protocol, not that of {path}: use the same version of Kith on both ends"
        );
        send_status(&mut respond, &Status::failed_precondition(sentence));
    } else {
        send_status(&mut respond, &Status::unimplemented("there is no such call"));
    }
}
