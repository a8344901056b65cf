//! HTTP and HTTPS as far as probes and hooks need them: one request by hand, of whose answer only the code counts.

use std::{io, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// The longest part of an answer that an Event shows.
const SHOWN: usize = 256;
/// The status line and headers of any sane server fit in this.
const HEAD: usize = 16 * 1024;

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) is_tls: bool,
    /// Host and port.
    pub(super) authority: &'a str,
    pub(super) path: &'a str,
    pub(super) headers: &'a [(String, String)],
}

impl Request<'_> {
    /// The address in messages.
    fn url(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority, self.path)
    }

    fn text(&self) -> String {
        let is_given = |name: &str| {
            let mut given = self.headers.iter();
            given.any(|(it, _)| it.eq_ignore_ascii_case(name))
        };
        let path = if self.path.is_empty() { "/" } else { self.path };
        let mut text = format!("GET {path} HTTP/1.1\r\n");
        for (name, value) in [
            ("Host", self.authority),
            ("User-Agent", "kube-probe/1.34"),
            ("Accept", "*/*"),
        ] {
            if !is_given(name) {
                text.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        for (name, value) in self.headers {
            let plain = |text: &str| text.replace(['\r', '\n'], " ");
            text.push_str(&format!("{}: {}\r\n", plain(name), plain(value)));
        }
        text.push_str("Connection: close\r\n\r\n");
        text
    }
}

/// Sends the request and returns the code of the answer. Redirects are not followed, and the connection ends.
pub(super) async fn get(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<'_>,
) -> Result<u16, String> {
    let broken = |e: io::Error| format!("GET {}: {e}", request.url());
    let text = request.text();
    stream.write_all(text.as_bytes()).await.map_err(broken)?;
    stream.flush().await.map_err(broken)?;
    let mut head = Vec::new();
    let mut buffer = [0_u8; 1024];
    while head.len() < HEAD && !head.contains(&b'\n') {
        let n = stream.read(&mut buffer).await.map_err(broken)?;
        if n == 0 {
            break;
        }
        head.extend_from_slice(&buffer[..n]);
    }
    status_code(&head).ok_or_else(|| {
        let shown = String::from_utf8_lossy(&head[..head.len().min(SHOWN)]).into_owned();
        let url = request.url();
        format!("GET {url}: expected an HTTP answer, found {shown:?}")
    })
}

fn status_code(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_whitespace();
    words.next().filter(|it| it.starts_with("HTTP/"))?;
    words.next()?.parse().ok()
}

/// TLS with whoever answers: as a kubelet's, a probe proves that the server works, not who it is.
pub(super) async fn over_tls(
    stream: TcpStream,
    host: &str,
) -> Result<TlsStream<TcpStream>, String> {
    let failed = |why: String| format!("TLS with {host}: {why}");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(e.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|e| failed(e.to_string()))?;
    let connector = TlsConnector::from(Arc::new(config));
    let connected = connector.connect(name, stream).await;
    connected.map_err(|e| failed(e.to_string()))
}

/// Takes every certificate, and checks only that the server has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = &self.0.signature_verification_algorithms;
        known.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::{Request, status_code};

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

    #[test]
    fn headers_of_the_pod_replace_ours_and_break_no_line() {
        let headers = [
            ("host".to_owned(), "web".to_owned()),
            ("X".to_owned(), "a\r\nb".to_owned()),
        ];
        let request = Request {
            is_tls: true,
            authority: "127.0.0.1:1",
            path: "",
            headers: &headers,
        };
        let expected = "GET / HTTP/1.1\r\nUser-Agent: kube-probe/1.34\r\nAccept: */*\r\nhost: web\r\nX: a  b\r\n\
                        Connection: close\r\n\r\n";
        assert_eq!(request.text(), expected);
    }
}
