//! A connector: each job has succeeded at its first status request, and its outputs name the connector as their maker.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use longshore_proto::{
    flyteidl2::connector::{
        CreateTaskRequest, CreateTaskResponse, DeleteTaskResponse, GetTaskResponse,
        ListConnectorsResponse,
    },
    from_json,
};
use prost::Message;
use serde_json::json;

use super::{ServicesState, outputs};
use crate::foreign_server::{Answer, Received};

/// A flag whether the message is compressed, and its length.
const FRAME_HEAD: usize = 5;
/// gRPC's number of a method that is not there.
const UNIMPLEMENTED: u32 = 12;

impl ServicesState {
    pub(super) fn ask_connector(&mut self, received: &Received) -> Answer {
        let method = received.path.rsplit('/').next().unwrap_or_default();
        *self.n_calls.entry(method.to_owned()).or_default() += 1;
        match method {
            "ListConnectors" => message(&ListConnectorsResponse::default()),
            "CreateTask" => {
                self.jobs.insert(output_prefix(received));
                created(received)
            }
            "GetTask" => succeeded().map_or_else(|| status(UNIMPLEMENTED), |told| message(&told)),
            "DeleteTask" => message(&DeleteTaskResponse::default()),
            _ => status(UNIMPLEMENTED),
        }
    }
}

/// The directory of the outputs of the job that a request begins; empty where it is no such request.
pub fn output_prefix(received: &Received) -> String {
    let body = received.body.get(FRAME_HEAD..).unwrap_or_default();
    let request = CreateTaskRequest::decode(body).unwrap_or_default();
    request.output_prefix
}

/// The answer that the job of a request has begun.
pub fn created(received: &Received) -> Answer {
    message(&CreateTaskResponse {
        resource_meta: output_prefix(received).into_bytes(),
    })
}

fn succeeded() -> Option<GetTaskResponse> {
    let maker = json!({"scalar": {"primitive": {"stringValue": "the connector"}}});
    let outputs = json!({"literals": [{"name": outputs::OUTPUT, "value": maker}]});
    let resource = json!({"phase": "SUCCEEDED", "outputs": outputs});
    from_json(&json!({"resource": resource})).ok()
}

fn message(message: &impl Message) -> Answer {
    let length = u32::try_from(message.encoded_len()).unwrap_or(u32::MAX);
    let mut framed = BytesMut::with_capacity(FRAME_HEAD + message.encoded_len());
    framed.put_u8(0);
    framed.put_u32(length);
    framed.extend_from_slice(&message.encode_to_vec());
    answer(framed.freeze(), 0)
}

fn status(number: u32) -> Answer {
    answer(Bytes::new(), number)
}

fn answer(body: Bytes, status: u32) -> Answer {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.into());
    Answer {
        trailers: Some(trailers),
        ..Answer::new(StatusCode::OK, "application/grpc", body)
    }
}
