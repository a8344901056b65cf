//! What a controller asked an API server for, as it counts itself.

use std::collections::BTreeMap;

use super::replica::page;

/// How often, by verb and resource, as `create pods`.
pub(super) type Requests = BTreeMap<String, u64>;

/// The requests that this client of a process made so far.
pub(super) async fn of_metrics(metrics: &str, client: &str) -> Requests {
    let mut requests = Requests::new();
    for (verb, resource, _, n) in counted(metrics, client).await {
        *requests.entry(format!("{verb} {resource}")).or_default() += n;
    }
    requests
}

/// Verb, resource, code of the answer, how often.
pub(super) async fn counted(metrics: &str, client: &str) -> Vec<(String, String, String, u64)> {
    let text = page(metrics, "/metrics").await;
    let of_client = format!("longshore_api_requests_total{{client=\"{client}\",");
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix(&of_client));
    lines
        .map(|rest| {
            let label = |name: &str| {
                let (_, value) = rest.split_once(&format!("{name}=\"")).unwrap();
                value.split('"').next().unwrap().to_owned()
            };
            let n = rest.rsplit(' ').next().unwrap().parse().unwrap();
            (label("verb"), label("resource"), label("code"), n)
        })
        .collect()
}
