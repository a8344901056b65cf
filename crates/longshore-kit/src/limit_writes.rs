//! A layer around a Kubernetes API that lets few writes be under way at the same time.
//!
//! An API server is busy with far fewer than the hundreds of rounds that may want to write at once. Where it speaks
//! HTTP/1.1 only, each write takes a connection, too: they would begin with as many TLS handshakes.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Method, Request, Response};
use tokio::sync::Semaphore;
use tower::Service;

/// A service with a bound on its writes; whatever only reads passes, watches above all.
#[derive(Clone, Debug)]
pub struct LimitWrites<S> {
    service: S,
    permits: Arc<Semaphore>,
}

impl<S> LimitWrites<S> {
    /// At most `writes` at the same time; at least one.
    pub fn new(service: S, writes: usize) -> Self {
        Self {
            service,
            permits: Arc::new(Semaphore::new(writes.max(1))),
        }
    }
}

impl<S, In, Out> Service<Request<In>> for LimitWrites<S>
where
    S: Service<Request<In>, Response = Response<Out>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let is_read = is_read(request.method());
        // Nothing happens before it is polled.
        let answer = self.service.call(request);
        if is_read {
            return Box::pin(answer);
        }
        let permits = Arc::clone(&self.permits);
        Box::pin(async move {
            // The semaphore is never closed.
            let _permit = permits.acquire().await;
            answer.await
        })
    }
}

/// Whether a request of this method changes nothing.
pub(crate) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

    use futures::future::join_all;
    use tokio::time::{Instant, sleep};
    use tower::service_fn;

    use super::*;

    async fn took(method: Method) -> Duration {
        let service = service_fn(|_: Request<()>| async {
            sleep(Duration::from_secs(1)).await;
            Ok::<_, Infallible>(Response::new(()))
        });
        let mut limited = LimitWrites::new(service, 2);
        let began = Instant::now();
        let request = || {
            let request = Request::builder().method(method.clone());
            request.body(()).unwrap()
        };
        join_all((0..6).map(|_| limited.call(request()))).await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn writes_wait_for_each_other_and_reads_do_not() {
        assert_eq!(took(Method::POST).await.as_secs(), 3);
        assert_eq!(took(Method::PATCH).await.as_secs(), 3);
        assert_eq!(took(Method::GET).await.as_secs(), 1);
    }
}
