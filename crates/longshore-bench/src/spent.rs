//! What a controller took for its work.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use serde_json::{Value, json};

use crate::{figures::round, subject::Subject};

/// What a controller has spent.
pub(crate) struct Spent {
    requests: BTreeMap<String, u64>,
    cpu: Duration,
}

impl Spent {
    /// `None` where the controller is not ours.
    pub(crate) async fn of(subject: Option<&Subject>) -> Result<Option<Self>> {
        let Some(subject) = subject else {
            return Ok(None);
        };
        Ok(Some(Self {
            requests: subject.requests().await?,
            cpu: subject.cpu()?,
        }))
    }

    /// Since `before`, for each of `n` actions: requests by verb and resource, and CPU time in ms.
    pub(crate) fn each(&self, before: &Self, n: usize) -> (Value, f64) {
        let each_of = |spent: u64| json!(round(spent as f64 / n as f64));
        let mut each = serde_json::Map::new();
        let mut total = 0;
        for (what, after) in &self.requests {
            let spent = after - before.requests.get(what).copied().unwrap_or(0);
            if spent > 0 {
                total += spent;
                each.insert(what.clone(), each_of(spent));
            }
        }
        each.insert("total".to_owned(), each_of(total));
        let cpu = self.cpu.saturating_sub(before.cpu);
        let cpu_ms = round(cpu.as_secs_f64() * 1e3 / n as f64);
        (Value::Object(each), cpu_ms)
    }
}
