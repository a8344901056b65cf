//! What a shim promises, in every profile that this machine allows.

use longshore_node::shim::protocol::{Command, ExitReason, MountSpec, Origin, Report, Sandbox};

use crate::shim_rig::{Profile, Rig, eventually, is_alive, n_processes};

fn in_every_profile(test: impl Fn(Profile)) {
    for profile in Profile::available() {
        println!("profile {profile:?}");
        test(profile);
    }
}

fn in_mount_profiles(test: impl Fn(Profile)) {
    in_every_profile(|profile| {
        if profile != Profile::None {
            test(profile);
        }
    });
}

/// An argument that no other process of the machine has: a number of seconds to sleep.
fn marker(profile: Profile, test: u32) -> String {
    format!("9{test}{}.{}", profile as u32, std::process::id())
}

#[test]
fn exit_codes_and_signals_are_reported_as_kubernetes_does() {
    in_every_profile(|profile| {
        for (script, code, signal, reason) in [
            ("exit 0", 0, None, ExitReason::Completed),
            ("exit 3", 3, None, ExitReason::Error),
            ("kill -KILL $$", 137, Some(9), ExitReason::Error),
            ("kill -SEGV $$", 139, Some(11), ExitReason::Error),
        ] {
            let mut rig = Rig::start(profile, "stay");
            let spec = rig.shell(script);
            let exit = rig.run_to_end(spec);
            assert_eq!(
                (exit.code, exit.signal, exit.reason),
                (code, signal, reason),
                "{script}"
            );
            assert!(exit.started_at.is_some_and(|at| at <= exit.finished_at));
        }
    });
}

#[test]
fn a_program_that_cannot_start_says_which_and_why() {
    in_every_profile(|profile| {
        for (argv, code, message) in [
            (
                "no-such-program",
                127,
                "the program no-such-program is in no directory of PATH=/usr/bin:/bin",
            ),
            ("/no/such", 127, "the program /no/such does not exist"),
            (
                "/etc/passwd",
                126,
                "cannot execute /etc/passwd: Permission denied",
            ),
        ] {
            let mut rig = Rig::start(profile, "stay");
            let mut spec = rig.shell("");
            spec.argv = vec![argv.into()];
            let exit = rig.run_to_end(spec);
            assert_eq!((exit.code, exit.reason), (code, ExitReason::StartError));
            assert_eq!(
                exit.message,
                format!("cannot start container main: {message}")
            );
            assert_eq!(exit.started_at, None);
        }
    });
}

/// The init waits until the program has started, so nothing on the way may wait for the init.
#[test]
fn why_a_program_cannot_start_may_be_longer_than_a_pipe_holds() {
    in_every_profile(|profile| {
        let mut rig = Rig::start(profile, "stay");
        let mut spec = rig.shell("");
        let path = format!("/{}", "x".repeat(100_000));
        spec.argv = vec!["no-such-program".into()];
        spec.env = vec![("PATH".into(), path.clone())];
        let exit = rig.run_to_end(spec);
        assert_eq!((exit.code, exit.reason), (127, ExitReason::StartError));
        assert!(exit.message.ends_with(&path), "{}", exit.message.len());
    });
}

#[test]
fn sigterm_reaches_the_program_and_ends_one_that_does_not_care() {
    in_every_profile(|profile| {
        for (script, code) in [
            (
                "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done",
                7,
            ),
            ("echo ready; exec sleep 60", 143),
        ] {
            let mut rig = Rig::start(profile, "stay");
            let spec = rig.shell(script);
            let id = rig.run(spec);
            rig.started();
            eventually("the program is ready", || rig.output() == "ready");
            rig.send(&Command::Signal { id, signal: 15 });
            assert_eq!(rig.exited().code, code, "{script}");
        }
    });
}

#[test]
fn a_kill_takes_daemons_that_left_their_parents() {
    in_every_profile(|profile| {
        let sleep = marker(profile, 1);
        let mut rig = Rig::start(profile, "stay");
        let spec = rig.shell(&format!(
            "(setsid sh -c 'trap \"\" TERM; sleep {sleep} & wait' &) ; sleep 60"
        ));
        let id = rig.run(spec);
        rig.started();
        eventually("the daemon runs", || n_processes(&sleep) == 1);
        rig.send(&Command::Kill { id });
        assert_eq!(rig.exited().code, 137);
        assert_eq!(
            n_processes(&sleep),
            0,
            "the daemon survived in profile {profile:?}"
        );
    });
}

