//! Whether a component is ready: one HTTPS request, without a client library.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpStream},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};

/// Longest that one request may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Requests the health of a component.
#[derive(Debug)]
pub(super) struct Probe {
    token: String,
    config: Arc<ClientConfig>,
}

impl Probe {
    /// A probe that authenticates with this token, and trusts servers that the authority vouches for.
    pub(super) fn new(authority: &str, token: String) -> io::Result<Probe> {
        let certificate =
            CertificateDer::from_pem_slice(authority.as_bytes()).map_err(io::Error::other)?;
        let mut roots = RootCertStore::empty();
        roots.add(certificate).map_err(io::Error::other)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Probe {
            token,
            config: Arc::new(config),
        })
    }

    /// `Ok` when the component at this port answers so at this path; else what was found instead.
    pub(super) fn ask(&self, port: u16, path: &str) -> Result<(), String> {
        let answer = self
            .request(port, path)
            .map_err(|error| error.to_string())?;
        let status = answer.lines().next().unwrap_or("no answer");
        if status.contains(" 200 ") {
            Ok(())
        } else {
            Err(status.to_owned())
        }
    }

    fn request(&self, port: u16, path: &str) -> io::Result<String> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
        let connection =
            ClientConnection::new(Arc::clone(&self.config), name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(connection, stream);
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
            self.token
        )?;
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            // A server that closes without a TLS farewell has answered all the same.
            Err(error) if answer.is_empty() => Err(error),
            _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
        }
    }
}
