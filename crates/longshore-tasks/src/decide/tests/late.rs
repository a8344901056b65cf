//! What comes late: heads that do not start, and specs that change.

use super::*;

/// How long it may take to start is a matter of time, whatever the operator says of its resource.
#[test]
fn a_resource_that_runs_is_looked_at_again_while_its_head_pod_has_yet_to_start() {
    let plan = |phase: &str| {
        let running = action().started(Phase::Running, 0, "");
        let mut observed = running.pod(of(Phase::Running)).observed();
        if let Seen::Present(action) = &mut observed.action
            && let Work::Task(task) = &mut action.work
        {
            task.context.head_pod = Some(json!({"status": {"phase": phase}}));
        }
        words(&world::plan_of(&K8sConfig::default(), observed))
    };
    assert_eq!(plan("Pending"), "after 10s");
    assert_eq!(plan("Running"), "await");
}

#[test]
fn a_spec_that_is_spoiled_while_it_runs_ends_in_an_event_and_an_error() {
    let refused = |world: World| {
        let mut observed = world.observed();
        if let Seen::Present(action) = &mut observed.action {
            action.work = Work::Invalid(Invalid::spec("no template"));
        }
        let plan = world::plan_of(&K8sConfig::default(), observed);
        let error = plan.actions.iter().find_map(|step| {
            if let Do::Persist(record) = step {
                record.status.error_state.clone()
            } else {
                None
            }
        });
        let error = error.unwrap();
        assert_eq!(
            (
                error.kind.as_str(),
                error.code.as_str(),
                error.message.as_str()
            ),
            ("USER", "InvalidSpec", "no template")
        );
        words(&plan)
    };
    let running = action()
        .started(Phase::Running, 0, "")
        .pod(of(Phase::Running));
    assert_eq!(
        refused(running),
        "report FAILED.0 of 1; persist Running.0 of 1 failed InvalidSpec: no template; label; delete r-a-0; \
         warn FailedValidation; await"
    );
    assert_eq!(
        refused(action()),
        "persist .0 of 0 (nothing started) failed InvalidSpec: no template; label; warn FailedValidation; await"
    );
}
