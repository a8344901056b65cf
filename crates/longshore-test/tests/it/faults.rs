use std::time::Duration;

use futures::{StreamExt, future::BoxFuture};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::PostParams};
use longshore_kit::{Cache, ListWatch, Update};
use longshore_test::{
    Fault, FaultPlan, Faults, Point, SimClock, WatchFault, clock::cluster, config_map,
    faults::Refusal, quiet_logs,
};
use tokio::time::timeout;

async fn create(client: Client, name: &str) -> kube::Result<ConfigMap> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.create(&PostParams::default(), &config_map(name).typed())
        .await
}

fn first_create(fault: Fault) -> Faults {
    Faults::new(FaultPlan::at(Point::new("create configmaps", 1), fault))
}

#[tokio::test(start_paused = true)]
async fn each_fault_does_what_it_says() {
    let _logs = quiet_logs();
    let clock = SimClock::start();
    let table = [
        (Fault::LoseAnswer, true, "no answer"),
        (Fault::Refuse(Refusal::Conflict), false, "409"),
        (Fault::Refuse(Refusal::TooManyRequests(3)), false, "429"),
        (Fault::Refuse(Refusal::NoConnection), false, "no answer"),
        (Fault::KillBefore, false, "hangs"),
        (Fault::KillAfter, true, "hangs"),
        (Fault::Delay(Duration::from_secs(5)), true, "ok"),
        (Fault::LandLate(Duration::from_secs(5)), false, "no answer"),
    ];
    for (fault, happens, expected) in table {
        let cluster = cluster(clock.clone(), 1);
        let faults = first_create(fault);
        let process = faults.start();
        let created = create(process.client(cluster.service()), "a");
        let outcome = match timeout(Duration::from_secs(60), created).await {
            Err(_) => "hangs".to_owned(),
            Ok(Ok(_)) => "ok".to_owned(),
            Ok(Err(kube::Error::Api(status))) => status.code.to_string(),
            Ok(Err(_)) => "no answer".to_owned(),
        };
        assert_eq!(outcome, expected, "{fault:?}");
        let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
        let exists = maps.get_opt("a").await.unwrap().is_some();
        assert_eq!(exists, happens, "{fault:?}");
    }
}

/// The client asks again before the first request lands, and it lands although the process is dead by then.
#[tokio::test(start_paused = true)]
async fn a_late_request_lands_after_its_error_whatever_became_of_the_process() {
    let _logs = quiet_logs();
    let cluster = cluster(SimClock::start(), 1);
    let seconds = Duration::from_secs;
    let faults = Faults::new(FaultPlan {
        at: vec![
            (
                Point::new("create configmaps", 1),
                Fault::LandLate(seconds(5)),
            ),
            (Point::new("create configmaps", 2), Fault::KillBefore),
        ],
        ..FaultPlan::none()
    });
    let client = faults.start().client(cluster.service());
    let lost = create(client.clone(), "a").await;
    assert!(
        !matches!(lost, Ok(_) | Err(kube::Error::Api(_))),
        "{lost:?}"
    );
    let killed = timeout(seconds(1), create(client, "b")).await;
    assert!(killed.is_err(), "{killed:?}");
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    assert!(maps.get_opt("a").await.unwrap().is_none());
    tokio::time::sleep(seconds(5)).await;
    assert!(maps.get_opt("a").await.unwrap().is_some());
    assert!(maps.get_opt("b").await.unwrap().is_none());
    assert!(
        faults.log().contains("create configmaps #1 lands"),
        "{}",
        faults.log()
    );
    assert!(faults.requests().contains("create configmaps"));
}

#[tokio::test(start_paused = true)]
async fn a_killed_process_hangs_and_its_successor_works() {
    let _logs = quiet_logs();
    let cluster = cluster(SimClock::start(), 1);
    let faults = first_create(Fault::KillBefore);
    let first = faults.start();
    let client = first.client(cluster.service());
    let call = timeout(Duration::from_secs(1), create(client.clone(), "a"));
    let (killed, call) = tokio::join!(timeout(Duration::from_secs(1), faults.killed()), call);
    assert!(killed.is_ok() && call.is_err());
    assert!(
        timeout(Duration::from_secs(1), first.effect("commit", async {}))
            .await
            .is_err()
    );
    let second = faults.start();
    create(second.client(cluster.service()), "a").await.unwrap();
    assert!(first.is_dead() && !second.is_dead());
    assert_eq!(faults.count("create configmaps"), 2);
}

/// Runs a cache under watch faults while three ConfigMaps are made, and hands out what it saw: names, or `~` for a
/// bookmark or list.
async fn watched(watches: &[WatchFault], time: Duration) -> (Vec<String>, Faults) {
    let cluster = cluster(SimClock::start(), 1);
    let faults = Faults::new(FaultPlan {
        watches: watches.to_vec(),
        ..FaultPlan::none()
    });
    let client = faults.start().client(cluster.service());
    let cache = Cache::new();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let updates = ListWatch::new(maps).into_cache(cache);
    let names = updates.map(|update| match update {
        Update::Applied(map) | Update::Deleted(map) => map.metadata.name.clone().unwrap(),
        Update::Reached(_) => "~".to_owned(),
    });
    let writer = cluster.client();
    let collect: BoxFuture<'_, Vec<String>> = Box::pin(
        names
            .take_until(Box::pin(tokio::time::sleep(time)))
            .collect(),
    );
    let writes = async {
        for name in ["a", "b", "c"] {
            tokio::time::sleep(Duration::from_millis(500)).await;
            create(writer.clone(), name).await.unwrap();
        }
    };
    let (names, ()) = tokio::join!(collect, writes);
    (names, faults)
}

#[tokio::test(start_paused = true)]
async fn watch_faults_delay_cut_expire_and_repeat() {
    let _logs = quiet_logs();
    let seconds = Duration::from_secs;
    let (names, faults) = watched(&[], seconds(30)).await;
    assert_eq!(names, ["~", "a", "b", "c"]);
    assert_eq!(faults.watch_events()["configmaps"], 3);

    let late = [WatchFault::late(seconds(2))];
    assert_eq!(watched(&late, seconds(2)).await.0, ["~"]);
    assert_eq!(watched(&late, seconds(4)).await.0, ["~", "a", "b", "c"]);

    let (names, faults) = watched(&[WatchFault::CutAfter(1)], seconds(30)).await;
    assert_eq!(names, ["~", "a", "b", "c"]);
    assert!(faults.count("watch configmaps") >= 4);

    let (names, _) = watched(&[WatchFault::CutAfter(1), WatchFault::Repeat], seconds(30)).await;
    assert_eq!(
        names,
        ["~", "a", "a", "b", "b", "c", "c"],
        "the event before the cut comes again"
    );

    let outage = WatchFault::Outage {
        resource: "configmaps".to_owned(),
        n: 1,
        time: seconds(5),
    };
    let (names, _) = watched(&[outage], seconds(30)).await;
    assert_eq!(
        names,
        ["~", "a", "b", "c", "~"],
        "seen by the list after the outage"
    );

    let expired = WatchFault::Expire {
        resource: "configmaps".to_owned(),
        n: 2,
    };
    let (names, faults) = watched(std::slice::from_ref(&expired), seconds(30)).await;
    let listed_again = ["~", "a", "a", "b", "~", "c"];
    assert_eq!(names, listed_again);
    assert_eq!(faults.count("list configmaps"), 2);
    let (names, _) = watched(&[expired, WatchFault::Repeat], seconds(30)).await;
    assert_eq!(names, listed_again, "nothing older than the list comes");
}
