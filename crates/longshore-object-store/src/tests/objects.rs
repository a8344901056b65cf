//! The objects of a store that a test plays, and the form of its answers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{
    body::{Body, Bytes},
    response::Response,
};
use http::{Method, StatusCode};

/// Objects by path, `/bucket/key`. All of them are in the bucket `data`.
#[derive(Clone, Default)]
pub(super) struct Objects(Arc<Mutex<BTreeMap<String, Bytes>>>);

/// How a store answers.
pub(super) struct Words {
    /// To a write.
    pub(super) written: StatusCode,
    /// About an object that is not there.
    pub(super) no_object: &'static str,
    /// About a bucket that is not there.
    pub(super) no_bucket: &'static str,
    /// About everything in a bucket, by its name.
    pub(super) refusals: &'static [(&'static str, StatusCode, &'static str)],
    /// Behind the error code, before the end of the message.
    pub(super) message: &'static str,
}

impl Objects {
    /// Puts an object there.
    pub(super) fn put(&self, path: &str, body: Bytes) {
        self.0.lock().unwrap().insert(path.to_owned(), body);
    }

    /// What the store answers to a request about an object.
    pub(super) fn answer(
        &self,
        words: &Words,
        method: &Method,
        path: &str,
        body: Bytes,
    ) -> (StatusCode, Bytes) {
        let refusal = |code: &str| {
            let message = words.message;
            let text = format!(
                "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
            );
            Bytes::from(text)
        };
        let bucket = path.split('/').nth(1).unwrap();
        let mut refusals = words.refusals.iter();
        if let Some((_, status, code)) = refusals.find(|(name, ..)| *name == bucket) {
            return (*status, refusal(code));
        }
        if bucket != "data" {
            return (StatusCode::NOT_FOUND, refusal(words.no_bucket));
        }
        if method == Method::PUT {
            self.put(path, body);
            return (words.written, Bytes::new());
        }
        match self.0.lock().unwrap().get(path) {
            Some(object) => (StatusCode::OK, object.clone()),
            None => (StatusCode::NOT_FOUND, refusal(words.no_object)),
        }
    }
}

/// The answer of a store, without its body to a HEAD.
pub(super) fn response(method: &Method, status: StatusCode, body: Bytes) -> Response {
    let length = body.len();
    let is_head = method == Method::HEAD;
    let body = if is_head { Bytes::new() } else { body };
    Response::builder()
        .status(status)
        .header("etag", "\"x\"")
        .header("last-modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        .header("content-length", length)
        .body(Body::from(body))
        .unwrap()
}
