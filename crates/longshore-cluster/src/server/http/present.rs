//! The last step of a response: indented JSON, YAML or protobuf for clients that request it.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header::CONTENT_TYPE};
use http_body_util::BodyExt;
use serde_json::Value;

use super::{
    accept::{Encoding, encoding, encoding_without_messages},
    body::{self, ApiBody, Live, NoMessage},
    query::Query,
};
use crate::server::{
    error::{ApiError, Result},
    protobuf,
};

/// How one client wants to read its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Presentation {
    encoding: Encoding,
    /// The encoding of what has no message in protobuf.
    other_encoding: Encoding,
    is_pretty: bool,
}

impl Presentation {
    /// The presentation that headers and query request.
    pub(crate) fn of(headers: &HeaderMap, query: &Query) -> Presentation {
        Presentation {
            encoding: encoding(headers),
            other_encoding: encoding_without_messages(headers),
            is_pretty: matches!(query.flag("pretty"), Ok(Some(true))),
        }
    }

    /// Rewrites an answer of JSON. Streams, documents of other types and the plain form stay as
    /// they are.
    pub(crate) async fn apply(self, response: Response<ApiBody>) -> Response<ApiBody> {
        let has_message = response.extensions().get::<NoMessage>().is_none();
        let encoding = if has_message {
            self.encoding
        } else {
            self.other_encoding
        };
        let is_plain = encoding == Encoding::Json && !self.is_pretty;
        let is_json = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|found| found == "application/json");
        if is_plain || !is_json || response.extensions().get::<Live>().is_some() {
            return response;
        }
        let (parts, content) = response.into_parts();
        match self.rewrite(encoding, content).await {
            Ok((content_type, text)) => {
                let mut response = Response::from_parts(parts, body::full(text));
                response
                    .headers_mut()
                    .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
                response
            }
            Err(error) => body::failure(&error),
        }
    }

    async fn rewrite(self, encoding: Encoding, content: ApiBody) -> Result<(&'static str, Bytes)> {
        let bytes = content
            .collect()
            .await
            .map_err(ApiError::internal)?
            .to_bytes();
        let value: Value = serde_json::from_slice(&bytes).map_err(ApiError::internal)?;
        if encoding == Encoding::Protobuf
            && let Some(message) = protobuf::encode(&value)
        {
            return Ok((protobuf::MEDIA_TYPE, message.into()));
        }
        match self.other_encoding {
            Encoding::Json | Encoding::Protobuf if self.is_pretty => {
                Ok(("application/json", format!("{value:#}\n").into()))
            }
            Encoding::Json | Encoding::Protobuf => Ok(("application/json", bytes)),
            Encoding::Yaml => {
                let text = serde_saphyr::to_string(&value).map_err(ApiError::internal)?;
                Ok(("application/yaml", text.into()))
            }
        }
    }
}
