//! The last step of a response: indented JSON or YAML for clients that request it.

use http::{HeaderMap, HeaderValue, Response, header::CONTENT_TYPE};
use http_body_util::BodyExt;
use serde_json::Value;

use super::{
    accept::{Encoding, encoding},
    body::{self, ApiBody, Live},
    query::Query,
};
use crate::server::error::{ApiError, Result};

/// How one client wants to read its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Presentation {
    encoding: Encoding,
    is_pretty: bool,
}

impl Presentation {
    /// The presentation that headers and query request.
    pub(crate) fn of(headers: &HeaderMap, query: &Query) -> Presentation {
        Presentation {
            encoding: encoding(headers),
            is_pretty: matches!(query.flag("pretty"), Ok(Some(true))),
        }
    }

    /// Rewrites an answer of JSON. Streams, documents of other types and the plain form stay as
    /// they are.
    pub(crate) async fn apply(self, response: Response<ApiBody>) -> Response<ApiBody> {
        let is_plain = self.encoding == Encoding::Json && !self.is_pretty;
        let is_json = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|found| found == "application/json");
        if is_plain || !is_json || response.extensions().get::<Live>().is_some() {
            return response;
        }
        let (parts, content) = response.into_parts();
        match self.rewrite(content).await {
            Ok((content_type, text)) => {
                let mut response = Response::from_parts(parts, body::full(text.into()));
                response
                    .headers_mut()
                    .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
                response
            }
            Err(error) => body::failure(&error),
        }
    }

    async fn rewrite(self, content: ApiBody) -> Result<(&'static str, String)> {
        let bytes = content
            .collect()
            .await
            .map_err(ApiError::internal)?
            .to_bytes();
        let value: Value = serde_json::from_slice(&bytes).map_err(ApiError::internal)?;
        match self.encoding {
            Encoding::Json => Ok(("application/json", format!("{value:#}\n"))),
            Encoding::Yaml => {
                let text = serde_saphyr::to_string(&value).map_err(ApiError::internal)?;
                Ok(("application/yaml", text))
            }
        }
    }
}
