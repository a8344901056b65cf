//! `pods/log`: streams the log from the source of the logs ([`PodLogs`](crate::PodLogs)).

use futures::StreamExt;
use http::Response;
use serde_json::Value;

use crate::server::{
    error::{ApiError, Result},
    http::body::{self, ApiBody},
    logs::{LogError, LogOptions},
    meta,
    verbs::Call,
};

/// Serves the log of one container of the pod on the URL.
pub(crate) async fn log(call: &Call) -> Result<Response<ApiBody>> {
    let pod = call.stored()?.value();
    let mut options = options(call)?;
    options.container = Some(choose_container(call, &pod, options.container)?);
    let Some(logs) = call.server.pod_logs() else {
        return Err(ApiError::unavailable("no node of this cluster keeps logs"));
    };
    match logs.logs(&pod, options).await {
        Ok(stream) => Ok(body::stream(
            "text/plain",
            stream.map(|chunk| chunk.map_err(Into::into)),
        )),
        Err(LogError::BadRequest(message)) => Err(ApiError::bad_request(message)),
        Err(LogError::NotFound(message)) => Err(ApiError::missing(message)),
        Err(LogError::Unavailable(message)) => Err(ApiError::unavailable(message)),
    }
}

fn options(call: &Call) -> Result<LogOptions> {
    let query = &call.query;
    let since_time = match query.text("sinceTime") {
        "" => None,
        text => Some(text.parse().map_err(ApiError::bad_request_from)?),
    };
    let container = query.text("container");
    Ok(LogOptions {
        container: (!container.is_empty()).then(|| container.to_owned()),
        follow: query.flag("follow")?.unwrap_or(false),
        previous: query.flag("previous")?.unwrap_or(false),
        since_seconds: query.number("sinceSeconds")?,
        since_time,
        tail_lines: query.number("tailLines")?,
        timestamps: query.flag("timestamps")?.unwrap_or(false),
        limit_bytes: query.number("limitBytes")?,
    })
}

/// The container that a client means: the only one, unless it names one.
pub(super) fn choose_container(call: &Call, pod: &Value, asked: Option<String>) -> Result<String> {
    let names = |list: &str| -> Vec<&str> {
        let containers = pod
            .pointer(&format!("/spec/{list}"))
            .and_then(Value::as_array);
        containers
            .into_iter()
            .flatten()
            .map(|container| meta::text(container, "/name"))
            .collect()
    };
    let (init, main, ephemeral) = (
        names("initContainers"),
        names("containers"),
        names("ephemeralContainers"),
    );
    match asked {
        Some(name)
            if [&init, &main, &ephemeral]
                .iter()
                .any(|list| list.contains(&name.as_str())) =>
        {
            Ok(name)
        }
        Some(name) => {
            let message = format!("container {name} is not valid for pod {}", call.name);
            Err(ApiError::bad_request(message))
        }
        None => match main.as_slice() {
            [only] => Ok((*only).to_owned()),
            several => {
                let mut message = format!(
                    "a container name must be specified for pod {}, choose one of: [{}]",
                    call.name,
                    several.join(" ")
                );
                if !init.is_empty() {
                    message += &format!(" or one of the init containers: [{}]", init.join(" "));
                }
                Err(ApiError::bad_request(message))
            }
        },
    }
}
