//! The limit of the processes of a pod.

use std::{
    fs,
    num::NonZeroU64,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use longshore_node::{
    LogOptions, NodeConfig, PodsLifetime,
    shim::protocol::{Command, ProcessesSpec},
};

use crate::{
    node_rig::{Rig, RunningNode, script, until_removed},
    shim_rig::{self, Profile},
    way_in::{ALL, read_all},
};

/// As many processes as a test may start.
const STARTED: usize = 50;
const LIMIT: u64 = 20;

/// A program that starts processes which stay, until it has them all or may not start another.
fn many() -> String {
    let all: Vec<String> = (1..=STARTED).map(|n| n.to_string()).collect();
    format!(
        "cat /proc/self/cgroup; (for i in {}; do sleep 1000 & echo up; done; echo all); echo over; exec sleep 1000",
        all.join(" ")
    )
}

/// The cgroup in which the processes of a pod are counted, by what one of them says.
fn cgroup(uid: &str, said: &str) -> PathBuf {
    let name = format!("longshore-{uid}");
    let found = said.lines().find_map(|line| {
        let (top, path) = line
            .split_once(":pids:")
            .map(|(_, path)| ("/sys/fs/cgroup/pids", path))
            .or_else(|| Some(("/sys/fs/cgroup", line.strip_prefix("0::")?)))?;
        let (above, _) = path.split_once(&name)?;
        let above = Path::new(top).join(above.trim_start_matches('/'));
        Some(above.join(&name))
    });
    found.unwrap_or_else(|| panic!("no cgroup of the pod: {said}"))
}

async fn node(rig: &Rig, limit: Option<NonZeroU64>) -> RunningNode {
    let config = rig.config(PodsLifetime::DieWithNode);
    rig.start_with(NodeConfig {
        pod_pids_limit: limit,
        ..config
    })
    .await
}

/// With the pids controller the kernel refuses a pod what is above its limit, also through commands beside its program, and
/// other pods do not feel it; without, the limit keeps nobody from anything. The line that it prints says which of them
/// this machine shows, and is for `.ci/run`.
#[tokio::test]
async fn a_pod_has_as_many_processes_as_it_may_have_and_leaves_the_others_to_other_pods() {
    let rig = Rig::new();
    let node = node(&rig, NonZeroU64::new(LIMIT)).await;
    let is_limited = node.node.limits_processes();
    rig.run("greedy", script(&many())).await;
    rig.until_phase("greedy", "Running").await;
    node.until_printed("greedy", "over\n").await;
    let log = node.log("greedy", LogOptions::default()).await;
    let n_up = log.lines().filter(|line| *line == "up").count();
    let at_limit = node.exec("greedy", "sleep 0; echo one more", ALL);
    let code = at_limit.exit.await.expect("it ends");
    rig.run("modest", script("cat /proc/self/cgroup; sleep 1000"))
        .await;
    rig.until_phase("modest", "Running").await;
    let beside = node.exec("modest", "sleep 0; cat /proc/self/cgroup", ALL);
    let beside = read_all(beside.stdout).await;
    node.until_printed("modest", &beside).await;
    if is_limited {
        let limit = usize::try_from(LIMIT).expect("a small number");
        assert!((1..limit).contains(&n_up), "{log}");
        assert!(!log.contains("all\n"), "{log}");
        assert_ne!(code, 0);
        for (pod, said) in [("greedy", &log), ("modest", &beside)] {
            let dir = cgroup(&rig.uid(pod).await, said);
            assert!(dir.exists(), "{}", dir.display());
            rig.delete(pod).await;
            until_removed(&dir).await;
        }
    } else {
        assert_eq!((n_up, code), (STARTED, 0), "{log}");
    }
    let by = match is_limited {
        true => "enforced by the kernel",
        false => "not enforced on this machine",
    };
    println!("process limits: {by}");
    node.stop().await;
}

#[tokio::test]
async fn a_limit_that_is_off_keeps_nobody_from_anything() {
    let rig = Rig::new();
    let node = node(&rig, None).await;
    assert!(!node.node.limits_processes());
    rig.run("greedy", script(&many())).await;
    rig.until_phase("greedy", "Running").await;
    node.until_printed("greedy", "over\n").await;
    let log = node.log("greedy", LogOptions::default()).await;
    assert!(log.contains("all\n"), "{log}");
    node.stop().await;
}

/// A place for cgroups of version 2 that root has.
fn hierarchy() -> Option<&'static Path> {
    let tops = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    tops.into_iter().find(|top| {
        let trial = top.join(format!("longshore-trial-it-{}", std::process::id()));
        let has_version_two = top.join("cgroup.controllers").exists();
        has_version_two
            && fs::create_dir(&trial)
                .and_then(|()| fs::remove_dir(&trial))
                .is_ok()
    })
}

/// Where no cgroup can be made, a directory stands for it, and the test reads what the kernel would.
#[test]
fn a_container_begins_in_the_cgroup_of_its_pod_which_goes_with_the_shim() {
    for profile in Profile::available() {
        let mut rig = shim_rig::Rig::start(profile, "stay");
        let real = hierarchy().filter(|_| profile != Profile::User);
        let name = format!("longshore-it-{}-{profile:?}", std::process::id());
        let pod = real.unwrap_or(rig.path()).join(&name);
        fs::create_dir(&pod).expect("a cgroup");
        fs::set_permissions(&pod, fs::Permissions::from_mode(0o777)).expect("its mode");
        let mut spec = rig.shell("cat /proc/self/cgroup");
        spec.processes = Some(ProcessesSpec {
            pod: pod.clone(),
            cgroup: pod.clone(),
        });
        let exit = rig.run_to_end(spec);
        assert_eq!(exit.code, 0, "{}", exit.message);
        rig.send(&Command::Quit);
        rig.wait_for_shim();
        if real.is_some() {
            let said = rig.output();
            assert!(
                said.lines().any(|line| line.ends_with(&format!("/{name}"))),
                "{said}"
            );
            assert!(!pod.exists());
        } else {
            let joined = fs::read_to_string(pod.join("cgroup.procs"));
            assert_eq!(joined.expect("written"), "0", "{profile:?}");
        }
    }
}
