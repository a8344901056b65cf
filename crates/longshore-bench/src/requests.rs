//! Requests that were counted somewhere, by verb and resource as in `create pods`, out of the text of its metrics.

use std::collections::BTreeMap;

/// Numbers of requests, by verb and resource.
pub(crate) type Counts = BTreeMap<String, u64>;

/// The requests of a process of ours, from its metrics:
/// `longshore_api_requests_total{client="tasks",verb="create",resource="pods",code="201"} 7`.
pub(crate) fn asked_by_us(text: &str) -> Counts {
    counted(text, "longshore_api_requests_total{", |label| {
        Some(format!("{} {}", label("verb")?, label("resource")?))
    })
}

/// The requests that an API server has served, from its metrics:
/// `apiserver_request_total{code="200",…,resource="pods",scope="resource",subresource="status",verb="PATCH",…}
/// 7`. Without watches, which it counts at their end.
pub(crate) fn asked_of_server(text: &str) -> Counts {
    counted(text, "apiserver_request_total{", |label| {
        let verb = match label("verb")? {
            "GET" => "get",
            "LIST" => "list",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" | "APPLY" => "patch",
            "DELETE" => "delete",
            "DELETECOLLECTION" => "deletecollection",
            _ => return None,
        };
        let resource = label("resource").filter(|resource| !resource.is_empty())?;
        Some(match label("subresource").unwrap_or_default() {
            "" => format!("{verb} {resource}"),
            part => format!("{verb} {resource}/{part}"),
        })
    })
}

/// Adds up what has the same key.
fn counted<'a>(
    text: &'a str,
    beginning: &str,
    key: impl Fn(&dyn Fn(&str) -> Option<&'a str>) -> Option<String>,
) -> Counts {
    let mut counts = Counts::new();
    for rest in text.lines().filter_map(|line| line.strip_prefix(beginning)) {
        let label = |name: &str| {
            let labels = rest.split(',');
            let mut values = labels.filter_map(|pair| pair.strip_prefix(name)?.strip_prefix("=\""));
            values.next()?.split('"').next()
        };
        // Go writes large ones as 1.234e+06.
        let n = rest.rsplit(' ').next().and_then(|n| n.parse::<f64>().ok());
        if let (Some(key), Some(n)) = (key(&label), n) {
            *counts.entry(key).or_default() += n as u64;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(counts: Counts) -> Vec<(String, u64)> {
        counts.into_iter().collect()
    }

    #[test]
    fn our_requests_are_counted_by_verb_and_resource() {
        let text = concat!(
            "# TYPE longshore_api_requests counter\n",
            "longshore_api_requests_total{client=\"tasks\",verb=\"create\",resource=\"pods\",code=\"201\"} 7\n",
            "longshore_api_requests_total{client=\"tasks\",verb=\"create\",resource=\"pods\",code=\"409\"} 1\n",
            "longshore_api_requests_total{client=\"tasks\",verb=\"watch\",resource=\"pods\",code=\"200\"} 1\n",
            "other_total{verb=\"create\",resource=\"pods\"} 3\n# EOF\n",
        );
        assert_eq!(
            pairs(asked_by_us(text)),
            [("create pods".to_owned(), 8), ("watch pods".to_owned(), 1)]
        );
    }

    #[test]
    fn requests_that_an_api_server_counts_have_the_same_names() {
        let line = |verb: &str, resource: &str, part: &str, n: &str| {
            format!(
                "apiserver_request_total{{code=\"200\",component=\"apiserver\",dry_run=\"\",group=\"\",\
                 resource=\"{resource}\",scope=\"resource\",subresource=\"{part}\",verb=\"{verb}\",version=\"v1\"}} {n}\n"
            )
        };
        let text = [
            line("POST", "pods", "", "7"),
            line("PATCH", "pods", "status", "1.5e+06"),
            line("APPLY", "pods", "status", "1"),
            line("WATCH", "pods", "", "3"),
            line("GET", "", "", "3"),
        ];
        assert_eq!(
            pairs(asked_of_server(&text.concat())),
            [
                ("create pods".to_owned(), 7),
                ("patch pods/status".to_owned(), 1_500_001)
            ]
        );
    }
}
