//! The HTTP client of stores, which takes no part of a file for the file.

use std::time::Duration;

use async_trait::async_trait;
use http::{
    StatusCode,
    header::{CONTENT_RANGE, RANGE},
};
use longshore_outbound::operator_named;
use object_store::{
    ClientOptions, Error,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    },
};
use reqwest::redirect::Policy;

/// How long one request to a store may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a store may send us elsewhere.
const MAX_REDIRECTS: usize = 3;

/// Makes the clients of stores: their addresses are those of the configuration, or of the machine's own credentials.
#[derive(Debug)]
pub(crate) struct OperatorNamed;

/// An answer without the end of the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CutOff {
    #[error("the answer of its store is cut off after {n} of {size} bytes")]
    Body { n: u64, size: u64 },
    /// By its `Content-Range`.
    #[error("its store answered with a part of it only ({0})")]
    Part(String),
}

impl HttpConnector for OperatorNamed {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient, Error> {
        // A bucket that has moved answers with where it is now.
        let client = operator_named()
            .redirect(Policy::limited(MAX_REDIRECTS))
            .timeout(REQUEST_TIMEOUT)
            .build();
        let client = client.map_err(|error| Error::Generic {
            store: "http",
            source: Box::new(error),
        })?;
        Ok(HttpClient::new(Whole(client)))
    }
}

/// Refuses parts of files that it did not ask for.
#[derive(Debug)]
struct Whole(reqwest::Client);

#[async_trait]
impl HttpService for Whole {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let asks_for_part = request.headers().contains_key(RANGE);
        let answer = self.0.call(request).await?;
        if asks_for_part || answer.status() != StatusCode::PARTIAL_CONTENT {
            return Ok(answer);
        }
        let range = answer.headers().get(CONTENT_RANGE);
        let range = range.and_then(|range| range.to_str().ok());
        let part = CutOff::Part(range.unwrap_or("of unknown range").to_owned());
        Err(HttpError::new(HttpErrorKind::Interrupted, part))
    }
}
