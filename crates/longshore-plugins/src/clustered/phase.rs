//! The phase of a task, from its JobSet.

use jiff::Timestamp;
use longshore_api::flyte;
use longshore_proto::flyteidl2::{core::TaskLog, plugins::ClusteredTaskSpec};
use serde_json::Value;

use super::{WORKERS, build};
use crate::{
    config::Config,
    context::TaskContext,
    custom,
    json::text,
    kubeflow::newest_condition,
    links::Variables,
    phase::{ErrorKind, Info, Phase, PhaseInfo},
    pod,
};

/// The code of a failure that was the node's.
const HOST_MAINTENANCE: &str = "HostMaintenance";

/// The phase of a set.
pub(super) fn of(context: &TaskContext, set: &Value, config: &Config, now: Timestamp) -> PhaseInfo {
    let task: ClusteredTaskSpec = custom::read(&context.template).unwrap_or_default();
    let view = View {
        context,
        set,
        task: &task,
        config,
        now,
    };
    let condition = newest_condition(&set["status"]);
    let info = match condition.map(|condition| text(condition, "type")) {
        Some("Completed") => PhaseInfo::of(Phase::Success, ""),
        Some("Failed") => view.failed(condition.unwrap_or(&Value::Null)),
        Some("RestartingJobSet") => view.stuck().unwrap_or_else(|| {
            let reason = format!("restart in progress (attempt {})", view.restarts());
            PhaseInfo::of(Phase::Running, reason)
        }),
        None if !view.has_started() => {
            PhaseInfo::of(Phase::Initializing, "pods scheduling / DNS resolving")
        }
        None | Some(_) => view.stuck().or_else(|| view.lost()).unwrap_or_else(|| {
            let reason = format!("running (restart attempt {})", view.restarts());
            PhaseInfo::of(Phase::Running, reason)
        }),
    };
    info.with_info(view.info())
}

struct View<'a> {
    context: &'a TaskContext,
    set: &'a Value,
    task: &'a ClusteredTaskSpec,
    config: &'a Config,
    now: Timestamp,
}

impl View<'_> {
    fn restarts(&self) -> i64 {
        self.set["status"]["restarts"].as_i64().unwrap_or_default()
    }

    /// The number of pods in some state.
    fn workers(&self, state: &str) -> i64 {
        let jobs = self.set["status"]["replicatedJobsStatus"].as_array();
        let workers = jobs
            .into_iter()
            .flatten()
            .find(|job| job["name"] == WORKERS);
        workers
            .and_then(|job| job[state].as_i64())
            .unwrap_or_default()
    }

    fn has_started(&self) -> bool {
        let states = ["ready", "active", "succeeded", "failed"];
        self.restarts() > 0
            || states.into_iter().any(|state| self.workers(state) > 0)
            || self.context.last.phase >= Phase::Running
    }

    fn rank_0(&self) -> &Value {
        self.context
            .head_pod
            .as_ref()
            .map_or(&Value::Null, |pod| &pod["status"])
    }

    fn primary(&self) -> &str {
        text(
            &self.set["metadata"]["annotations"],
            flyte::ANNOTATION_JOB_SET_PRIMARY,
        )
    }

    /// Rank 0 cannot start, so nothing can.
    fn stuck(&self) -> Option<PhaseInfo> {
        pod::stuck(self.rank_0(), &self.config.k8s.grace, self.now)
    }

    /// Rank 0 failed, and the set will not be started again.
    fn lost(&self) -> Option<PhaseInfo> {
        let policy = self.set["spec"]["failurePolicy"]["maxRestarts"].as_i64();
        let budget = policy.unwrap_or_else(|| build::max_restarts(self.task).into());
        let is_exhausted = self.restarts() >= budget;
        (self.workers("failed") > 0 && is_exhausted)
            .then(|| pod::failed(self.rank_0(), self.primary()))
            .flatten()
    }

    fn failed(&self, condition: &Value) -> PhaseInfo {
        let policy = self.task.failure_policy.as_ref();
        if policy.is_some_and(|policy| policy.restart_on_host_maintenance) {
            let failure = pod::failed(self.rank_0(), self.primary()).or_else(|| self.stuck());
            let kind = failure
                .and_then(|failure| failure.error)
                .map(|error| error.kind);
            if kind == Some(ErrorKind::System) {
                let message =
                    "the node of rank 0 was taken away; the restarts of the task are not charged";
                return PhaseInfo {
                    cleanup_on_failure: true,
                    ..PhaseInfo::retryable(ErrorKind::System, HOST_MAINTENANCE, message)
                };
            }
        }
        let (reason, message) = (text(condition, "reason"), text(condition, "message"));
        PhaseInfo::retryable(ErrorKind::User, reason, message)
    }

    fn info(&self) -> Info {
        let has_started = |pod: &&Value| pod["status"]["phase"] != "Pending";
        let rank_0 = self.context.head_pod.as_ref().filter(has_started);
        let log_context = rank_0.map(|pod| {
            let mut context = pod::log_context([pod]);
            for pod in &mut context.pods {
                self.primary().clone_into(&mut pod.primary_container_name);
            }
            context
        });
        let status = &self.set["status"];
        Info {
            logs: self.links(),
            log_context,
            custom: status.is_object().then(|| status.clone()),
            ..Info::default()
        }
    }

    fn links(&self) -> Vec<TaskLog> {
        let metadata = &self.set["metadata"];
        let name = text(metadata, "name");
        let created = text(metadata, "creationTimestamp")
            .parse()
            .unwrap_or(self.now);
        let jobs = self.set["spec"]["replicatedJobs"].as_array();
        let workers = jobs
            .into_iter()
            .flatten()
            .find(|job| job["name"] == WORKERS);
        let n_pods = workers.and_then(|job| job.pointer("/template/spec/parallelism")?.as_u64());
        let mut links = Vec::new();
        for rank in 0..n_pods.unwrap_or_default() {
            let log_name = format!("rank-{rank}");
            let mut variables = Variables::of_task(self.context);
            variables.pod(
                &format!("{name}-{WORKERS}-0-{rank}"),
                &self.context.namespace,
            );
            variables.set("containerName", self.primary());
            variables.set("logName", &log_name);
            variables.times(created, self.now);
            let config = &self.config.logs;
            links.extend(config.links(&self.context.template, &variables, &log_name, false));
        }
        links
    }
}