#[test]
fn the_end_of_the_program_is_the_end_of_its_daemons() {
    in_every_profile(|profile| {
        let sleep = marker(profile, 2);
        let mut rig = Rig::start(profile, "stay");
        let spec = rig.shell(&format!("(setsid sleep {sleep} &); exit 4"));
        assert_eq!(rig.run_to_end(spec).code, 4);
        assert_eq!(n_processes(&sleep), 0);
    });
}

#[test]
fn output_is_logged_by_stream_and_the_last_line_needs_no_end() {
    in_every_profile(|profile| {
        let mut rig = Rig::start(profile, "stay");
        let spec = rig.shell("echo out; echo err >&2; printf last");
        rig.run_to_end(spec);
        let log = std::fs::read_to_string(rig.log()).expect("a log");
        let mut lines: Vec<_> = log
            .lines()
            .map(|l| l.split_once(' ').expect("a time").1)
            .collect();
        lines.sort_unstable();
        assert_eq!(lines, ["stderr F err", "stdout F last", "stdout F out"]);
    });
}

#[test]
fn a_volume_is_at_its_mount_path_and_nowhere_else() {
    in_mount_profiles(|profile| {
        // A path below a directory that an unprivileged user cannot write to.
        for target in [
            "/data/deep/er",
            "/usr/lib/longshore-test",
            "/etc/longshore-test",
        ] {
            let mut rig = Rig::start(profile, "stay");
            let source = rig.path().join("volume");
            std::fs::create_dir(&source).expect("a volume");
            std::fs::set_permissions(&source, std::os::unix::fs::PermissionsExt::from_mode(0o777))
                .expect("its mode");
            std::fs::write(source.join("in"), "hello").expect("a file");
            let mount = MountSpec {
                origin: Origin::Node,
                within: None,
                source: source.clone(),
                target: target.into(),
                read_only: false,
            };
            let script =
                format!("cat {target}/in; echo; echo back > {target}/out; ls /usr/bin/env");
            let spec = rig.shell_with(&script, mount);
            let exit = rig.run_to_end(spec);
            assert_eq!(exit.code, 0, "{target}: {} {}", exit.message, rig.output());
            assert_eq!(rig.output(), "hello\n/usr/bin/env");
            assert_eq!(
                std::fs::read_to_string(source.join("out")).expect("written"),
                "back\n"
            );
            assert!(
                !std::path::Path::new(target).exists(),
                "the host got {target}"
            );
        }
    });
}

#[test]
fn a_read_only_volume_refuses_writes() {
    in_mount_profiles(|profile| {
        let mut rig = Rig::start(profile, "stay");
        let source = rig.path().join("volume");
        std::fs::create_dir(&source).expect("a volume");
        let mount = MountSpec {
            origin: Origin::Node,
            within: None,
            source: source.clone(),
            target: "/data".into(),
            read_only: true,
        };
        let spec = rig.shell_with("echo no > /data/x && exit 9; exit 0", mount);
        assert_eq!(rig.run_to_end(spec).code, 0);
        assert!(!source.join("x").exists());
    });
}

#[test]
fn a_mount_path_behind_a_link_stays_inside_the_container() {
    in_mount_profiles(|profile| {
        let mut rig = Rig::start(profile, "stay");
        let source = rig.path().join("volume");
        std::fs::create_dir(&source).expect("a volume");
        std::fs::write(source.join("in"), "hello").expect("a file");
        // On every current distribution /var/run is a link to /run.
        let mount = MountSpec {
            origin: Origin::Node,
            within: None,
            source,
            target: "/var/run/longshore-test".into(),
            read_only: true,
        };
        let spec = rig.shell_with("cat /var/run/longshore-test/in", mount);
        assert_eq!(rig.run_to_end(spec).code, 0);
        assert_eq!(rig.output(), "hello");
        assert!(!std::path::Path::new("/run/longshore-test").exists());
    });
}

