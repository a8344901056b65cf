//! HTTPS to webhooks in pods whose network only the node can reach.

use std::{
    error::Error,
    io,
    net::{Ipv4Addr, SocketAddrV4},
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{
    Request, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, HOST},
};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use crate::chain::chain;

/// A way to pods that have a network of their own, for calls of webhooks.
#[async_trait]
pub trait PodNetwork: Send + Sync {
    /// Whether a pod of such a network can have this address.
    fn has(&self, address: Ipv4Addr) -> bool;

    /// Connects to a port of the pod.
    async fn connect(&self, address: SocketAddrV4) -> io::Result<TcpStream>;
}

/// The answer of a webhook: its status, whether it says that its body is text, and the body, unless it is too long.
pub(super) type Answer = (StatusCode, bool, Option<Bytes>);

/// One call.
pub(super) struct Call<'a> {
    pub(super) network: &'a dyn PodNetwork,
    /// The pod.
    pub(super) address: SocketAddrV4,
    /// The name in the certificate of the webhook.
    pub(super) host: &'a str,
    /// With its query.
    pub(super) path: &'a str,
    /// The authorities of the webhook, in PEM.
    pub(super) ca_bundle: &'a [u8],
    /// Our certificate and its key, in PEM.
    pub(super) identity: &'a [u8],
    pub(super) max_answer: usize,
}

impl Call<'_> {
    /// Sends a review over a connection of its own. The error is why there is no answer.
    pub(super) async fn post(&self, review: String) -> Result<Answer, String> {
        let address = self.address;
        let config = self.tls()?;
        let name = ServerName::try_from(self.host.to_owned()).map_err(|e| e.to_string())?;
        let stream = self.network.connect(address).await.map_err(|error| {
            if error.kind() == io::ErrorKind::ConnectionRefused {
                format!("dial tcp {address}: connect: connection refused")
            } else {
                format!("dial tcp {address}: {error}")
            }
        })?;
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
        let stream = connecting.await.map_err(|e| chain(&e))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| chain(&e))?;
        // It ends with this call.
        let _driver = AbortOnDropHandle::new(tokio::spawn(connection));
        let request = Request::post(self.path)
            .header(HOST, format!("{}:{}", self.host, address.port()))
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, */*")
            .body(Full::new(Bytes::from(review)))
            .map_err(|e| e.to_string())?;
        let response = sender.send_request(request).await.map_err(|e| chain(&e))?;
        let status = response.status();
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|it| it.to_str().ok());
        let is_text = content_type.is_some_and(|it| it.starts_with("text/"));
        let body = Limited::new(response.into_body(), self.max_answer);
        match body.collect().await {
            Ok(body) => Ok((status, is_text, Some(body.to_bytes()))),
            Err(error) if error.is::<LengthLimitError>() => Ok((status, is_text, None)),
            Err(error) => Err(chain(error.as_ref() as &(dyn Error + 'static))),
        }
    }

    /// No machine's authority has signed a certificate for the name of a Service, so that the webhook must bring one.
    fn tls(&self) -> Result<ClientConfig, String> {
        let bad = |what: &str, why: &dyn std::fmt::Display| format!("{what}: {why}");
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.ca_bundle) {
            let certificate =
                certificate.map_err(|e| bad("unable to load root certificates", &e))?;
            let added = roots.add(certificate);
            added.map_err(|e| bad("unable to load root certificates", &e))?;
        }
        let own = |e: &dyn std::fmt::Display| bad("the certificate of the server", e);
        let certificates = CertificateDer::pem_slice_iter(self.identity);
        let certificates: Result<Vec<_>, _> = certificates.collect();
        let certificates = certificates.map_err(|e| own(&e))?;
        let key = PrivateKeyDer::from_pem_slice(self.identity).map_err(|e| own(&e))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| own(&e))?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates, key)
            .map_err(|e| own(&e))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use rustls::{ServerConfig, pki_types::PrivatePkcs8KeyDer};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };
    use tokio_rustls::TlsAcceptor;

    use super::{super::identity::Identity, *};

    const POD: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 244, 1, 2), 8443);

    /// A network whose only pod listens on loopback.
    struct OnePod(Option<std::net::SocketAddr>);

    #[async_trait]
    impl PodNetwork for OnePod {
        fn has(&self, address: Ipv4Addr) -> bool {
            address == *POD.ip()
        }

        async fn connect(&self, address: SocketAddrV4) -> io::Result<TcpStream> {
            assert_eq!(address, POD);
            match self.0 {
                Some(pod) => TcpStream::connect(pod).await,
                None => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        }
    }

    async fn post(network: &OnePod, ca_bundle: &str, max_answer: usize) -> Result<Answer, String> {
        let identity = Identity::default().get().unwrap();
        let call = Call {
            network,
            address: POD,
            host: "hook.team.svc",
            path: "/check?timeout=10s",
            ca_bundle: ca_bundle.as_bytes(),
            identity: identity.client.as_bytes(),
            max_answer,
        };
        call.post("review".to_owned()).await
    }

    /// A webhook that answers one connection, and its certificate.
    async fn webhook(answer: &'static str) -> (OnePod, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["hook.team.svc".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let private = PrivatePkcs8KeyDer::from(key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private.into())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = TlsAcceptor::from(Arc::new(config));
            // A client that does not trust us ends it.
            let Ok(mut stream) = acceptor.accept(stream).await else {
                return;
            };
            let mut request = Vec::new();
            while !request.ends_with(b"review") {
                assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
            }
            assert!(request.starts_with(b"POST /check?timeout=10s HTTP/1.1\r\n"));
            stream.write_all(answer.as_bytes()).await.unwrap();
            drop(stream.shutdown().await);
        });
        (OnePod(Some(at)), certificate.pem())
    }

    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\nyes!";

    #[tokio::test]
    async fn a_webhook_inside_is_asked_through_the_network_of_its_pod() {
        let (pod, authority) = webhook(OK).await;
        let answer = post(&pod, &authority, 64).await.unwrap();
        assert_eq!(answer, (StatusCode::OK, true, Some("yes!".into())));
    }

    #[tokio::test]
    async fn a_long_answer_is_not_read() {
        let (pod, authority) = webhook(OK).await;
        let answer = post(&pod, &authority, 3).await.unwrap();
        assert_eq!(answer, (StatusCode::OK, true, None));
    }

    #[tokio::test]
    async fn a_webhook_must_be_there_and_be_trusted() {
        let refused = post(&OnePod(None), "", 64).await.unwrap_err();
        assert_eq!(
            refused,
            "dial tcp 10.244.1.2:8443: connect: connection refused"
        );
        let (pod, _) = webhook(OK).await;
        let (_, other) = webhook(OK).await;
        let refused = post(&pod, &other, 64).await.unwrap_err();
        assert!(refused.contains("certificate"), "{refused}");
    }
}
