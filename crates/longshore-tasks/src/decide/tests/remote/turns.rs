//! A job is announced and requested when its turn has come, and not before.

use super::*;
use crate::questions::fingerprint;

/// A job of which nothing was begun, and whose request announces the state `[2]`.
fn unsent(turn: Option<Turn>) -> Remote {
    after(Phase::Queued, Phase::Queued).unsent(turn)
}

impl Remote {
    fn unsent(self, turn: Option<Turn>) -> Self {
        let create = Call {
            request: Request::Create(Box::default()),
            ..call()
        };
        let unsent = self.step(|it| {
            it.call = Some(create);
            it.announced = Some(vec![2]);
        });
        unsent.with(|it| it.turn = turn)
    }

    /// CreateTask is asked for, with this state.
    fn asked(self, state: &[u8]) -> Self {
        let id = QuestionId::new("connector_create", fingerprint(state));
        self.with(|it| it.world.action.asked = vec![id])
    }
}

#[test]
fn nothing_is_on_record_of_a_job_before_its_turn() {
    let granted = || after(Phase::WaitingForResources, Phase::Queued);
    let news = "report QUEUED.0 of 1; persist Queued.0 of 1; ";
    let to_come = Some(Turn::ToCome);
    let now = Some(Turn::Now);
    check(vec![
        ("not asked for", unsent(None), "ask; await"),
        ("its turn is to come", unsent(to_come).asked(&[2]), "await"),
        (
            "its turn",
            unsent(now).asked(&[2]),
            "persist Queued.0 of 1; ask; await",
        ),
        (
            "its turn, and another one of a state that is over",
            unsent(now).asked(&[9]),
            "persist Queued.0 of 1; ask; use connector_create; await",
        ),
        (
            "it is asked for beside the news",
            granted().unsent(None),
            &format!("{news}ask; await"),
        ),
        (
            "its turn is to come, beside the news",
            granted().unsent(to_come),
            &format!("{news}await"),
        ),
        (
            "its turn, after the news",
            granted().unsent(now),
            &format!("{news}after 0ns"),
        ),
        (
            "deleted before its turn",
            unsent(to_come)
                .asked(&[2])
                .with(|it| it.world.action.is_deleting = true),
            "report ABORTED.0 of 1; release r-a; use connector_create; await",
        ),
    ]);
}

#[test]
fn the_record_of_a_turn_says_nothing_else_and_the_request_is_about_it() {
    let remote = unsent(Some(Turn::Now));
    let plan = world::plan_of(&remote.world.config, remote.observed());
    let [Do::Persist(record), Do::Ask(question)] = &plan.actions[..] else {
        panic!("{plan:?}");
    };
    let mut expected = remote.world.action.status.clone();
    expected.plugin_state = vec![2];
    assert_eq!(record.status, expected);
    let TaskQuestion::Connector { of, .. } = question else {
        panic!("{question:?}");
    };
    assert_eq!(*of, fingerprint(&[2]));
}