#[test]
fn a_sub_path_leads_nowhere_but_into_its_volume() {
    in_mount_profiles(|profile| {
        for (link, code, expected) in [
            ("real", 0, "hello"),
            ("../outside", 128, ""),
            ("/", 128, ""),
        ] {
            let mut rig = Rig::start(profile, "stay");
            let volume = rig.path().join("volume");
            for dir in ["volume/real", "outside"] {
                std::fs::create_dir_all(rig.path().join(dir)).expect("a directory");
            }
            std::fs::write(volume.join("real/in"), "hello").expect("a file");
            // As the program of an earlier attempt left it.
            std::os::unix::fs::symlink(link, volume.join("sub")).expect("a link");
            let mount = MountSpec {
                source: volume.join("sub"),
                origin: Origin::Node,
                within: Some(volume),
                target: "/data".into(),
                read_only: false,
            };
            let spec = rig.shell_with("cat /data/in", mount);
            let exit = rig.run_to_end(spec);
            assert_eq!(exit.code, code, "{link}: {}", exit.message);
            assert_eq!(rig.output(), expected, "{link}");
            let is_refused = exit.message.contains("without leaving its volume");
            assert_eq!(is_refused, code == 128, "{link}: {}", exit.message);
        }
    });
}

#[test]
fn a_program_sees_nothing_of_what_is_hidden() {
    in_mount_profiles(|profile| {
        // A program's /tmp is its own.
        let host = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let hidden = [host.path().join("keys"), host.path().join("token")];
        std::fs::create_dir(&hidden[0]).expect("a directory");
        for file in ["keys/ca.key", "token", "beside"] {
            std::fs::write(host.path().join(file), "secret").expect("a file");
        }
        let at = host.path().display().to_string();
        let script = format!("cat {at}/beside {at}/token && ls {at}/keys");
        for (hide, output) in [
            (&hidden[..0], "secretsecretca.key"),
            (&hidden[..], "secret"),
        ] {
            let mut rig = Rig::start(profile, "stay");
            let mut spec = rig.shell(&script);
            if let Sandbox::Full(root) | Sandbox::User(root) = &mut spec.sandbox {
                root.hide = hide.to_vec();
            }
            let exit = rig.run_to_end(spec);
            assert_eq!(exit.code, 0, "{} {}", exit.message, rig.output());
            assert_eq!(rig.output(), output);
        }
    });
}

#[test]
fn writes_to_the_host_stay_private() {
    in_mount_profiles(|profile| {
        let mut rig = Rig::start(profile, "stay");
        let spec =
            rig.shell("echo x > /tmp/longshore-private-test && cat /tmp/longshore-private-test");
        let exit = rig.run_to_end(spec);
        assert_eq!(exit.code, 0, "{}", rig.output());
        assert!(!std::path::Path::new("/tmp/longshore-private-test").exists());
    });
}

#[test]
fn a_container_sees_itself_as_alone() {
    in_mount_profiles(|profile| {
        let mut rig = Rig::start(profile, "stay");
        let spec = rig.shell("hostname; ls /proc | grep -c '^[0-9]*$'; test -c /dev/null && test -d /sys/kernel && echo dev");
        rig.run_to_end(spec);
        let output = rig.output();
        let lines: Vec<_> = output.lines().collect();
        assert_eq!((lines[0], lines[2]), ("box", "dev"));
        assert!(lines[1].parse::<u32>().expect("a count") < 8, "{output}");
    });
}

#[test]
fn every_user_may_use_the_devices_and_nobody_change_them() {
    in_mount_profiles(|profile| {
        for uid in [None, Some(1234)] {
            let mut rig = Rig::start(profile, "stay");
            let mut spec = rig.shell(
                "echo x > /dev/null && head -c 3 /dev/zero | wc -c && head -c 1 /dev/urandom | wc -c; \
                 chmod 600 /dev/null 2>/dev/null || echo kept; ls /dev | tr '\\n' ' '",
            );
            spec.user.uid = uid;
            rig.run_to_end(spec);
            let devices = "fd full null ptmx pts random shm stderr stdin stdout termination-log tty urandom zero ";
            assert_eq!(
                rig.output(),
                format!("3\n1\nkept\n{devices}"),
                "{profile:?}"
            );
        }
    });
}

