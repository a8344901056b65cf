//! What can be wrong with a remote.

use std::{fs, os::unix::fs::PermissionsExt};

use longshore_files::{Disk, System};

use super::*;

#[tokio::test]
async fn a_commit_that_was_taken_back_stays_for_its_runs() {
    let world = World::new();
    let bundle = world.bundle();
    let first = world.commit(&[("a", "1")]);
    let second = world.commit(&[("a", "2")]);
    bundle.refresh(None).await.unwrap();
    assert_eq!(bundle.standing(&second).await.unwrap(), Standing::AtRemote);
    world.take_back();
    let third = world.commit(&[("a", "3")]);
    world.git(&["reflog", "expire", "--expire=now", "--all"]);
    world.git(&["gc", "--quiet", "--prune=now"]);
    let refreshed = bundle.refresh(Some(&second)).await.unwrap();
    assert_eq!(refreshed.commit, third);
    assert_eq!(refreshed.movement, Movement::Rewritten);
    for (commit, standing) in [
        (&first, Standing::AtRemote),
        (&second, Standing::OnlyHere),
        (&third, Standing::AtRemote),
    ] {
        assert_eq!(bundle.standing(commit).await.unwrap(), standing);
    }
    let pinned = bundle.check_out(&second, world.now()).await.unwrap();
    assert_eq!(world::read(&pinned, "a"), "2");
    // Another machine never fetched it.
    let other = world.same_remote();
    let other = other.bundle();
    let missing = other.check_out(&second, world.now()).await.unwrap_err();
    let is_missing = matches!(&missing, GitError::CommitMissing { commit } if *commit == second);
    assert!(is_missing, "{missing}");
    assert_eq!(other.standing(&second).await.unwrap(), Standing::Missing);
    let refreshed = other.refresh(Some(&second)).await.unwrap();
    assert_eq!(refreshed.movement, Movement::First);
}

#[tokio::test]
async fn a_remote_that_is_gone_leaves_all_that_was_fetched_and_may_come_back() {
    let world = World::new();
    let bundle = world.bundle();
    let first = world.commit(&[("a", "1")]);
    let second = world.commit(&[("a", "2")]);
    bundle.refresh(None).await.unwrap();
    bundle.check_out(&first, world.now()).await.unwrap();
    let away = world.beside("away");
    System.rename(&world.remote(), &away).unwrap();
    for _ in 0..2 {
        let gone = bundle.refresh(Some(&second)).await.unwrap_err();
        assert!(matches!(gone, GitError::Gone { .. }), "{gone}");
        assert_eq!(gone.class(), Class::Retry);
    }
    assert_eq!(bundle.tracked().await.unwrap(), second);
    for (commit, text) in [(&first, "1"), (&second, "2")] {
        let tree = bundle.check_out(commit, world.now()).await.unwrap();
        assert_eq!(world::read(&tree, "a"), text);
    }
    System.rename(&away, &world.remote()).unwrap();
    let third = world.commit(&[("a", "3")]);
    let refreshed = bundle.refresh(Some(&second)).await.unwrap();
    assert_eq!(refreshed.commit, third);
    assert_eq!(refreshed.movement, Movement::Forward);
}

#[tokio::test]
async fn each_failure_has_its_error() {
    let world = World::new();
    let commit = world.commit(&[("dags/a.py", "1"), ("file", "x")]);
    let bundle = world.bundle();
    bundle.refresh(None).await.unwrap();
    for subdir in ["none", "file", "dags/a.py", "dag"] {
        let bundle = world.bundle_with(|it| {
            it.settings.subdir = FolderPath::new(subdir).unwrap();
        });
        let missing = bundle.check_out(&commit, world.now()).await.unwrap_err();
        assert!(
            matches!(missing, GitError::SubdirMissing { .. }),
            "{subdir}: {missing}"
        );
    }
    // A branch that is deleted at the remote is missing here.
    world.git(&["branch", "team"]);
    let team = world.bundle_with(|it| it.settings.tracking_ref = TrackingRef::new("team").unwrap());
    team.refresh(None).await.unwrap();
    world.git(&["branch", "-D", "team"]);
    let missing = team.refresh(None).await.unwrap_err();
    assert!(matches!(missing, GitError::RefMissing { .. }), "{missing}");
    assert_eq!(missing.class(), Class::Invalid);
    // No repository.
    fs::remove_dir_all(world.remote().join(".git")).unwrap();
    let none = bundle.refresh(None).await.unwrap_err();
    assert!(matches!(none, GitError::NotARepository { .. }), "{none}");
    let program = world.bundle_with(|it| it.program.program = "/none/git".into());
    let none = program.check_program().await.unwrap_err();
    assert!(matches!(none, GitError::NoProgram { .. }), "{none}");
}

