//! Jobs whose pods count themselves.

use std::{collections::BTreeSet, fs, path::Path};

use kube::Client;
use serde_json::{Value, json};

use super::{
    known::{Known, by_name},
    load::{delete, get},
};

pub(super) const JOBS: &str = "/apis/batch/v1/namespaces/load/jobs";
/// Pods that a Job needs.
const COMPLETIONS: usize = 2;

/// A Job whose pods each write their name to a file, which has the name of the Job. A pod that fails fails the Job.
pub(super) fn job(name: &str, counts: &Path) -> Value {
    let script = format!("echo \"$HOSTNAME\" >> /counts/{name}");
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {
            "completions": COMPLETIONS, "parallelism": COMPLETIONS, "backoffLimit": 0,
            "template": {"spec": {
                "restartPolicy": "Never",
                "volumes": [{"name": "counts", "hostPath": {"path": counts, "type": "Directory"}}],
                "containers": [{
                    "name": "main", "image": "any", "command": ["sh", "-c", script],
                    "env": [{"name": "HOSTNAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    "volumeMounts": [{"name": "counts", "mountPath": "/counts"}],
                }],
            }},
        },
    })
}

/// Counts the Jobs that are complete, and deletes them: ended pods take room on the node. Returns how many are not.
pub(super) async fn count(client: &Client, counts: &Path, known: &mut Known) -> usize {
    let mut jobs = by_name(&get(client, JOBS).await);
    let lost = known.jobs.iter().find(|name| !jobs.contains_key(*name));
    assert_eq!(lost, None, "a Job is lost");
    let is = |job: &Value, kind: &str| {
        let conditions = job["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|it| it["type"] == kind && it["status"] == "True")
    };
    // One that is being deleted was counted.
    jobs.retain(|_, job| job["metadata"]["deletionTimestamp"].is_null());
    let n_jobs = jobs.len();
    let mut n_complete = 0;
    for (name, job) in jobs {
        assert!(!is(&job, "Failed"), "{name}: {job}");
        if !is(&job, "Complete") {
            continue;
        }
        assert_eq!(job["status"]["succeeded"], COMPLETIONS, "{name}: {job}");
        let text = fs::read_to_string(counts.join(&name)).unwrap();
        let pods: BTreeSet<&str> = text.lines().collect();
        let n_runs = text.lines().count();
        assert_eq!((pods.len(), n_runs), (COMPLETIONS, COMPLETIONS), "{name}");
        let path = format!("{JOBS}/{name}?propagationPolicy=Background");
        delete(client, &path).await.unwrap();
        known.jobs.remove(&name);
        known.n_jobs += 1;
        n_complete += 1;
    }
    n_jobs - n_complete
}
