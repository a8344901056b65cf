//! A name with another address at each look-up: its owner lets an allowed address be checked, and
//! wants a refused one to be connected to.

use std::{collections::VecDeque, io, sync::Mutex};

use super::*;
use crate::connector::Found;

/// An address that tenants may name.
const ALLOWED: [u8; 4] = [127, 0, 0, 2];
/// An address that tenants may not name.
const REFUSED: [u8; 4] = [127, 0, 0, 1];

/// What names mean, one answer after the other; the last one stays.
#[derive(Debug)]
struct Names {
    answers: Mutex<VecDeque<Vec<[u8; 4]>>>,
    asked: Mutex<Vec<String>>,
}

impl Names {
    fn of(answers: &[&[[u8; 4]]]) -> Arc<Self> {
        let answers = answers.iter().map(|answer| answer.to_vec()).collect();
        Arc::new(Self {
            answers: Mutex::new(answers),
            asked: Mutex::default(),
        })
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl LookUp for Names {
    fn look_up<'a>(&'a self, host: &'a str, port: u16) -> Found<'a> {
        self.asked.lock().unwrap().push(host.to_owned());
        let mut answers = self.answers.lock().unwrap();
        let answer = match answers.len() {
            1 => answers.front().cloned(),
            _ => answers.pop_front(),
        };
        let answer = answer.ok_or(io::ErrorKind::NotFound.into());
        let found = |answer: Vec<[u8; 4]>| {
            let addresses = answer.into_iter().map(|ip| SocketAddr::from((ip, port)));
            addresses.collect()
        };
        Box::pin(std::future::ready(answer.map(found)))
    }
}

/// Servers with one port at both addresses, each of which answers once for each connection.
struct Servers {
    port: u16,
    allowed: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
}

impl Servers {
    async fn start() -> Self {
        let allowed = TcpListener::bind((IpAddr::from(ALLOWED), 0)).await.unwrap();
        let port = allowed.local_addr().unwrap().port();
        let refused = TcpListener::bind((IpAddr::from(REFUSED), port))
            .await
            .unwrap();
        Self {
            port,
            allowed: Self::serve(allowed, "allowed"),
            refused: Self::serve(refused, "refused"),
        }
    }

    /// Counts connections.
    fn serve(listener: TcpListener, who: &'static str) -> Arc<AtomicUsize> {
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
                let mut head = [0; 4096];
                let _ = stream.read(&mut head).await;
                let text = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 7\r\n\r\n{who}"
                );
                let _ = stream.write_all(text.as_bytes()).await;
            }
        });
        connections
    }

    fn url(&self) -> String {
        format!("http://rebinding.example.test:{}/x", self.port)
    }

    /// Connections at the allowed address, and at the refused one.
    fn connections(&self) -> (usize, usize) {
        let n = |counted: &AtomicUsize| counted.load(Ordering::Relaxed);
        (n(&self.allowed), n(&self.refused))
    }
}

/// A client that may reach the allowed address only.
fn guarded(names: &Arc<Names>) -> (TenantClient, Arc<Boundaries>) {
    let allowed = IpAddr::from(ALLOWED).to_string().parse().unwrap();
    let boundaries = Arc::new(Boundaries::allowing(vec![allowed]));
    let names: Arc<dyn LookUp> = Arc::clone(names) as _;
    let trust = Trust::Pem(AUTHORITY.as_bytes());
    let (within, limits) = (Arc::clone(&boundaries), Limits::default());
    let client = TenantClient::looking_up_with(names, within, trust, limits, Permit::always());
    let client = client.unwrap();
    (client, boundaries)
}

#[tokio::test]
async fn the_address_that_is_connected_to_is_the_one_that_was_checked() {
    let servers = Servers::start().await;
    // A client that looked the name up once for the check, and once more for the connection, would
    // connect to the second address.
    let names = Names::of(&[&[ALLOWED], &[REFUSED]]);
    let (client, _) = guarded(&names);
    TenantClient::may_reach(&Boundaries::default(), &servers.url())
        .await
        .unwrap();
    let answer = client.post(&servers.url(), b"{}".to_vec()).await.unwrap();
    assert_eq!(&*answer.body, b"allowed");
    assert_eq!(names.asked(), ["rebinding.example.test"]);
    assert_eq!(servers.connections(), (1, 0));
}

#[tokio::test]
async fn a_name_that_means_a_refused_address_later_is_refused_then() {
    let servers = Servers::start().await;
    let names = Names::of(&[&[ALLOWED], &[REFUSED]]);
    let (client, _) = guarded(&names);
    client.get(&servers.url()).await.unwrap();
    for _ in 0..2 {
        let refused = client.get(&servers.url()).await;
        assert!(
            matches!(refused, Err(OutboundError::NotAllowed(_))),
            "{refused:?}"
        );
    }
    assert_eq!(names.asked().len(), 3, "once for each connection");
    assert_eq!(servers.connections(), (1, 0));
}

#[tokio::test]
async fn of_several_addresses_those_that_are_refused_are_passed_over() {
    let servers = Servers::start().await;
    let names = Names::of(&[&[REFUSED, ALLOWED, REFUSED]]);
    let (client, _) = guarded(&names);
    let answer = client.get(&servers.url()).await.unwrap();
    assert_eq!(&*answer.body, b"allowed");
    assert_eq!(servers.connections(), (1, 0));
}

#[tokio::test]
async fn an_api_server_whose_name_means_another_address_is_refused_at_each_of_them() {
    let servers = Servers::start().await;
    // The API server is looked up first, then the host of the URL.
    let names = Names::of(&[&[REFUSED], &[ALLOWED], &[ALLOWED]]);
    let (client, boundaries) = guarded(&names);
    boundaries.set_api_server("api.example.test", servers.port);
    client.get(&servers.url()).await.unwrap();
    let refused = client.get(&servers.url()).await;
    assert!(
        matches!(refused, Err(OutboundError::NotAllowed(_))),
        "{refused:?}"
    );
    let (api, host) = ("api.example.test", "rebinding.example.test");
    assert_eq!(names.asked(), [api, host, api, host]);
    assert_eq!(servers.connections(), (1, 0));
}
