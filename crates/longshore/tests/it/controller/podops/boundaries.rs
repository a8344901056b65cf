//! Rules whose webhooks are where no tenant may send the controller, and webhooks that give it too much, or nothing.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::join;
use longshore_api::podops::{OperationLabel, detail_annotation};
use longshore_test::HttpAnswers;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::Instant,
};

use super::{http, place::Place, world::World};
use crate::cluster::config;

/// The most memory that answers without end may take, in MiB.
const BOUNDED: f64 = 64.0;

pub(super) async fn all(world: &World) {
    let (refused, redirected, large, slow, quick) = join!(
        world.namespace("refused"),
        world.namespace("redirected"),
        world.namespace("large"),
        world.namespace("slow"),
        world.namespace("quick"),
    );
    join!(
        a_rule_that_names_what_tenants_may_not_reach_is_refused(&refused),
        a_redirect_is_not_followed(&redirected),
        an_answer_of_64_mib_takes_no_memory(&large),
        a_webhook_that_drips_ends_and_delays_nobody(&slow, &quick),
    );
}

fn hook(url: &str) -> Value {
    json!([{"name": "hook", "webhook": {"clientConfig": {"url": url}}}])
}

async fn a_rule_that_names_what_tenants_may_not_reach_is_refused(place: &Place<'_>) {
    let cluster = config(&place.world.kubeconfig()).await.cluster_url;
    let port = cluster.port_u16().unwrap_or(443);
    let api_server = format!("https://{}:{port}/version", cluster.host().unwrap());
    for url in [
        "http://169.254.169.254/latest/meta-data/",
        "http://[::ffff:169.254.169.254]/latest/meta-data/",
        "http://[fe80::1]:80/",
        "http://0.0.0.0:80/",
        // The operator allows 127.0.0.1 in this test, and no other address of this machine.
        "http://127.0.0.2:80/",
        "http://2130706434/",
        &api_server,
    ] {
        let rule = json!({
            "apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "PodTransitionRule",
            "metadata": {"name": "refused"}, "spec": {"selector": {}, "rules": hook(url)},
        });
        let refused = http::create(place.client(), &place.rules(""), &rule).await;
        let Err(kube::Error::Api(status)) = refused else {
            panic!("{url}: {refused:?}");
        };
        let why = "its address is not allowed";
        assert!(status.message.contains(why), "{url}: {}", status.message);
    }
}

/// A server on loopback that answers each connection with `answer`, after it has read a request.
async fn serve<F, Fut>(answer: F) -> SocketAddr
where
    F: Fn(TcpStream) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 16 * 1024];
            // The check when the rule is written connects, and sends nothing.
            if stream.read(&mut head).await.is_ok_and(|n| n > 0) {
                tokio::spawn(answer(stream));
            }
        }
    });
    address
}

/// A pod whose operation waits for the webhook at this address.
async fn asking(place: &Place<'_>, url: &str) {
    place.serving(&["web-0"]).await;
    place.rule("ptr", hook(url)).await;
    let begin = json!({
        OperationLabel::Operating.of("a"): "1",
        OperationLabel::OperationType.of("a"): "update",
    });
    place.label("web-0", begin).await;
}

async fn until_shown(place: &Place<'_>, what: &str) {
    let is_shown = |pod: &Value| {
        let detail = pod["metadata"]["annotations"][detail_annotation("ptr")].as_str();
        detail.is_some_and(|detail| detail.contains(what))
    };
    let path = place.core("pods/web-0");
    place.world.until_object(&path, is_shown).await;
}

async fn a_redirect_is_not_followed(place: &Place<'_>) {
    let target = HttpAnswers::start(|_| (200, json!({"success": true})));
    let target = target.await.unwrap();
    let location = target.url();
    let address = serve(move |mut stream| {
        let text = format!(
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"
        );
        async move {
            let _ = stream.write_all(text.as_bytes()).await;
        }
    })
    .await;
    asking(place, &format!("http://{address}")).await;
    until_shown(place, "answered 307").await;
    assert!(target.asked().is_empty(), "{:?}", target.asked());
}

async fn an_answer_of_64_mib_takes_no_memory(place: &Place<'_>) {
    const SIZE: usize = 64 << 20;
    let before = place.world.peak_mib();
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let address = serve(move |mut stream| {
        let counted = Arc::clone(&counted);
        async move {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\n\r\n");
            let _ = stream.write_all(head.as_bytes()).await;
            let chunk = vec![b' '; 1 << 16];
            while stream.write_all(&chunk).await.is_ok() {
                counted.fetch_add(chunk.len(), Ordering::Relaxed);
            }
        }
    })
    .await;
    asking(place, &format!("http://{address}")).await;
    until_shown(place, "its answer has more than 1048576 bytes").await;
    let grown = place.world.peak_mib() - before;
    assert!(grown < BOUNDED, "{grown} MiB");
    println!("podops: an answer of 64 MiB cost {grown:.1} MiB");
}

async fn a_webhook_that_drips_ends_and_delays_nobody(slow: &Place<'_>, quick: &Place<'_>) {
    let address = serve(|mut stream| async move {
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n";
        let _ = stream.write_all(head).await;
        let mut drops = tokio::time::interval(Duration::from_secs(1));
        while stream.write_all(b" ").await.is_ok() {
            drops.tick().await;
        }
    })
    .await;
    asking(slow, &format!("http://{address}")).await;
    let answers = HttpAnswers::start(|_| (200, json!({"success": true})));
    let answers = answers.await.unwrap();
    let began = Instant::now();
    asking(quick, &answers.url()).await;
    let operate = OperationLabel::Operate.of("a");
    quick.until_label("web-0", &operate).await;
    assert!(
        began.elapsed() < Duration::from_secs(25),
        "{:?}",
        began.elapsed()
    );
    until_shown(slow, "it does not answer within 30s").await;
}
