//! How long jobs may run that are no resources.

use longshore_proto::flyteidl2::core::TaskMetadata;

use super::*;

/// The plan about a task with a timeout of a minute, so many seconds after its status was written.
fn limited(remote: &Remote, seconds: u64) -> String {
    let mut observed = remote.observed();
    observed.now = EPOCH + Duration::from_secs(seconds);
    if let Seen::Present(action) = &mut observed.action
        && let Work::Remote(task) = &mut action.work
    {
        let timeout = prost_types::Duration {
            seconds: 60,
            nanos: 0,
        };
        task.context.template.metadata = Some(TaskMetadata {
            timeout: Some(timeout),
            ..TaskMetadata::default()
        });
    }
    words(&world::plan_of(&remote.world.config, observed))
}

#[test]
fn a_job_that_runs_for_longer_than_its_timeout_is_ended_and_has_failed() {
    let running = || after(Phase::Running, Phase::Running);
    let again = |remote: Remote| remote.with(|it| it.world.max_attempts = 2);
    let repeated = "report QUEUED.0 of 2; persist Queued.0 of 2 (nothing started); after 0ns";
    let over = "report FAILED.0 of 1; persist PermanentFailure.0 of 1 failed PermanentFailure: \
                the attempt ran for longer than its timeout of 1m0s; label; await";
    for (name, remote, seconds, expected) in [
        ("it runs", running(), 10, "after 30s"),
        ("not for long", running(), 40, "after 21s"),
        (
            "it is asked meanwhile",
            running().step(|it| it.call = Some(call())),
            40,
            "ask; after 21s",
        ),
        ("nothing was begun", again(running()), 61, repeated),
        ("and for the last time", running(), 61, over),
        ("its job goes on", running().begun(), 61, "end; await"),
        ("its job is ended", running().begun().aborted(), 61, over),
        (
            "its job is ended, and another begins",
            again(running().begun().aborted()),
            61,
            repeated,
        ),
        (
            "it waits in its queue",
            after(Phase::Queued, Phase::Queued),
            3600,
            "after 30s",
        ),
    ] {
        assert_eq!(limited(&remote, seconds), expected, "{name}");
    }
}