#[test]
fn a_read_only_root_has_nothing_writable_but_volumes_and_devices() {
    in_mount_profiles(|profile| {
        let mut rig = Rig::start(profile, "stay");
        let script = "\
            echo -n said > /tmp/said; \
            for dir in / /tmp /tmp/deep /run /etc /usr /var /var/tmp /home /frozen /data/frozen; do \
            touch $dir/longshore-x 2>/dev/null && echo $dir; done; \
            touch /data/x /tmp/deep/work/x /dev/shm/x && echo y > /dev/null && echo y > /proc/self/comm";
        let mut spec = rig.shell(script);
        let (Sandbox::Full(root) | Sandbox::User(root)) = &mut spec.sandbox else {
            unreachable!("a profile with mounts");
        };
        root.read_only = true;
        spec.termination.path = "/tmp/said".into();
        let (Sandbox::Full(root) | Sandbox::User(root)) = &mut spec.sandbox else {
            unreachable!("a profile with mounts");
        };
        for (target, read_only) in [
            ("/data", false),
            ("/data/frozen", true),
            ("/tmp/deep/work", false),
            ("/frozen", true),
        ] {
            let source = rig.path().join(target.replace('/', "_"));
            std::fs::create_dir(&source).expect("a volume");
            std::fs::set_permissions(&source, std::os::unix::fs::PermissionsExt::from_mode(0o777))
                .expect("its mode");
            root.mounts.push(MountSpec {
                origin: Origin::Node,
                within: None,
                source,
                target: target.into(),
                read_only,
            });
        }
        let exit = rig.run_to_end(spec);
        assert_eq!(
            (exit.code, rig.output(), exit.message.as_str()),
            (0, String::new(), "said")
        );
    });
}

#[test]
fn the_program_runs_as_the_wanted_user() {
    in_mount_profiles(|profile| {
        let mut rig = Rig::start(profile, "stay");
        let mut spec = rig.shell("id -u; id -g; echo visible > /dev/stdout");
        spec.user.uid = Some(1234);
        spec.user.gid = Some(4321);
        rig.run_to_end(spec);
        assert_eq!(rig.output(), "1234\n4321\nvisible");
    });
}

#[test]
fn the_termination_message_is_the_file_or_the_end_of_the_log() {
    in_mount_profiles(|profile| {
        let mut rig = Rig::start(profile, "stay");
        let spec = rig.shell("echo -n '{\"rows\":3}' > /dev/termination-log");
        assert_eq!(rig.run_to_end(spec).message, "{\"rows\":3}");

        let mut rig = Rig::start(profile, "stay");
        // Not the name of what the machine may have there.
        let path = format!("/tmp/termination-of-{}/b", std::process::id());
        let mut spec = rig.shell(&format!("echo deep > {path}; exit 0"));
        spec.termination.path = path.into();
        assert_eq!(rig.run_to_end(spec).message, "deep\n");

        // The memory that it is in goes with the container, which is killed.
        let mut rig = Rig::start(profile, "stay");
        let id = rig.run(
            rig.shell("echo -n last > /dev/termination-log; echo said; while :; do sleep 1; done"),
        );
        eventually("it has said its last word", || rig.output() == "said");
        rig.send(&Command::Kill { id });
        let exit = rig.exited();
        assert_eq!((exit.code, exit.message.as_str()), (137, "last"));
    });
    in_every_profile(|profile| {
        let mut rig = Rig::start(profile, "stay");
        let mut spec = rig.shell("for i in $(seq 100); do echo line $i; done; exit 1");
        spec.termination.fallback_to_logs = true;
        let message = rig.run_to_end(spec).message;
        assert!(
            message.starts_with("line 21\n") && message.ends_with("line 100"),
            "{message}"
        );
    });
}

#[test]
fn a_volume_at_dev_hides_neither_other_volumes_nor_the_termination_message() {
    in_mount_profiles(|profile| {
        let mut rig = Rig::start(profile, "stay");
        for dir in ["devices", "more"] {
            let dir = rig.path().join(dir);
            std::fs::create_dir(&dir).expect("a directory");
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            std::fs::set_permissions(&dir, open).expect("its mode");
        }
        std::fs::write(rig.path().join("more/file"), "found").expect("a file");
        let volume = |name: &str, target: &str| MountSpec {
            origin: Origin::Node,
            within: None,
            source: rig.path().join(name),
            target: target.into(),
            read_only: false,
        };
        let script =
            "cat /dev/more/file; ls -a / | grep longshore; echo -n said > /dev/termination-log";
        let mut spec = rig.shell_with(script, volume("devices", "/dev"));
        if let Sandbox::Full(root) | Sandbox::User(root) = &mut spec.sandbox {
            root.mounts.push(volume("more", "/dev/more"));
        }
        let exit = rig.run_to_end(spec);
        assert_eq!(
            (exit.code, exit.message.as_str()),
            (0, "said"),
            "{profile:?}"
        );
        assert_eq!(rig.output(), "found", "{profile:?}");
    });
}

