//! What a controller took for its work.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::{figures::round, requests::Counts, subject::Subject};

/// The requests and the CPU time of a controller, as far as they are known.
pub(crate) struct Spent {
    requests: Option<Counts>,
    cpu: Option<Duration>,
}

impl Spent {
    pub(crate) async fn of(subject: &Subject) -> Result<Self> {
        Ok(Self {
            requests: subject.requests().await?,
            cpu: subject.cpu()?,
        })
    }

    /// Since `before`, for each of `n` objects: requests by verb and resource, all of them, and those that are not about
    /// Events.
    pub(crate) fn requests_each(&self, before: &Self, n: usize) -> Value {
        let (Some(after), Some(before)) = (&self.requests, &before.requests) else {
            return Value::Null;
        };
        let each_of = |spent: u64| json!(round(spent as f64 / n as f64));
        let mut each = serde_json::Map::new();
        let (mut total, mut of_events) = (0, 0);
        for (what, after) in after {
            let spent = after.saturating_sub(before.get(what).copied().unwrap_or(0));
            if spent > 0 {
                total += spent;
                if what.ends_with(" events") {
                    of_events += spent;
                }
                each.insert(what.clone(), each_of(spent));
            }
        }
        each.insert("total".to_owned(), each_of(total));
        if of_events > 0 {
            each.insert("without_events".to_owned(), each_of(total - of_events));
        }
        Value::Object(each)
    }

    /// Since `before`, for each of `n` objects: CPU time in ms.
    pub(crate) fn cpu_ms_each(&self, before: &Self, n: usize) -> Option<f64> {
        let cpu = self.cpu?.saturating_sub(before.cpu?);
        Some(round(cpu.as_secs_f64() * 1e3 / n as f64))
    }
}
