//! The phase of a task, from its FlinkDeployment.

use serde_json::{Value, json};

use crate::{
    config::Config,
    context::TaskContext,
    json::text,
    links::Variables,
    phase::{DOWNSTREAM_SYSTEM_ERROR, ErrorKind, Info, Phase, PhaseInfo},
};

/// The phase of a deployment. The state of the job counts first: it is the last word on what the user's code did.
pub(super) fn of(context: &TaskContext, deployment: &Value, config: &Config) -> PhaseInfo {
    let status = &deployment["status"];
    let job = text(&status["jobStatus"], "state");
    let manager = text(status, "jobManagerDeploymentStatus");
    let failure = |what: &str| {
        let message = match why(text(status, "error")) {
            Some(why) => format!("{what}: {why}"),
            None => what.to_owned(),
        };
        PhaseInfo::retryable(ErrorKind::User, DOWNSTREAM_SYSTEM_ERROR, message)
    };
    let phase = match (job, manager) {
        ("FINISHED", _) => PhaseInfo::of(Phase::Success, ""),
        ("FAILED", _) => failure("the Flink job failed"),
        ("CANCELED", _) => failure("the Flink job was cancelled by another client"),
        // Only a user can restore a failed deployment by hand: nothing restarts it.
        _ if text(status, "lifecycleState") == "FAILED" => failure("the FlinkDeployment failed"),
        ("RUNNING" | "FAILING" | "CANCELLING" | "RESTARTING", _) => {
            PhaseInfo::of(Phase::Running, format!("job is {}", job.to_lowercase()))
        }
        ("SUSPENDED", _) => PhaseInfo::of(Phase::Queued, "job is suspended"),
        ("CREATED" | "INITIALIZING", _) => PhaseInfo::of(
            Phase::Initializing,
            format!("job is {}", job.to_lowercase()),
        ),
        (_, "DEPLOYING") => PhaseInfo::of(Phase::Initializing, "job manager is deploying"),
        (_, "DEPLOYED_NOT_READY") => PhaseInfo::of(Phase::Initializing, "job manager is not ready"),
        (_, "READY") => PhaseInfo::of(Phase::Initializing, "job manager is ready"),
        (_, "ERROR") => {
            let why = why(text(status, "error")).unwrap_or_else(|| "no error is told".to_owned());
            PhaseInfo::of(
                Phase::Initializing,
                format!("job manager cannot be deployed: {why}"),
            )
        }
        _ => PhaseInfo::of(Phase::Queued, "waiting for the Flink operator"),
    };
    // A job manager that comes back does not undo what ran.
    let is_back = context.last.phase == Phase::Running && phase.phase == Phase::Initializing;
    let phase = if is_back {
        PhaseInfo {
            phase: Phase::Running,
            ..phase
        }
    } else {
        phase
    };
    phase.with_info(info(context, deployment, config))
}

/// The message of the operator's error, which is JSON, or plain text.
fn why(error: &str) -> Option<String> {
    let json: Option<Value> = serde_json::from_str(error).ok();
    let message = json.as_ref().map_or(error, |json| text(json, "message"));
    let message = if message.is_empty() { error } else { message };
    (!message.is_empty()).then(|| message.to_owned())
}

fn info(context: &TaskContext, deployment: &Value, config: &Config) -> Info {
    let mut variables = Variables::of_task(context);
    let name = text(&deployment["metadata"], "name");
    // The pods of the job manager begin with the name of the deployment.
    variables.pod(name, &context.namespace);
    let id = text(&deployment["status"]["jobStatus"], "jobId");
    variables.set("flinkJobID", id);
    Info {
        logs: config.logs.links(&context.template, &variables, "", false),
        custom: (!id.is_empty()).then(|| json!({"flinkJobId": id})),
        ..Info::default()
    }
}
