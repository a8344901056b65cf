//! Containers with a memory limit: what the node makes of the kernel's word, and the kernel's own part.

use std::fs;

use longshore_node::shim::protocol::{Command, ExitReason, MemorySpec};
use serde_json::json;

use crate::{
    node_rig::{self, end, script},
    shim_rig::{Profile, Rig, eventually},
};

const LIMIT: u64 = 32 << 20;

/// A directory stands for the cgroup: the test writes into it what the kernel would.
#[test]
fn an_end_for_want_of_memory_is_told_from_others() {
    const KILLED: &str = "low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 1\n";
    const UNHARMED: &str = "low 0\nhigh 0\nmax 7\noom 0\noom_kill 0\noom_group_kill 0\n";
    for profile in Profile::available() {
        for (events, is_killed, code, reason) in [
            (KILLED, true, 137, ExitReason::OomKilled),
            (UNHARMED, true, 137, ExitReason::Error),
            // The program has done without the process that was killed.
            (KILLED, false, 0, ExitReason::Completed),
        ] {
            let mut rig = Rig::start(profile, "stay");
            let cgroup = rig.path().join("cgroup");
            let mut spec = rig.shell("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done");
            spec.memory = Some(MemorySpec {
                cgroup: cgroup.clone(),
                limit: LIMIT,
            });
            let id = rig.run(spec);
            eventually("it is up", || rig.output() == "up");
            let said = |file: &str| fs::read_to_string(cgroup.join(file)).unwrap_or_default();
            let (limit, joined) = (said("memory.max"), said("cgroup.procs"));
            assert_eq!((limit, joined.as_str()), (LIMIT.to_string(), "0"));
            fs::write(cgroup.join("memory.events"), events).expect("written");
            rig.send(&if is_killed {
                Command::Kill { id }
            } else {
                Command::Signal { id, signal: 15 }
            });
            let exit = rig.exited();
            assert_eq!((exit.code, exit.reason), (code, reason), "{profile:?}");
        }
    }
}

#[test]
fn a_cgroup_that_cannot_be_made_is_why_a_container_does_not_start() {
    for profile in Profile::available() {
        let mut rig = Rig::start(profile, "stay");
        let mut spec = rig.shell("true");
        spec.memory = Some(MemorySpec {
            cgroup: rig.path().join("none/cgroup"),
            limit: LIMIT,
        });
        let exit = rig.run_to_end(spec);
        assert_eq!(exit.reason, ExitReason::StartError, "{profile:?}");
        let message = &exit.message;
        assert!(message.contains("cannot limit its memory"), "{message}");
    }
}

/// With cgroups of version 2 the kernel kills the one that wants too much; without, the limit keeps nobody from running.
/// The line that it prints says which of them this machine shows, and is for `.ci/run`.
#[tokio::test]
async fn a_container_that_uses_too_much_memory_is_told_as_killed_for_it() {
    let rig = node_rig::Rig::new();
    let node = rig.start().await;
    let is_limited = node.node.limits_memory();
    // The first one keeps all of an endless line.
    let program = if is_limited {
        "tail /dev/zero"
    } else {
        "head -c 64M /dev/zero | tail | wc -c"
    };
    let mut spec = script(program);
    spec["containers"][0]["resources"] = json!({"limits": {"memory": LIMIT.to_string()}});
    rig.run("hungry", spec).await;
    let status = rig
        .until("hungry", "ended", |it| !end(it, 0).is_null())
        .await;
    let end = end(&status, 0);
    let (code, reason, by) = if is_limited {
        (137, "OOMKilled", "enforced by the kernel")
    } else {
        (0, "Completed", "not enforced on this machine")
    };
    assert_eq!(
        (&end["exitCode"], &end["reason"]),
        (&json!(code), &json!(reason))
    );
    println!("memory limits: {by}");
    node.stop().await;
}
