//! The laws of every controller, over everything that the rounds of stories have observed.

use longshore_core::{Action, Never};
use longshore_test::laws::{Decider, Read, all_reads, check_decider};
use proptest::sample::select;

use super::play::Play;
use crate::{
    deployment::{Observed, decide},
    record::{FlinkPlan, Record},
    rest::{RestCall, RestQuestion},
};

longshore_test::reads! {
    Observed {
        now, desired, job_manager, pods, config_maps, session_jobs, snapshots, heard, operator
    }
}

#[derive(Debug)]
struct OfDeployments;

impl Decider for OfDeployments {
    type Observed = Observed;
    type Status = Record;
    type Effect = Never;
    type Question = RestQuestion;

    fn decide(&self, observed: &Observed) -> FlinkPlan {
        decide(observed)
    }

    /// The objects of a cluster, a few records, Events and questions, and the answers that are used up.
    fn max_actions(&self) -> usize {
        24
    }

    fn reads(&self, observed: &Observed) -> Result<Vec<Read<Observed>>, String> {
        all_reads(observed)
    }

    /// A cluster is made under its attempt, and a job is stopped under the id of the operation.
    fn intent_of(&self, action: &Action<Record, Never, RestQuestion>) -> Option<String> {
        if let Action::Create(create) = action
            && create.resource.kind == "Deployment"
        {
            return Some(create.identity.value().to_owned());
        }
        if let Action::Ask(question) = action
            && let RestCall::Stop { trigger, .. } = &question.call
        {
            return Some(trigger.trigger_id.clone());
        }
        None
    }

    fn is_intended(&self, observed: &Observed, intent: &str) -> bool {
        let desired = observed.desired.present();
        desired.is_some_and(|it| it.seen["status"].to_string().contains(intent))
    }

    fn records_intent(&self, record: &Record, intent: &str) -> bool {
        record.status.to_string().contains(intent)
    }
}

/// What the rounds of stories have observed.
fn observations() -> Vec<Observed> {
    let mut seen = Vec::new();
    for mode in ["stateless", "savepoint", "last-state"] {
        let mut play = Play::running(mode);
        play.change("/spec/image", "flink:new".into());
        let kind = if mode == "savepoint" {
            "flink_stop"
        } else {
            "flink_cancel"
        };
        play.until_asked(kind);
        play.answer_accepted(kind);
        play.round();
        play.answer_savepoint("file:/sp/1");
        play.round();
        play.lose_job_manager();
        play.round();
        play.delete();
        play.round();
        seen.append(&mut play.seen);
    }
    let mut play = Play::highly_available();
    play.change("/spec/image", "flink:new".into());
    play.until_created();
    play.until_running();
    play.lose_job_manager();
    play.until_created();
    seen.append(&mut play.seen);
    seen
}

#[test]
fn the_laws_of_every_controller_hold() {
    let violations = check_decider(&OfDeployments, &select(observations()), 400);
    let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{}", lines.join("\n\n"));
}
