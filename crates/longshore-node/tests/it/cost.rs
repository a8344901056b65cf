//! What the pod of a task costs the disk.

use longshore_node::shim::protocol::{ContainerSpec, Sandbox};

use crate::shim_rig::{Profile, Rig};

/// The program, with the places that a node gives it.
fn placed(rig: &Rig, script: &str) -> ContainerSpec {
    let mut spec = rig.shell(script);
    spec.log = rig.path().join("main.0.log");
    if let Sandbox::Full(root) | Sandbox::User(root) = &mut spec.sandbox {
        root.hide = vec![rig.path().into()];
    }
    spec
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
