//! Requests that are retried while the API does not answer.

use std::time::Duration;

use kube::Error;

/// Attempts before the failure is passed on.
const ATTEMPTS: u32 = 8;
/// Pause after the first failure; it doubles with every further one.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Repeats a request that has failed for reasons of the server's. Work of many requests gets on
/// this way, which would hardly ever see all of them succeed in a row.
pub(crate) async fn patiently<T, F>(request: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut pause = FIRST_PAUSE;
    for _ in 1..ATTEMPTS {
        match request().await {
            Err(error) if is_transient(&error) => {
                tracing::debug!(%error, "request failed, trying again");
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            answer => return answer,
        }
    }
    request().await
}

fn is_transient(error: &Error) -> bool {
    // Without an answer of the API: the connection is broken, or what came over it.
    let Error::Api(status) = error else {
        return true;
    };
    status.code >= 500 || status.code == 429
}
