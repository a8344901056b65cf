//! A gRPC server as small as can be.

use std::{convert::Infallible, future::Future, sync::Arc};

use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::{GRPC, MESSAGE, STATUS, frame};

/// What a call comes to.
#[derive(Clone, Debug)]
pub(in crate::remote) enum Answered {
    /// This framed message.
    Message(Bytes),
    /// This status, and what it says.
    Status(u32, &'static str),
}

/// Answers with this message.
pub(in crate::remote) fn ok(message: &impl Message) -> Answered {
    Answered::Message(frame(message))
}

/// Reads a request.
pub(in crate::remote) fn read<Q: Message + Default>(body: &Bytes) -> Q {
    Q::decode(&body[5..]).unwrap()
}

/// Serves on a free port of this machine until the test ends; answers the endpoint. `answer` is given the path and the
/// framed message.
pub(in crate::remote) async fn serve<W>(
    answer: impl Fn(String, Bytes) -> W + Send + Sync + 'static,
) -> String
where
    W: Future<Output = Answered> + Send + 'static,
{
    serve_behind(None, answer).await
}

/// The same, behind TLS.
pub(in crate::remote) async fn serve_behind<W>(
    tls: Option<TlsAcceptor>,
    answer: impl Fn(String, Bytes) -> W + Send + Sync + 'static,
) -> String
where
    W: Future<Output = Answered> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (answer, tls) = (Arc::clone(&answer), tls.clone());
            tokio::spawn(async move {
                match tls {
                    None => talk(stream, answer).await,
                    Some(tls) => {
                        // Who does not trust us hangs up.
                        if let Ok(stream) = tls.accept(stream).await {
                            talk(stream, answer).await;
                        }
                    }
                }
            });
        }
    });
    endpoint
}

/// Answers what comes over a connection.
async fn talk<W>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    answer: Arc<impl Fn(String, Bytes) -> W + Send + Sync + 'static>,
) where
    W: Future<Output = Answered> + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = Arc::clone(&answer);
        async move {
            assert_eq!(request.headers()["te"], "trailers");
            assert_eq!(request.headers()["content-type"], GRPC);
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            Ok::<_, Infallible>(response(answer(path, body).await))
        }
    });
    let connection = http2::Builder::new(TokioExecutor::new());
    // A connection that breaks is the client's to tell of.
    let _ = connection
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

type Frames = StreamBody<stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>;

fn response(answered: Answered) -> Response<Frames> {
    let mut status = HeaderMap::new();
    let (frames, is_refused) = match answered {
        Answered::Message(message) => {
            status.insert(STATUS, 0.into());
            let frames = vec![
                Ok(Frame::data(message)),
                Ok(Frame::trailers(status.clone())),
            ];
            (frames, false)
        }
        Answered::Status(code, message) => {
            status.insert(STATUS, code.into());
            status.insert(MESSAGE, message.parse().unwrap());
            (Vec::new(), true)
        }
    };
    let mut response = Response::new(StreamBody::new(stream::iter(frames)));
    let headers = response.headers_mut();
    headers.insert("content-type", GRPC.parse().unwrap());
    if is_refused {
        headers.extend(status);
    }
    response
}
