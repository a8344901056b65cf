//! A full disk: the end of a container that filled it is recorded all the same, and no request waits for space.

use std::path::Path;

use longshore_node::shim::protocol::{Command, ContainerSpec, ExitReason, MountSpec, Origin};
use longshore_test::on_a_small_disk;

use crate::shim_rig::{Profile, Rig};

/// Fills the disk that the rig is on, then ends with 3.
fn filling(rig: &Rig) -> ContainerSpec {
    let target = match rig.profile {
        Profile::None => rig.path().to_owned(),
        Profile::Full | Profile::User => "/disk".into(),
    };
    let big = target.join("big").display().to_string();
    rig.shell_with(
        &format!("cat /dev/zero > {big}; echo lost; exit 3"),
        MountSpec {
            origin: Origin::Node,
            within: None,
            source: rig.path().into(),
            target,
            read_only: false,
        },
    )
}

fn is_full(disk: &Path) -> bool {
    std::fs::write(disk.join("more"), [0; 4096]).is_err()
}

#[test]
fn the_end_of_a_container_that_filled_the_disk_is_recorded() {
    let name = "full_disk::the_end_of_a_container_that_filled_the_disk_is_recorded";
    on_a_small_disk(name, 1000, |disk| {
        for profile in Profile::available() {
            for on_loss in ["stay", "die"] {
                let mut rig = Rig::start_in(disk, profile, on_loss);
                let spec = filling(&rig);
                let exit = rig.run_to_end(spec);
                assert!(is_full(disk), "the test fills nothing");
                assert_eq!((exit.code, exit.reason), (3, ExitReason::Error));
                assert_eq!(rig.record()["exit"]["code"], 3, "{profile:?} {on_loss}");
                rig.hang_up();
                rig.wait_for_shim();
            }
        }
    });
}

#[test]
fn an_attempt_that_finds_no_room_fails_and_a_shim_that_is_told_to_end_does() {
    let name = "full_disk::an_attempt_that_finds_no_room_fails_and_a_shim_that_is_told_to_end_does";
    on_a_small_disk(name, 1000, |disk| {
        for profile in Profile::available() {
            let mut rig = Rig::start_in(disk, profile, "stay");
            // The directories are there; what lacks is room for a file in them.
            std::fs::create_dir_all(rig.path().join("main.0")).expect("directories");
            std::fs::create_dir_all(rig.path().join("log")).expect("directories");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            for dir in ["main.0", "log"] {
                std::fs::set_permissions(rig.path().join(dir), std::fs::Permissions::clone(&mode))
                    .expect("its mode");
            }
            let big = disk.join("big");
            drop(std::fs::write(&big, vec![0; 2_000_000]));
            let spec = rig.shell("exit 0");
            let exit = rig.run_to_end(spec.clone());
            assert_eq!((exit.code, exit.reason), (128, ExitReason::StartError));
            assert!(
                exit.message.contains("No space left on device"),
                "{}",
                exit.message
            );
            // It is not tried again, not even when there is room.
            std::fs::remove_file(big).expect("makes room");
            assert_eq!(rig.run_to_end(spec), exit);
            rig.send(&Command::Quit);
            rig.wait_for_shim();
        }
    });
}
