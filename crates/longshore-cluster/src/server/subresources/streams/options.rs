//! What a client asks of a way in, in the form that webhooks receive: `PodExecOptions` and its siblings.

use serde_json::{Map, Value};

use super::WayIn;
use crate::server::{
    admission::{Operation, Question},
    error::{ApiError, Result},
    streams::StreamSet,
    verbs::Call,
};

/// The options of a request, after all webhooks have let it pass.
///
/// Upstream asks the webhooks of `CONNECT` before it looks at the pod, and so does this server. Changes that a webhook makes
/// to a port or a path are not taken over: these stay what the client says.
pub(super) struct Options(Value);

impl Options {
    /// Reads the options, and asks the webhooks about them.
    pub(super) async fn admitted(way: WayIn, call: &Call) -> Result<Options> {
        let question = Question::new(call, Operation::Connect, false);
        let question = question.of_kind("", "v1", kind(way, call));
        let asked = question.mutate(given(way, call)?, None).await?;
        question.validate(Some(&asked), None).await?;
        Ok(Options(asked))
    }

    fn flag(&self, name: &str) -> bool {
        self.0[name].as_bool().unwrap_or(false)
    }

    /// The container that is named, if one is.
    pub(super) fn container(&self) -> Option<String> {
        let name = self.0["container"].as_str().unwrap_or_default();
        (!name.is_empty()).then(|| name.to_owned())
    }

    /// The program and its arguments.
    pub(super) fn command(&self) -> Vec<String> {
        let words = self.0["command"].as_array().into_iter().flatten();
        words.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// The streams of a process: at least one.
    pub(super) fn streams(&self) -> Result<StreamSet> {
        let tty = self.flag("tty");
        let streams = StreamSet {
            stdin: self.flag("stdin"),
            stdout: self.flag("stdout"),
            // A terminal has one output.
            stderr: self.flag("stderr") && !tty,
            tty,
        };
        if streams.stdin || streams.stdout || streams.stderr {
            Ok(streams)
        } else {
            let message = "you must specify at least 1 of stdin, stdout, stderr";
            Err(ApiError::bad_request(message))
        }
    }
}

fn kind(way: WayIn, call: &Call) -> &'static str {
    match way {
        WayIn::Exec => "PodExecOptions",
        WayIn::Attach => "PodAttachOptions",
        WayIn::PortForward => "PodPortForwardOptions",
        WayIn::Proxy if call.served.plural == "services" => "ServiceProxyOptions",
        WayIn::Proxy => "PodProxyOptions",
    }
}

/// What the query and the path say. As upstream, what is not given is left out, but for the command.
fn given(way: WayIn, call: &Call) -> Result<Value> {
    let mut options = Map::new();
    match way {
        WayIn::Exec | WayIn::Attach => {
            for name in ["stdin", "stdout", "stderr", "tty"] {
                if call.query.flag(name)?.unwrap_or(false) {
                    options.insert(name.into(), true.into());
                }
            }
            let container = call.query.text("container");
            if !container.is_empty() {
                options.insert("container".into(), container.into());
            }
            if way == WayIn::Exec {
                let words: Vec<&str> = call.query.all("command").collect();
                let command = (!words.is_empty()).then_some(words);
                options.insert("command".into(), command.into());
            }
        }
        WayIn::PortForward => {
            let texts = call.query.all("ports").flat_map(|text| text.split(','));
            // The way in itself refuses what is no port.
            let ports: Vec<u16> = texts.filter_map(|text| text.parse().ok()).collect();
            if !ports.is_empty() {
                options.insert("ports".into(), ports.into());
            }
        }
        WayIn::Proxy => {
            let subresource = call.subresource.as_deref().unwrap_or_default();
            let path = subresource.trim_start_matches("proxy");
            if !path.is_empty() {
                options.insert("path".into(), path.into());
            }
        }
    }
    Ok(Value::Object(options))
}
