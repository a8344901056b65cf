//! What the policies of a Job say about pods that have failed and indexes that have succeeded. Pure.

use k8s_openapi::api::{
    batch::v1::{PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule},
    core::v1::{ContainerStatus, Pod},
};

use super::{indexes::Indexes, model::Desired};
use crate::controllers::workloads::pods;

/// What the end of a pod means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// One failure more.
    Counts,
    /// As if the pod had not been.
    Ignored,
    /// The index of the pod is given up.
    FailsIndex,
    /// The Job is given up, for this reason.
    FailsJob(String),
}

/// What the first rule that matches says of a pod that has failed.
pub(super) fn of_failure(desired: &Desired, pod: &Pod) -> Outcome {
    let policy = desired.spec.pod_failure_policy.iter();
    let mut rules = policy.flat_map(|it| &it.rules).enumerate();
    let matched = rules.find_map(|(index, rule)| Some((index, rule, cause(rule, pod)?)));
    let Some((index, rule, cause)) = matched else {
        return Outcome::Counts;
    };
    match rule.action.as_str() {
        "Ignore" => Outcome::Ignored,
        "FailIndex" => Outcome::FailsIndex,
        "FailJob" => {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let pod = format!("{namespace}/{}", pods::name(pod));
            let rule = format!("matching FailJob rule at index {index}");
            Outcome::FailsJob(match cause {
                Cause::Code(container, code) => format!(
                    "Container {container} for pod {pod} failed with exit code {code} {rule}"
                ),
                Cause::Condition(kind) => format!("Pod {pod} has condition {kind} {rule}"),
            })
        }
        _ => Outcome::Counts,
    }
}

/// Why a rule matches.
enum Cause<'a> {
    Code(&'a str, i32),
    Condition(&'a str),
}

fn cause<'a>(rule: &PodFailurePolicyRule, pod: &'a Pod) -> Option<Cause<'a>> {
    let status = pod.status.as_ref()?;
    if let Some(codes) = &rule.on_exit_codes {
        let containers = status.container_statuses.iter().flatten();
        let mut all = containers.chain(status.init_container_statuses.iter().flatten());
        return all.find_map(|it| code(codes, it));
    }
    let patterns = || rule.on_pod_conditions.iter().flatten();
    let mut conditions = status.conditions.iter().flatten();
    let found = conditions.find(|condition| {
        patterns().any(|it| it.type_ == condition.type_ && it.status == condition.status)
    });
    found.map(|it| Cause::Condition(&it.type_))
}

fn code<'a>(
    codes: &PodFailurePolicyOnExitCodesRequirement,
    container: &'a ContainerStatus,
) -> Option<Cause<'a>> {
    let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
    let is_meant = codes
        .container_name
        .as_ref()
        .is_none_or(|it| *it == container.name);
    let is_listed = codes.values.contains(&code);
    let is_inverted = codes.operator == "NotIn";
    let is_known = is_inverted || codes.operator == "In";
    let is_matched = is_known && is_listed != is_inverted;
    (is_meant && code != 0 && is_matched).then_some(Cause::Code(&container.name, code))
}

/// Which rule of the success policy holds, of a Job with so many completions.
pub(super) fn of_success(desired: &Desired, end: usize, succeeded: &Indexes) -> Option<String> {
    if succeeded.total() == 0 {
        return None;
    }
    let rules = &desired.spec.success_policy.as_ref()?.rules;
    let is_met = |count: i32, n: usize| usize::try_from(count).is_ok_and(|count| n >= count);
    let holds = rules.iter().position(|rule| match &rule.succeeded_indexes {
        Some(indexes) => {
            let needed = Indexes::parse(indexes, end);
            let n_common = needed.n_common(succeeded);
            let is_enough = rule.succeeded_count.is_some_and(|it| is_met(it, n_common));
            needed.total() > 0 && (n_common == needed.total() || is_enough)
        }
        None => {
            let n_succeeded = succeeded.total();
            rule.succeeded_count
                .is_some_and(|it| is_met(it, n_succeeded))
        }
    });
    holds.map(|index| format!("Matched rules at index {index}"))
}
