//! Finds the route of a request, and reads the request.

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    check::{check_body, check_query, invalid_json, single},
    error::ApiError,
    query,
    request::{Parts, Request},
    routes::{Method, ROUTES, Route},
    schema::ValueKind,
    version::ApiVersion,
};

/// A request as it comes over the wire.
#[derive(Clone, Copy, Debug)]
pub struct RawRequest<'a> {
    /// The version that serves it.
    pub version: ApiVersion,
    /// The method.
    pub method: Method,
    /// The path below `/execution`, as it was sent: each segment is decoded once, here.
    pub path: &'a str,
    /// The parameters of the query, decoded.
    pub query: &'a [(String, String)],
    /// The body.
    pub body: &'a [u8],
}

/// A route that matches a request, and the parameters of its path.
#[derive(Clone, Debug)]
pub struct Matched {
    /// The route.
    pub route: &'static Route,
    path: Map<String, Value>,
}

impl Matched {
    /// The parameter of the path with this name, decoded.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.path.get(name)?.as_str()
    }
}

impl RawRequest<'_> {
    /// The route of the request. Whose token may use it is known with it, before anything else is read.
    ///
    /// # Errors
    /// 404 where the version has no such path, 405 where it has it with another method.
    pub fn route(&self) -> Result<Matched, ApiError> {
        let path = self.path.strip_prefix('/').ok_or_else(ApiError::no_route)?;
        let decoded = path
            .split('/')
            .map(|it| percent_decode_str(it).decode_utf8());
        let segments: Result<Vec<String>, _> = decoded.map(|it| it.map(String::from)).collect();
        let segments = segments.map_err(|_| ApiError::no_route())?;
        let mut error = ApiError::no_route();
        for route in ROUTES.iter().filter(|it| it.life.includes(self.version)) {
            let Some(path) = match_path(route, &segments) else {
                continue;
            };
            if route.method == self.method {
                return Ok(Matched { route, path });
            }
            error = ApiError::method_not_allowed();
        }
        Err(error)
    }

    /// Reads the request of a route.
    ///
    /// # Errors
    /// 422 with all problems of the path, else of the query, else of the body.
    pub fn read(&self, matched: Matched) -> Result<Request, ApiError> {
        let Matched { route, mut path } = matched;
        check_path(&mut path)?;
        let query = query::to_object(route.query, self.query);
        check_query(route.query, &query, self.version)?;
        let body = match &route.body {
            None => Value::Null,
            // The value of an XCom. It may be left out, as upstream, and it may be large: no values are made of it.
            Some(ValueKind::Json) => {
                if !self.body.is_empty() {
                    check_json(self.body).map_err(|it| invalid_json(&it))?;
                }
                Value::Null
            }
            Some(_) if self.body.is_empty() => {
                return Err(single("missing", &["body"], "Field required", Value::Null).into());
            }
            Some(kind) => {
                let body = serde_json::from_slice(self.body).map_err(|it| invalid_json(&it))?;
                check_body(kind, &body, self.version)?;
                body
            }
        };
        let parts = Parts { path, query, body };
        // A number that its type cannot hold, as a map index beyond 32 bits.
        let out_of_range = || single("int_type", &["body"], "Number out of range", Value::Null);
        (route.read)(parts).ok_or_else(|| out_of_range().into())
    }
}

/// Whether bytes are one value of JSON, without making it. Unlike the values that are made, it may nest as deep as it
/// likes.
fn check_json(bytes: &[u8]) -> Result<(), serde_json::Error> {
    let text = std::str::from_utf8(bytes).map_err(serde::de::Error::custom)?;
    serde_json::from_str::<serde::de::IgnoredAny>(text).map(drop)
}

/// The parameters of the path, as texts.
fn match_path(route: &Route, segments: &[String]) -> Option<Map<String, Value>> {
    let pattern: Vec<&str> = route.path.split('/').skip(1).collect();
    let n_greedy = match route.greedy {
        // The parameter takes what the others leave.
        Some(_) => (segments.len() + 1)
            .checked_sub(pattern.len())
            .filter(|n| *n > 0)?,
        None if pattern.len() == segments.len() => 1,
        None => return None,
    };
    let mut path = Map::new();
    let mut rest = segments;
    for step in pattern {
        let name = step.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
        let n = if name.is_some() && name == route.greedy {
            n_greedy
        } else {
            1
        };
        let (taken, left) = rest.split_at_checked(n)?;
        rest = left;
        let text = taken.join("/");
        match name {
            Some(_) if text.is_empty() => return None,
            Some(name) => {
                path.insert(name.to_owned(), text.into());
            }
            None if text == step => {}
            None => return None,
        }
    }
    Some(path)
}

/// Parameters of paths that are more than a text.
fn check_path(path: &mut Map<String, Value>) -> Result<(), ApiError> {
    for id in ["task_instance_id", "connection_test_id"] {
        let Some(text) = path.get(id).and_then(Value::as_str) else {
            continue;
        };
        if Uuid::try_parse(text).is_err() {
            let msg = "Input should be a valid UUID";
            return Err(single("uuid_parsing", &["path", id], msg, json!(text)).into());
        }
    }
    if let Some(text) = path.get("offset").and_then(Value::as_str) {
        let Ok(offset) = text.parse::<i64>() else {
            let msg = "Input should be a valid integer, unable to parse string as an integer";
            return Err(single("int_parsing", &["path", "offset"], msg, json!(text)).into());
        };
        path.insert("offset".to_owned(), offset.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
