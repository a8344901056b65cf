//! Asks a container one question.

use std::{net::Ipv4Addr, time::Duration};

use tokio::net::TcpStream;

use super::{grpc, http, wish::Question};
use crate::shim::ExecTarget;

/// Which answers to an HTTP request are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// Successes and redirects.
    Success,
    /// All.
    Any,
}

/// Asks once; the error is the text of an Event.
///
/// *Cancellation:* ends the question.
pub(crate) async fn ask(
    question: &Question,
    accepted: Accepted,
    pod_ip: Ipv4Addr,
    exec: &ExecTarget,
    timeout: Duration,
) -> Result<(), String> {
    let asked = async {
        match question {
            Question::Tcp { host, port } => connect(host.as_deref(), pod_ip, *port).await.map(drop),
            Question::Http { .. } => ask_http(question, accepted, pod_ip).await,
            Question::Grpc { port, service } => {
                let stream = connect(None, pod_ip, *port).await?;
                grpc::check(stream, &format!("{pod_ip}:{port}"), service).await
            }
            Question::Exec { argv } => exec.run(argv.clone(), timeout).await,
            Question::Impossible(why) => Err(why.clone()),
        }
    };
    match tokio::time::timeout(timeout, asked).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer within {}s", timeout.as_secs())),
    }
}

async fn ask_http(question: &Question, accepted: Accepted, pod_ip: Ipv4Addr) -> Result<(), String> {
    let Question::Http {
        is_tls,
        host,
        port,
        path,
        headers,
    } = question
    else {
        return Err("the question is none of HTTP".into());
    };
    let stream = connect(host.as_deref(), pod_ip, *port).await?;
    let host = host.clone().unwrap_or_else(|| pod_ip.to_string());
    let authority = format!("{host}:{port}");
    let request = http::Request {
        is_tls: *is_tls,
        authority: &authority,
        path,
        headers,
    };
    let code = if *is_tls {
        http::get(http::over_tls(stream, &host).await?, request).await?
    } else {
        http::get(stream, request).await?
    };
    match (accepted, code) {
        (Accepted::Any, _) | (Accepted::Success, 200..400) => Ok(()),
        (Accepted::Success, code) => Err(format!("HTTP probe failed with statuscode: {code}")),
    }
}

async fn connect(host: Option<&str>, pod_ip: Ipv4Addr, port: u16) -> Result<TcpStream, String> {
    let stream = match host {
        Some(host) => TcpStream::connect((host, port)).await,
        None => TcpStream::connect((pod_ip, port)).await,
    };
    stream.map_err(|e| {
        let host = host.map_or_else(|| pod_ip.to_string(), str::to_owned);
        format!("dial tcp {host}:{port}: {e}")
    })
}