#[test]
fn a_second_start_of_an_attempt_starts_nothing() {
    in_every_profile(|profile| {
        let sleep = marker(profile, 3);
        let mut rig = Rig::start(profile, "stay");
        let spec = rig.shell(&format!("exec sleep {sleep}"));
        rig.run(spec.clone());
        let first = rig.started();
        rig.run(spec);
        assert_eq!(rig.started().pid, first.pid);
        eventually("the program runs, once", || n_processes(&sleep) == 1);
    });
}

#[test]
fn a_shim_that_stays_outlives_its_node_and_tells_the_next_one() {
    in_every_profile(|profile| {
        let mut rig = Rig::start(profile, "stay");
        let gate = rig.path().join("gate");
        let spec = rig.shell_with(
            &format!(
                "until test -e {}/gate; do sleep 0.01; done; exit 5",
                if profile == Profile::None {
                    rig.path().to_str().expect("text")
                } else {
                    "/gate"
                }
            ),
            MountSpec {
                origin: Origin::Node,
                within: None,
                source: rig.path().into(),
                target: "/gate".into(),
                read_only: true,
            },
        );
        rig.run(spec);
        let first = rig.started();
        rig.hang_up();
        rig.reconnect();
        assert_eq!(rig.started(), first);
        std::fs::write(&gate, "").expect("opens the gate");
        assert_eq!(rig.exited().code, 5);
        rig.send(&Command::Quit);
        rig.wait_for_shim();
    });
}

#[test]
fn an_exit_without_a_node_is_on_disk() {
    in_every_profile(|profile| {
        let mut rig = Rig::start(profile, "stay");
        let spec = rig.shell("sleep 0.05; exit 6");
        rig.run(spec);
        rig.started();
        rig.hang_up();
        rig.wait_for_shim();
        assert_eq!(rig.record()["exit"]["code"], 6);
        assert!(rig.record()["was_stopped"].is_null(), "it ended by itself");
    });
}

#[test]
fn a_shim_that_dies_with_the_node_stops_its_containers_first() {
    in_every_profile(|profile| {
        let sleep = marker(profile, 4);
        for (script, code) in [
            (format!("exec sleep {sleep}"), 143),
            (
                format!("trap '' TERM; echo ready; while :; do sleep {sleep}; done"),
                137,
            ),
        ] {
            let mut rig = Rig::start(profile, "die");
            let spec = rig.shell(&script);
            rig.run(spec);
            rig.started();
            eventually("the program runs", || n_processes(&sleep) == 1);
            rig.hang_up();
            rig.wait_for_shim();
            assert_eq!(rig.record()["exit"]["code"], code);
            assert_eq!(rig.record()["was_stopped"], true);
            assert_eq!(n_processes(&sleep), 0);
        }
    });
}

#[test]
fn a_killed_shim_takes_its_containers_along_and_no_attempt_runs_again() {
    in_every_profile(|profile| {
        let sleep = marker(profile, 5);
        let mut rig = Rig::start(profile, "stay");
        let spec = rig.shell(&format!("exec sleep {sleep}"));
        let id = rig.run(spec.clone());
        let pid = rig.started().pid.to_string();
        assert_ne!(pid, rig.shim_pid().to_string());
        rig.replace_shim();
        eventually("the container is gone", || {
            !is_alive(&pid) && n_processes(&sleep) == 0
        });
        rig.send(&Command::Start {
            id,
            spec: Box::new(spec),
            memory: String::new(),
        });
        let lost = loop {
            // The new shim first repeats what the record says.
            if let Report::Exited { exit, .. } = rig.report() {
                break exit;
            }
        };
        assert_eq!(
            (lost.code, lost.reason),
            (137, ExitReason::ContainerStatusUnknown)
        );
        assert_eq!(n_processes(&sleep), 0);
    });
}
