//! What the pod of a task costs the disk. Each file and directory is made and removed again, and some file systems take
//! longer for that than most tasks run. How many syncs the records cost is a test of the records.

use std::path::Path;

use longshore_node::shim::protocol::{Command, ContainerSpec, Sandbox};

use crate::{
    node_rig::{self, script},
    shim_rig::{Profile, Rig, eventually},
};

/// The names below a directory, but for the socket and for the layers over further file systems that the machine has
/// mounted.
fn entries(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(dir).expect("below").display().to_string();
            let others = ["main.0.upper-", "main.0.work-", "main.0.memory"];
            let is_other = others.iter().any(|it| name.starts_with(it)) && name != "main.0.upper-1";
            if name == "shim.sock" || is_other {
                continue;
            }
            all.push(name);
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    all.sort();
    all
}

/// The program, with the places that a node gives it.
fn placed(rig: &Rig, script: &str) -> ContainerSpec {
    let mut spec = rig.shell(script);
    spec.log = rig.path().join("main.0.log");
    if let Sandbox::Full(root) | Sandbox::User(root) = &mut spec.sandbox {
        root.hide = vec![rig.path().into()];
    }
    spec
}

#[test]
fn an_attempt_makes_one_directory_one_record_and_one_layer() {
    for profile in Profile::available() {
        let expected = ["main.0", "main.0.upper-1", "main.0/record.json"];
        let mut rig = Rig::start(profile, "die");
        let id = rig.run(placed(&rig, "exec sleep 1000"));
        rig.started();
        let found = entries(rig.path());
        // The kernel makes `work` for itself.
        let is_expected =
            |it: &String| expected.contains(&it.as_str()) || it.starts_with("main.0/work");
        assert!(found.iter().all(is_expected), "{profile:?}: {found:?}");
        assert!(found.contains(&"main.0/record.json".to_owned()));
        rig.send(&Command::Kill { id });
        rig.exited();
        eventually("what is of no more use is removed", || {
            entries(rig.path()) == ["main.0", "main.0/record.json"]
        });
        // A program that says something has a log besides.
        let mut rig = Rig::start(profile, "die");
        rig.run_to_end(placed(&rig, "echo hello"));
        eventually("what is of no more use is removed", || {
            entries(rig.path()) == ["main.0", "main.0.log", "main.0/record.json"]
        });
    }
}

/// Else the kernel writes all that anybody has written to that disk at the end of each container, and the end waits for it.
#[test]
fn the_layers_of_a_container_are_not_synced_at_its_end() {
    for profile in Profile::available() {
        if profile == Profile::None {
            continue;
        }
        let mut rig = Rig::start(profile, "stay");
        rig.run_to_end(placed(&rig, "cat /proc/self/mountinfo"));
        let log = std::fs::read_to_string(rig.path().join("main.0.log")).expect("a log");
        let layers: Vec<&str> = log.lines().filter(|it| it.contains("upperdir=")).collect();
        let below = rig.path().display().to_string();
        let own: Vec<&&str> = layers.iter().filter(|it| it.contains(&below)).collect();
        assert!(!own.is_empty(), "{profile:?}: {log}");
        for layer in own {
            assert!(layer.contains("volatile"), "{profile:?}: {layer}");
        }
    }
}

#[tokio::test]
async fn a_node_makes_a_directory_for_a_pod_and_nothing_in_it() {
    let rig = node_rig::Rig::new();
    let node = rig.start().await;
    rig.run("silent", script("exec sleep 1000")).await;
    rig.until_phase("silent", "Running").await;
    let dir = rig.pod_dir("silent").await;
    let found = entries(&dir);
    let of_attempt = |name: &String| name.starts_with("main.0");
    assert!(
        !found.is_empty() && found.iter().all(of_attempt),
        "{found:?}"
    );
    // The socket of a shim that dies with its node is in memory, where there is such a place.
    let has_memory = Path::new("/dev/shm").is_dir();
    assert_eq!(dir.join("shim.sock").exists(), !has_memory);
    assert!(!rig.path().join("node/logs").exists());
    node.stop().await;
}
