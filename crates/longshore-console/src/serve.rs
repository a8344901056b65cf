//! The router behind a socket: bounded connections, bounded headers, a clean end.

use std::{io, time::Duration};

use axum::Router;
use http::Request;
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::util::MapRequest;

use crate::connections::Connections;

/// A request's head has to be there within this time, or the connection is closed: half-open ones go away.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// No request's head is larger.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// How long answers under way have to finish once the service stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// After a failed accept (no file descriptors left, as a rule).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stopping` is cancelled and the answers under way are finished, or their time is up.
///
/// *Cancellation*: dropping it ends all connections.
pub async fn serve(listener: TcpListener, router: Router, stopping: CancellationToken) {
    let open = Connections::default();
    let graceful = GracefulShutdown::new();
    let connections = TaskTracker::new();
    let killed = CancellationToken::new();
    let _kill_when_dropped = killed.clone().drop_guard();
    loop {
        let accepted = tokio::select! {
            () = stopping.cancelled() => break,
            accepted = accept(&listener) => accepted,
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let entered = open.enter();
        let of_request = entered.clone();
        let service = MapRequest::new(router.clone(), move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(of_request.clone());
            request
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        let connection = graceful.watch(connection);
        let killed = killed.clone();
        connections.spawn(async move {
            tokio::select! {
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended");
                },
                () = entered.closed() => {}
                () = killed.cancelled() => {}
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::info!("some clients did not take their answers in time");
    }
    killed.cancel();
    connections.close();
    connections.wait().await;
}

async fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
