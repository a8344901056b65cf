//! Our client and a served API server, with a relay between them that counts connections.

use longshore_outbound::Permit;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{PostParams, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use longshore_cluster::{Cluster, ServeConfig, Serving};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Longer than an answer takes.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(10);

/// Passes bytes on to `server`. Returns the port of the relay, and the number of its connections.
async fn relay(server: u16) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let mut server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (port, connections)
}

fn config_map(number: usize) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(format!("number-{number}"));
    map
}

/// A client behind a relay, and the number of its connections.
async fn relayed(serving: &Serving) -> (Client, Arc<AtomicUsize>) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let file = Kubeconfig::read_from(serving.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(file, &options).await;
    let mut config = config.unwrap();
    let (port, connections) = relay(config.cluster_url.port_u16().unwrap()).await;
    config.cluster_url = format!("https://127.0.0.1:{port}").parse().unwrap();
    let client: Client = client_builder(&config, Permit::always()).unwrap().build();
    // Requests that meet no connection yet open one each, and keep the first that stands.
    client.apiserver_version().await.unwrap();
    (client, connections)
}

fn serve(folder: &TempDir) -> Serving {
    let config = ServeConfig::new(folder.path());
    Cluster::in_memory().serve(config).unwrap()
}

/// More than a connection to the server may have.
#[tokio::test]
async fn a_request_does_not_wait_for_the_end_of_a_watch() {
    let folder = TempDir::new().unwrap();
    let serving = serve(&folder);
    let (client, connections) = relayed(&serving).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let params = WatchParams::default();
    let mut watches = Vec::new();
    for _ in 0..300 {
        let watch = tokio::time::timeout(LIMIT, maps.watch(&params, "0")).await;
        watches.push(watch.expect("a watch that begins").unwrap());
    }
    let (post, map) = (PostParams::default(), config_map(1));
    let made = tokio::time::timeout(LIMIT, maps.create(&post, &map)).await;
    made.expect("an answer").unwrap();
    let n = connections.load(Ordering::SeqCst);
    assert!((2..=5).contains(&n), "{n} connections");
}

#[tokio::test]
async fn writes_that_are_under_way_together_share_one_connection() {
    assert_eq!(connections_of(50).await, 1);
}

/// Each connection is opened once, and not by every request that meets none.
#[tokio::test]
async fn writes_beyond_the_limit_of_a_connection_open_no_more_than_they_need() {
    let n = connections_of(300).await;
    assert!((2..=5).contains(&n), "{n} connections");
}

/// The number of connections after so many creates at once.
async fn connections_of(creates: usize) -> usize {
    let folder = TempDir::new().unwrap();
    let serving = serve(&folder);
    let (client, connections) = relayed(&serving).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let made = join_all((0..creates).map(|number| {
        let maps = maps.clone();
        async move {
            maps.create(&PostParams::default(), &config_map(number))
                .await
        }
    }));
    for made in made.await {
        made.unwrap();
    }
    connections.load(Ordering::SeqCst)
}
