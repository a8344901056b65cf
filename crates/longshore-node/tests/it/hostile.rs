//! Containers that behave badly: each ends with the right reason, disturbs no other container and
//! leaves nothing behind.

use std::os::{fd::AsRawFd, unix::fs::PermissionsExt};

use longshore_node::shim::protocol::{Command, ExitReason, MountSpec, Origin};

use crate::shim_rig::{Profile, Rig, eventually, n_processes};

fn in_every_profile(test: impl Fn(Profile)) {
    for profile in Profile::available() {
        println!("profile {profile:?}");
        test(profile);
    }
}

#[test]
fn a_container_in_flood_can_still_be_killed() {
    in_every_profile(|profile| {
        let mut rig = Rig::start(profile, "stay");
        let spec = rig.shell("yes & yes >&2 & wait");
        let id = rig.run(spec);
        rig.started();
        let log = rig.log();
        eventually("the log grows", || {
            std::fs::metadata(&log).is_ok_and(|m| m.len() > 4_000_000)
        });
        rig.send(&Command::Kill { id });
        assert_eq!(rig.exited().code, 137);
    });
}

#[test]
fn a_container_that_closes_its_streams_runs_on() {
    in_every_profile(|profile| {
        let mut rig = Rig::start(profile, "stay");
        let spec = rig.shell("echo before; exec >&- 2>&-; sleep 0.05; exit 9");
        assert_eq!(rig.run_to_end(spec).code, 9);
        assert_eq!(rig.output(), "before");
    });
}

#[test]
fn binary_output_is_kept_and_is_a_message_that_can_be_read() {
    in_every_profile(|profile| {
        let mut rig = Rig::start(profile, "stay");
        let mut spec = rig.shell(r"printf 'a\000\377\376b\n\033[1m'; exit 1");
        spec.termination.fallback_to_logs = true;
        let exit = rig.run_to_end(spec);
        assert_eq!(exit.message, "a\0\u{fffd}\u{fffd}b\n\u{1b}[1m");
        let log = std::fs::read(rig.log()).expect("a log");
        assert!(log.windows(5).any(|bytes| bytes == b"a\0\xff\xfeb"));
    });
}

#[test]
fn a_termination_message_is_cut_where_kubernetes_cuts_it() {
    in_every_profile(|profile| {
        if profile == Profile::None {
            return;
        }
        for (fill, n_kept) in [
            ("yes x | tr -d '\\n' | head -c 5000000", 4096),
            // A character of three bytes does not fit at the end.
            ("yes € | tr -d '\\n' | head -c 9000", 4095),
            ("head -c 5000 /dev/zero | tr '\\000' '\\377'", 4095),
        ] {
            let mut rig = Rig::start(profile, "stay");
            let spec = rig.shell(&format!("{fill} > /dev/termination-log; exit 2"));
            let exit = rig.run_to_end(spec);
            assert_eq!((exit.code, exit.message.len()), (2, n_kept), "{fill}");
            assert_eq!(rig.record()["exit"]["code"], 2);
        }
    });
}

#[test]
fn a_program_without_permission_or_interpreter_says_so() {
    in_every_profile(|profile| {
        let rig = Rig::start(profile, "stay");
        let program = rig.path().join("program");
        std::fs::write(&program, "#!/no/such/interpreter\n").expect("a file");
        let mount = MountSpec {
            origin: Origin::Node,
            within: None,
            source: rig.path().into(),
            target: "/programs".into(),
            read_only: true,
        };
        let mut spec = rig.shell_with("", mount);
        spec.argv = vec![match profile {
            Profile::None => program.display().to_string(),
            Profile::Full | Profile::User => "/programs/program".into(),
        }];
        for (mode, code, why) in [
            (0o644, 126, "Permission denied"),
            (0o755, 127, "the interpreter that it names does not"),
        ] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&program, permissions).expect("its mode");
            let mut rig = Rig::start(profile, "stay");
            let exit = rig.run_to_end(spec.clone());
            assert_eq!((exit.code, exit.reason), (code, ExitReason::StartError));
            assert!(exit.message.contains(why), "{}", exit.message);
        }
    });
}

#[test]
fn daemons_that_hold_the_streams_open_do_not_hold_up_the_end() {
    in_every_profile(|profile| {
        let mut rig = Rig::start(profile, "stay");
        let sleep = format!("97{}.{}", profile as u32, std::process::id());
        let spec = rig.shell(&format!(
            "setsid sh -c '(trap \"\" TERM INT HUP; setsid sleep {sleep}) &'; echo done"
        ));
        assert_eq!(rig.run_to_end(spec).code, 0);
        assert_eq!(rig.output(), "done");
        assert_eq!(n_processes(&sleep), 0);
        rig.send(&Command::Quit);
        rig.wait_for_shim();
    });
}

#[test]
fn all_that_a_killed_command_has_started_ends_and_nothing_else() {
    in_every_profile(|profile| {
        let mark = |n: u32| format!("96{n}{}.{}", profile as u32, std::process::id());
        let [program, beside, child, daemon] = [0, 1, 2, 3].map(mark);
        let mut rig = Rig::start(profile, "stay");
        let spec = rig.shell(&format!("(setsid sleep {beside} &); exec sleep {program}"));
        rig.run(spec);
        let init = rig.started().pid;
        let script = format!("sleep {child} & (setsid sleep {daemon} &); wait");
        let mut command = rig.enter(init, &script);
        for sleep in [&program, &beside, &child, &daemon] {
            eventually(sleep, || n_processes(sleep) == 1);
        }
        command.kill().expect("it runs");
        command.wait().expect("it ends");
        for sleep in [&child, &daemon] {
            eventually(sleep, || n_processes(sleep) == 0);
        }
        assert_eq!((n_processes(&program), n_processes(&beside)), (1, 1));
    });
}

/// As it is in a container of a runtime: the init of the container adopts it.
#[test]
fn what_a_command_leaves_behind_when_it_ends_by_itself_runs_on() {
    in_every_profile(|profile| {
        if profile == Profile::None {
            return;
        }
        let sleep = format!("95{}.{}", profile as u32, std::process::id());
        let mut rig = Rig::start(profile, "stay");
        let spec = rig.shell("exec sleep 1000");
        rig.run(spec);
        let init = rig.started().pid;
        let mut command = rig.enter(init, &format!("(setsid sleep {sleep} &); exit 5"));
        assert_eq!(command.wait().expect("it ends").code(), Some(5));
        eventually("it runs on", || n_processes(&sleep) == 1);
    });
}

/// As a supervisor of the service leaves them open: a file, a lock, a directory outside of the container.
#[test]
fn a_command_has_no_descriptors_of_those_who_started_the_service() {
    in_every_profile(|profile| {
        let mut rig = Rig::start(profile, "stay");
        let spec = rig.shell("exec sleep 1000");
        rig.run(spec);
        let init = rig.started().pid;
        let secret = std::fs::File::open("/").expect("a directory");
        // Unlike the first one, a copy is inherited.
        let inherited = nix::unistd::dup(&secret).expect("a descriptor");
        let script = format!("test ! -e /proc/self/fd/{}", inherited.as_raw_fd());
        let mut command = rig.enter(init, &script);
        assert_eq!(command.wait().expect("it ends").code(), Some(0));
    });
}
