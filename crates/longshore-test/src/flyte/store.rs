//! A store that speaks as much of S3 as an executor uses.

use bytes::Bytes;
use http::{
    HeaderValue, Method, StatusCode,
    header::{ETAG, LAST_MODIFIED},
};

use super::ServicesState;
use crate::foreign_server::{Answer, Received};

const XML: &str = "application/xml";

impl ServicesState {
    pub(super) fn ask_store(&mut self, received: &Received) -> Answer {
        let path = received.path.split('?').next().unwrap_or_default();
        if received.method == Method::PUT {
            self.objects.insert(path.to_owned(), received.body.clone());
            return object(Bytes::new());
        }
        match self.objects.get(path) {
            Some(found) => object(found.clone()),
            None => error(StatusCode::NOT_FOUND, "NoSuchKey"),
        }
    }
}

fn object(body: Bytes) -> Answer {
    let mut answer = Answer::new(StatusCode::OK, "application/octet-stream", body);
    let headers = &mut answer.headers;
    headers.insert(ETAG, HeaderValue::from_static("\"x\""));
    let written = HeaderValue::from_static("Mon, 01 Jan 2024 00:00:00 GMT");
    headers.insert(LAST_MODIFIED, written);
    answer
}

/// An answer in which a store refuses with this code of S3.
pub fn error(status: StatusCode, code: &str) -> Answer {
    let words = format!("<Error><Code>{code}</Code><Message>No.</Message></Error>");
    Answer::new(status, XML, words)
}
