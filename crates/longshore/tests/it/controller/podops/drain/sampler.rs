//! How many ready endpoints each Service has, ten times a second.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::Client;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior},
};

use super::{
    super::{http, place::Place},
    workloads::{GROUP, Workload},
};

/// Between samples.
const PERIOD: Duration = Duration::from_millis(100);
/// Of so many times at which there were too few endpoints, the state of the pods is kept.
const KEPT: usize = 10;

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Record {
    n_samples: u64,
    n_errors: u64,
    lasted: Duration,
    longest_gap: Duration,
    lowest: BTreeMap<&'static str, usize>,
    n_below: BTreeMap<&'static str, u64>,
    /// When, where, and what the pods looked like then.
    kept: Vec<String>,
}

impl Record {
    /// The fewest ready endpoints of a Service.
    pub(super) fn lowest(&self, service: &str) -> Option<usize> {
        self.lowest.get(service).copied()
    }

    /// In so many samples a Service had too few.
    pub(super) fn n_below(&self, service: &str) -> u64 {
        self.n_below.get(service).copied().unwrap_or(0)
    }

    pub(super) fn to_value(&self) -> Value {
        let longest_gap = u64::try_from(self.longest_gap.as_millis()).unwrap();
        json!({
            "count": self.n_samples, "failed": self.n_errors, "longest_gap_ms": longest_gap,
            "seconds": self.lasted.as_secs_f64(), "below": self.n_below.values().sum::<u64>(),
        })
    }

    pub(super) fn assert_nothing_below(&self) {
        assert!(self.n_samples > 0);
        assert!(
            self.n_below.is_empty(),
            "{:?}: {:#?}",
            self.n_below,
            self.kept
        );
    }
}

/// Looks until it is ended.
pub(super) struct Sampler {
    task: JoinHandle<Record>,
    stop: watch::Sender<bool>,
}

impl Sampler {
    pub(super) fn start(place: &Place<'_>, workloads: &[Workload]) -> Self {
        let (stop, stopped) = watch::channel(false);
        let eyes = Eyes {
            client: place.client().clone(),
            namespace: place.namespace.clone(),
            floors: workloads.iter().map(|it| (it.name, it.floor)).collect(),
            record: Record::default(),
            low: BTreeSet::new(),
        };
        let task = tokio::spawn(eyes.look_on(stopped));
        Self { task, stop }
    }

    pub(super) async fn end(self) -> Record {
        self.stop.send_replace(true);
        self.task.await.unwrap()
    }
}

struct Eyes {
    client: Client,
    namespace: String,
    floors: BTreeMap<&'static str, usize>,
    record: Record,
    /// The Services that had too few in the last sample.
    low: BTreeSet<&'static str>,
}

impl Eyes {
    async fn look_on(mut self, stopped: watch::Receiver<bool>) -> Record {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let began_at = Instant::now();
        let mut last = began_at;
        while !*stopped.borrow() {
            ticks.tick().await;
            let Ok(ready) = ready_endpoints(&self.client, &self.namespace).await else {
                self.record.n_errors += 1;
                continue;
            };
            self.record.n_samples += 1;
            self.record.longest_gap = self.record.longest_gap.max(last.elapsed());
            last = Instant::now();
            self.note(&ready, began_at.elapsed()).await;
        }
        self.record.lasted = began_at.elapsed();
        self.record
    }

    async fn note(&mut self, ready: &BTreeMap<String, usize>, at: Duration) {
        for (service, floor) in self.floors.clone() {
            let n_ready = ready.get(service).copied().unwrap_or(0);
            let lowest = self.record.lowest.entry(service).or_insert(n_ready);
            *lowest = n_ready.min(*lowest);
            if n_ready >= floor {
                self.low.remove(service);
                continue;
            }
            *self.record.n_below.entry(service).or_default() += 1;
            if self.low.insert(service) && self.record.kept.len() < KEPT {
                let pods = self.pods(service).await;
                let at = at.as_secs_f64();
                let kept =
                    format!("{service} has {n_ready}, not {floor}, after {at:.1} s: {pods:#?}");
                println!("drain: {kept}");
                self.record.kept.push(kept);
            }
        }
    }

    /// The pods of a Service: whether each is Ready, where it is, and its labels.
    async fn pods(&self, service: &str) -> Vec<String> {
        let path = format!(
            "/api/v1/namespaces/{}/pods?labelSelector={GROUP}={service}",
            self.namespace
        );
        let list = http::get(&self.client, &path).await.unwrap_or_default();
        let pods = list["items"].as_array().into_iter().flatten();
        let pods = pods.map(|pod| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            let conditions: Vec<String> = conditions
                .map(|it| format!("{}={}", it["type"], it["status"]))
                .collect();
            format!(
                "{} of {}, deleted {}, {conditions:?}, {}, {}",
                pod["metadata"]["name"],
                pod["spec"]["nodeName"],
                pod["metadata"]["deletionTimestamp"],
                pod["metadata"]["labels"],
                pod["metadata"]["annotations"],
            )
        });
        pods.collect()
    }
}

/// The ready endpoints of each Service, by the pods that they are.
pub(super) async fn ready_endpoints(
    client: &Client,
    namespace: &str,
) -> kube::Result<BTreeMap<String, usize>> {
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    let list = http::get(client, &path).await?;
    let mut ready: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for slice in list["items"].as_array().into_iter().flatten() {
        let service = slice["metadata"]["labels"]["kubernetes.io/service-name"].as_str();
        let pods = ready
            .entry(service.unwrap_or_default().to_owned())
            .or_default();
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            if endpoint["conditions"]["ready"] == true {
                pods.insert(endpoint["targetRef"]["uid"].to_string());
            }
        }
    }
    let counted = ready
        .into_iter()
        .map(|(service, pods)| (service, pods.len()));
    Ok(counted.collect())
}