/// A program in the place of git: `fetch` does what the text says, everything else is git's.
fn scripted(world: &World, fetch: &str) -> GitProgram {
    let path = world.beside("fake-git");
    let text = format!("#!/bin/sh\ncase \"$1\" in fetch) {fetch} ;; esac\nexec git \"$@\"\n");
    // Written by another process: a file that is open for writing anywhere cannot be run.
    let written = std::process::Command::new("sh")
        .args([
            "-c",
            "printf %s \"$1\" > \"$2\" && chmod 700 \"$2\"",
            "sh",
            &text,
        ])
        .arg(&path)
        .status();
    assert!(written.unwrap().success());
    GitProgram {
        program: path,
        environment: Vec::new(),
    }
}

#[tokio::test]
async fn a_fetch_that_hangs_is_ended_with_all_that_it_started() {
    let world = World::new();
    world.commit(&[("a", "1")]);
    let pid = world.beside("pid");
    let hang = format!("sleep 1000 & echo $! > {}; wait; exit 1", pid.display());
    let bundle = world.bundle_with(|it| {
        it.program = scripted(&world, &hang);
        it.settings.limits.fetch_timeout = Duration::from_secs(1);
    });
    let ended = bundle.refresh(None).await.unwrap_err();
    assert!(
        matches!(ended, GitError::TimeLimit { what: "fetch", .. }),
        "{ended}"
    );
    let pid = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    let is_gone = || nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None).is_err();
    let zombie = || {
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        state.contains(") Z ")
    };
    for _ in 0..200 {
        if is_gone() || zombie() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(is_gone() || zombie());
    // The lock is free.
    world.bundle().refresh(None).await.unwrap();
}

#[tokio::test]
async fn what_git_says_decides_the_error() {
    let world = World::new();
    world.commit(&[("a", "1")]);
    for (said, is_expected) in [
        (
            "fatal: write error: No space left on device",
            (|it| matches!(it, GitError::DiskFull { .. })) as fn(&GitError) -> bool,
        ),
        ("fatal: Authentication failed for 'https://h/a'", |it| {
            matches!(it, GitError::Refused { .. })
        }),
        (
            "fatal: unable to access 'https://h/a': Could not resolve host: h",
            |it| matches!(it, GitError::Gone { .. }),
        ),
        ("fatal: something new", |it| {
            matches!(it, GitError::Other { what: "fetch", .. })
        }),
    ] {
        let bundle = world.bundle_with(|it| {
            it.program = scripted(&world, &format!("echo \"{said}\" >&2; exit 128"));
        });
        let error = bundle.refresh(None).await.unwrap_err();
        assert!(is_expected(&error), "{said}: {error:?}");
    }
}

#[tokio::test]
async fn a_password_reaches_git_by_its_helper_only() {
    let world = World::new();
    world.commit(&[("a", "1")]);
    let (arguments, told) = (world.beside("arguments"), world.beside("told"));
    // Asks for the credentials as git's https does, and notes all that a process list shows.
    let ask = format!(
        "echo \"$@\" > {}; printf 'protocol=https\\nhost=example.org\\n\\n' | git credential fill > {}; exit 128",
        arguments.display(),
        told.display(),
    );
    let url = "https://me:hunter2%21@example.org/a.git";
    let remote = Remote::parse(url, crate::git::remote::AllowedRemotes::HttpsAndSsh);
    let bundle = world.bundle_with(|it| {
        it.program = scripted(&world, &ask);
        it.settings.remote = remote.unwrap();
    });
    let error = bundle.refresh(None).await.unwrap_err();
    let shown = fs::read_to_string(arguments).unwrap();
    assert!(shown.contains("https://example.org/a.git"), "{shown}");
    let told = fs::read_to_string(told).unwrap();
    assert!(told.contains("username=me\npassword=hunter2!\n"), "{told}");
    let config = fs::read_to_string(world.base().join("bare/config")).unwrap();
    for text in [shown, config, format!("{error} {error:?} {bundle:?}")] {
        assert!(!text.contains("hunter2"), "{text}");
    }
    let mode = fs::metadata(world.base().join("password"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}
