//! How stories end when nothing goes wrong on the way, and what they cost.

use std::time::Duration;

use longshore_test::{
    FaultPlan, WatchFault,
    faults::Point,
    laws::{Run, replay},
};

use crate::stories::{self, Story};

fn digest(story: &Story) -> String {
    let run = replay(story, FaultPlan::none());
    assert_eq!(run.broken, [], "{}", run.log);
    run.digest
}

#[test]
fn stories_end_as_they_should() {
    let stories = [
        stories::SUCCESS,
        stories::RETRY,
        stories::POD_DELETED,
        stories::ABORTED,
        stories::ABORTED_AT_ONCE,
        stories::REMOVED,
        stories::REFUSED,
        stories::OVER_QUOTA,
        stories::NAME_TAKEN,
        stories::INVALID,
        stories::OUTPUTS_LOST,
        stories::NO_IMAGE,
    ];
    for story in stories {
        insta::assert_snapshot!(story.name.replace(' ', "_"), digest(&story));
    }
}

/// The requests of a run, but for those that any number of actions share.
fn requests(run: &Run) -> Vec<&Point> {
    let points = run.points.iter();
    points
        .filter(|point| {
            let is_shared = point.what.starts_with("watch ") || point.what.starts_with("list ");
            !is_shared && point.what != "report"
        })
        .collect()
}

#[test]
fn a_successful_action_costs_six_requests_whatever_the_watches_do() {
    let late = |resource: Option<&str>| WatchFault::Late {
        resource: resource.map(str::to_owned),
        by: Duration::from_secs(2),
    };
    let troubles = [
        Vec::new(),
        vec![late(Some("pods"))],
        vec![late(Some("taskactions"))],
        vec![late(None)],
        vec![WatchFault::CutAfter(1)],
        vec![WatchFault::CutAfter(1), WatchFault::Repeat],
        vec![WatchFault::NoBookmarks],
    ];
    let n_actions = stories::MANY.actions.len();
    for watches in troubles {
        let plan = FaultPlan {
            watches,
            ..FaultPlan::none()
        };
        let run = replay(&stories::MANY, plan.clone());
        assert_eq!(run.broken, [], "{}", run.log);
        let requests = requests(&run);
        assert!(
            requests.len() <= 6 * n_actions,
            "{} requests under {plan:?}: {requests:?}\n{}",
            requests.len(),
            run.log
        );
        let creates = requests.iter().filter(|point| point.what == "create pods");
        assert_eq!(creates.count(), n_actions);
        assert_eq!(run.digest.matches("Completed").count(), n_actions);
    }
}
