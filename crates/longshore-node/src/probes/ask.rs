//! Runs one probe once.

use std::{net::Ipv4Addr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::wish::Question;
use crate::shim::ExecTarget;

/// The longest part of an answer that an Event shows.
const SHOWN: usize = 256;
/// The status line and headers of any sane server fit in this.
const HEAD: usize = 16 * 1024;

/// Runs the probe once; the error is the text of an Event.
pub(super) async fn ask(
    question: &Question,
    pod_ip: Ipv4Addr,
    exec: &ExecTarget,
    timeout: Duration,
) -> Result<(), String> {
    let asked = async {
        match question {
            Question::Tcp { host, port } => connect(host.as_deref(), pod_ip, *port).await.map(drop),
            Question::Http { is_tls: true, .. } => {
                // The certificate is not looked at, so that a server behind the port is all there is
                // to find out.
                let (host, port) = place(question);
                connect(host, pod_ip, port).await.map(drop)
            }
            Question::Http { path, headers, .. } => {
                let (host, port) = place(question);
                let stream = connect(host, pod_ip, port).await?;
                let authority = format!(
                    "{}:{port}",
                    host.map_or_else(|| pod_ip.to_string(), str::to_owned)
                );
                get(stream, &authority, path, headers).await
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

fn place(question: &Question) -> (Option<&str>, u16) {
    match question {
        Question::Http { host, port, .. } | Question::Tcp { host, port } => {
            (host.as_deref(), *port)
        }
        Question::Exec { .. } | Question::Impossible(_) => (None, 0),
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

/// One request by hand: only the status code counts, redirects are successes, and the connection ends.
async fn get(
    mut stream: TcpStream,
    authority: &str,
    path: &str,
    headers: &[(String, String)],
) -> Result<(), String> {
    let is_given = |name: &str| headers.iter().any(|(it, _)| it.eq_ignore_ascii_case(name));
    let mut request = format!(
        "GET {} HTTP/1.1\r\n",
        if path.is_empty() { "/" } else { path }
    );
    for (name, value) in [
        ("Host", authority),
        ("User-Agent", "kube-probe/1.34"),
        ("Accept", "*/*"),
    ] {
        if !is_given(name) {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    for (name, value) in headers {
        let plain = |text: &str| text.replace(['\r', '\n'], " ");
        request.push_str(&format!("{}: {}\r\n", plain(name), plain(value)));
    }
    request.push_str("Connection: close\r\n\r\n");
    let broken = |e: std::io::Error| format!("GET http://{authority}{path}: {e}");
    stream.write_all(request.as_bytes()).await.map_err(broken)?;
    let mut head = Vec::new();
    let mut buffer = [0_u8; 1024];
    while head.len() < HEAD && !head.contains(&b'\n') {
        let n = stream.read(&mut buffer).await.map_err(broken)?;
        if n == 0 {
            break;
        }
        head.extend_from_slice(&buffer[..n]);
    }
    match status_code(&head) {
        Some(200..400) => Ok(()),
        Some(code) => Err(format!("HTTP probe failed with statuscode: {code}")),
        None => {
            let shown = String::from_utf8_lossy(&head[..head.len().min(SHOWN)]).into_owned();
            Err(format!(
                "GET http://{authority}{path}: expected an HTTP answer, found {shown:?}"
            ))
        }
    }
}

fn status_code(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_whitespace();
    words.next().filter(|it| it.starts_with("HTTP/"))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::status_code;

    #[test]
    fn the_code_is_in_the_first_line() {
        for (head, expected) in [
            ("HTTP/1.1 200 OK\r\nA: b\r\n", Some(200)),
            ("HTTP/1.0 503\r\n", Some(503)),
            ("HTTP/1.1", None),
            ("SSH-2.0-x", None),
            ("", None),
        ] {
            assert_eq!(status_code(head.as_bytes()), expected, "{head:?}");
        }
    }
}
