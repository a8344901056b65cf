//! How stories end when nothing goes wrong on the way.

use longshore_test::{FaultPlan, Faults, laws::replay};

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
    let _ = Faults::none();
}
