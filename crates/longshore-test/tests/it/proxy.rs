//! The proxy before the embedded API server, over the wire and in real time.

use std::time::Duration;

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config,
    api::{PostParams, WatchEvent, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use longshore_cluster::{Cluster, ServeConfig, Serving};
use longshore_test::{
    Fault, FaultPlan, FaultProxy, Faults, Point, WatchFault, config_map, faults::Refusal,
};
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

/// Longer than anything that ends takes, and the time in which what hangs does so.
const PATIENCE: Duration = Duration::from_secs(20);
const HANGS: Duration = Duration::from_secs(1);

/// An embedded API server that is served, and the proxy before it.
struct Wire {
    cluster: Cluster,
    proxy: FaultProxy,
    _serving: Serving,
    _directory: TempDir,
}

impl Wire {
    async fn with(faults: &Faults) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let directory = tempfile::tempdir().unwrap();
        let cluster = Cluster::in_memory();
        let config = ServeConfig::new(directory.path().join("api"));
        let serving = cluster.serve(config).unwrap();
        let upstream = client_of(serving.kubeconfig()).await;
        let proxy = FaultProxy::start(upstream, &faults.start()).await.unwrap();
        Self {
            cluster,
            proxy,
            _serving: serving,
            _directory: directory,
        }
    }

    /// ConfigMaps as another process sees them.
    async fn maps(&self) -> Api<ConfigMap> {
        Api::default_namespaced(client_of(&self.proxy.kubeconfig()).await)
    }

    /// ConfigMaps as they are.
    fn truth(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.cluster.client())
    }
}

/// A client of another process, which does not repeat requests by itself.
async fn client_of(kubeconfig: &std::path::Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options);
    let mut config = config.await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

async fn create(maps: &Api<ConfigMap>, name: &str) -> kube::Result<ConfigMap> {
    maps.create(&PostParams::default(), &config_map(name).typed())
        .await
}

#[tokio::test]
async fn each_fault_of_a_request_does_what_it_says_to_another_process() {
    let table = [
        (Fault::LoseAnswer, true, "no answer"),
        (Fault::Refuse(Refusal::Conflict), false, "409"),
        (Fault::Refuse(Refusal::TooManyRequests(3)), false, "429"),
        (Fault::Refuse(Refusal::InternalError), false, "500"),
        (Fault::Refuse(Refusal::NoConnection), false, "no answer"),
        (Fault::KillBefore, false, "hangs"),
        (Fault::KillAfter, true, "hangs"),
        (Fault::Delay(Duration::from_millis(300)), true, "late"),
    ];
    for (fault, happens, expected) in table {
        let faults = Faults::new(FaultPlan::at(Point::new("create configmaps", 1), fault));
        let wire = Wire::with(&faults).await;
        let maps = wire.maps().await;
        let began_at = Instant::now();
        let limit = if expected == "hangs" { HANGS } else { PATIENCE };
        let outcome = match timeout(limit, create(&maps, "a")).await {
            Err(_) => "hangs".to_owned(),
            Ok(Ok(_)) if began_at.elapsed() >= Duration::from_millis(300) => "late".to_owned(),
            Ok(Ok(_)) => "ok".to_owned(),
            Ok(Err(kube::Error::Api(status))) => status.code.to_string(),
            Ok(Err(_)) => "no answer".to_owned(),
        };
        assert_eq!(outcome, expected, "{fault:?}");
        let exists = wire.truth().get_opt("a").await.unwrap().is_some();
        assert_eq!(exists, happens, "{fault:?}");
        if expected != "hangs" {
            create(&maps, "b").await.unwrap();
            assert_eq!(faults.count("create configmaps"), 2, "{fault:?}");
        }
    }
}

/// A watch of another process, while one ConfigMap after the other is made; and when it began.
async fn watch(
    wire: &Wire,
) -> kube::Result<BoxStream<'static, kube::Result<WatchEvent<ConfigMap>>>> {
    let maps = wire.maps().await;
    let stream = maps.watch(&WatchParams::default(), "0").await?;
    for name in ["a", "b", "c"] {
        create(&wire.truth(), name).await?;
    }
    Ok(stream.boxed())
}

/// What came: names, `~` for a bookmark, a code for an error, `.` for the end; and how late the first was.
async fn came(watches: Vec<WatchFault>) -> (String, Duration) {
    let faults = Faults::new(FaultPlan {
        watches,
        ..FaultPlan::none()
    });
    let wire = Wire::with(&faults).await;
    let began_at = Instant::now();
    let mut events = match watch(&wire).await {
        Ok(events) => events,
        Err(kube::Error::Api(status)) => return (status.code.to_string(), began_at.elapsed()),
        Err(error) => panic!("{error}"),
    };
    let (mut text, mut first) = (String::new(), None);
    while !text.ends_with('c') {
        match timeout(PATIENCE, events.next()).await.unwrap() {
            Some(Ok(WatchEvent::Added(map))) => text += &map.metadata.name.unwrap_or_default(),
            Some(Ok(WatchEvent::Error(status))) => text += &status.code.to_string(),
            Some(Ok(_)) => text.push('~'),
            Some(Err(error)) => panic!("{error}"),
            None => {
                text.push('.');
                break;
            }
        }
        first.get_or_insert_with(|| began_at.elapsed());
    }
    (text, first.unwrap_or_default())
}

#[tokio::test]
async fn each_fault_of_a_watch_does_what_it_says_to_another_process() {
    let maps = || Some("configmaps".to_owned());
    let half_a_second = Duration::from_millis(500);
    let late = |resource| WatchFault::Late {
        resource,
        by: half_a_second,
    };
    let cut_every = |time| WatchFault::CutEvery {
        resource: maps(),
        time,
    };
    let expire = WatchFault::Expire {
        resource: "configmaps".to_owned(),
        n: 2,
    };
    let expire_on_connect = WatchFault::ExpireOnConnect {
        resource: "configmaps".to_owned(),
        n: 1,
    };
    let table = [
        (vec![], "abc"),
        (vec![late(maps())], "abc"),
        (vec![late(Some("pods".to_owned()))], "abc"),
        (vec![WatchFault::CutAfter(2)], "ab."),
        // The end comes before the first event does.
        (vec![late(maps()), cut_every(half_a_second / 5)], "."),
        (vec![expire], "a410."),
        (vec![expire_on_connect], "410"),
    ];
    for (faults, expected) in table {
        let (text, first) = came(faults.clone()).await;
        assert_eq!(text, expected, "{faults:?}");
        if faults == [late(maps())] {
            assert!(first >= half_a_second, "{first:?}");
        }
    }
}
