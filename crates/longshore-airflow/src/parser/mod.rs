//! What Airflow's parser of DAG files is told, what it asks, and what it finds: the bodies of its frames.
//!
//! The parser is a child process: `airflow.dag_processing.processor`, unmodified. It gets one [`ParseRequest`], may ask
//! [`ParserQuestion`]s while the file is imported, and sends one [`ParsingResult`]. How frames travel, and who answers,
//! is in other crates.
//!
//! Source: spec 5.1; upstream `airflow.dag_processing.processor` and `airflow.sdk.execution_time.comms`.

mod question;
mod reply;
mod result;

use serde::Serialize;
use serde_json::{Map, Value};

pub use question::{FromParser, ParserQuestion, UnknownMessage};
pub use reply::{ParserReply, ReplyBody};
pub use result::{DagWarning, ParsedDag, ParsingResult};

/// A file that is to be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseRequest {
    /// The file's absolute path, of a module or of a zip archive.
    pub file: String,
    /// The bundle's root, an absolute path without `/` at its end.
    pub bundle_path: String,
    /// The bundle's name.
    pub bundle_name: String,
}

impl ParseRequest {
    /// The request, for a file of a bundle whose path there is `relative`.
    #[must_use]
    pub fn of_file(bundle_name: &str, bundle_path: &str, relative: &str) -> Self {
        let bundle_path = bundle_path.trim_end_matches('/').to_owned();
        Self {
            file: format!("{bundle_path}/{relative}"),
            bundle_path,
            bundle_name: bundle_name.to_owned(),
        }
    }

    /// The path of the file from the bundle's root.
    #[must_use]
    pub fn relative_path(&self) -> &str {
        self.relative(&self.file)
    }

    /// A path from the bundle's root; one outside of the bundle stays as it is.
    fn relative<'a>(&self, path: &'a str) -> &'a str {
        let below = path.strip_prefix(self.bundle_path.as_str());
        below.and_then(|it| it.strip_prefix('/')).unwrap_or(path)
    }

    /// The body of the first frame.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let Self {
            file,
            bundle_path,
            bundle_name,
        } = self;
        serde_json::json!({
            "type": "DagFileParseRequest",
            "file": file,
            "bundle_path": bundle_path,
            "bundle_name": bundle_name,
            "callback_requests": [],
        })
    }
}

/// An object of a type, as the parser reads it.
fn typed(kind: &str, value: &impl Serialize) -> Value {
    let mut object = match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        // Only objects are given to this.
        Ok(_) | Err(_) => Map::new(),
    };
    object.insert("type".to_owned(), kind.into());
    Value::Object(object)
}

#[cfg(test)]
mod tests;
