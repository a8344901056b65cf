//! Logs over a WebSocket.

use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use longshore_cluster::{LogError, LogOptions, LogStream, PodLogs};
use serde_json::Value;

use super::{
    client::{Got, Socket, refused, upgrade},
    node::cluster,
};
use crate::harness::PODS;

/// A log of two pieces, which is not there for a container that has not run before.
struct Pieces;

#[async_trait]
impl PodLogs for Pieces {
    async fn logs(&self, _: &Value, options: LogOptions) -> Result<LogStream, LogError> {
        if options.previous {
            return Err(LogError::BadRequest("it has not run before".into()));
        }
        Ok(futures::stream::iter([Ok("line\n".into()), Ok("end".into())]).boxed())
    }
}

#[tokio::test]
async fn a_log_arrives_over_a_websocket_as_it_is_or_in_base64() {
    let (served, _) = cluster().await;
    served.cluster.set_pod_logs(Arc::new(Pieces));
    let path = format!("{PODS}/a/log?container=main");
    for (protocol, pieces) in [
        ("binary.k8s.io", [&b"line\n"[..], b"end"]),
        ("base64.binary.k8s.io", [b"bGluZQo=", b"ZW5k"]),
    ] {
        let mut socket = Socket::open(&served, &path, protocol).await;
        assert_eq!(socket.protocol, protocol);
        assert_eq!(socket.message().await, b"", "tells that the log is there");
        for piece in pieces {
            assert_eq!(socket.message().await, piece, "{protocol}");
        }
        assert_eq!(socket.next().await, Got::Close(1000), "{protocol}");
    }
    let line = format!("GET {path}");
    let (code, _) = refused(&served, &line, &upgrade("channel.k8s.io")).await;
    assert_eq!(code, 400, "a protocol that no log has");
    let (code, body) = refused(
        &served,
        &format!("{line}&previous=true"),
        &upgrade("binary.k8s.io"),
    )
    .await;
    assert!(code == 400 && body.contains("has not run"), "{code} {body}");
}
