//! A process that is killed while it commits loses nothing that was acknowledged.
//!
//! The child is this test binary again, running [`child`] with the database's path in its environment; it says on
//! its standard output what was acknowledged.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use futures::future::join_all;
use longshore_store::{Changes, Run, RunStore, Store, StoreError, TaskInstance};
use uuid::Uuid;

use crate::{
    files::integrity,
    samples::{run, run_key, runs, task},
};

const ENV_DATABASE: &str = "LONGSHORE_TEST_STORE_DATABASE";
const LANES: [&str; 4] = ["lane-0", "lane-1", "lane-2", "lane-3"];
const N_KILLS: usize = 20;

/// Not a test by itself: what the parents below run in a process of its own.
#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "how the parent tells this process that it is the child"
)]
async fn child() {
    let Some(path) = std::env::var_os(ENV_DATABASE) else {
        return;
    };
    let store = Store::open(path).await.unwrap();
    let ends = join_all(LANES.map(|lane| commit_until_refused(&store, lane))).await;
    // Only a failing disk ends a lane; from then on the store must refuse everything.
    for end in ends {
        assert!(matches!(end, StoreError::Unavailable { .. }), "{end}");
    }
    for refused in [
        store.load().await.unwrap_err(),
        store.commit(&next(LANES[0], 0)).await.unwrap_err(),
    ] {
        assert!(
            refused.to_string().contains("an earlier write failed"),
            "{refused}"
        );
    }
    say("stopped");
}

/// A commit of one lane: its run and three task instances, all at this version.
fn next(lane: &str, version: i64) -> Changes {
    let n_lane = LANES.iter().position(|known| *known == lane).unwrap() as u128;
    let task_instance = |n: u128| TaskInstance {
        // The same in every process.
        id: Uuid::from_u128((n_lane + 1) * 100 + n),
        version,
        ..task(lane, &n.to_string())
    };
    Changes {
        task_instances: (0..3).map(task_instance).collect(),
        watch_position: Some(version.to_string()),
        ..runs([Run {
            version,
            ..run(lane)
        }])
    }
}

async fn commit_until_refused(store: &Store, lane: &str) -> StoreError {
    let found = store.run(&run_key(lane)).await.unwrap();
    let mut version = found.map_or(0, |(run, _)| run.version);
    loop {
        match store.commit(&next(lane, version)).await {
            Ok(()) => version += 1,
            Err(error) => return error,
        }
        say(&format!("{lane} {version}"));
    }
}

/// One line in one write, past the capture of the test harness.
fn say(line: &str) {
    std::io::stdout()
        .write_all(format!("\n{line}\n").as_bytes())
        .unwrap();
}

fn start(program: &mut Command, path: &Path) -> Child {
    program
        .args(["--exact", "crash::child", "--nocapture"])
        .env(ENV_DATABASE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What to run as the child.
fn this_binary() -> std::path::PathBuf {
    std::env::current_exe().unwrap()
}

/// The acknowledgement in a line of the child's output.
fn acknowledged(line: &str) -> Option<(&'static str, i64)> {
    let (lane, version) = line.split_once(' ')?;
    let lane = LANES.into_iter().find(|known| *known == lane)?;
    Some((lane, version.parse().unwrap()))
}

/// Reopens the database and checks all that must hold after any crash; the version of each lane.
async fn check(path: &Path, at_least: &BTreeMap<&str, i64>) -> BTreeMap<&'static str, i64> {
    let store = Store::open(path).await.unwrap();
    let mut versions = BTreeMap::new();
    for lane in LANES {
        let (version, tasks) = store
            .run(&run_key(lane))
            .await
            .unwrap()
            .map_or((0, vec![]), |(run, tasks)| (run.version, tasks));
        let acknowledged = at_least.get(lane).copied().unwrap_or(0);
        assert!(
            version >= acknowledged,
            "{lane}: {acknowledged} was acknowledged, {version} is there"
        );
        // Wholly in or wholly out.
        let expected = if version == 0 { 0 } else { 3 };
        assert_eq!(tasks.len(), expected, "{lane}");
        assert!(
            tasks.iter().all(|task| task.version == version),
            "{lane}: {tasks:#?}"
        );
        versions.insert(lane, version);
    }
    store.close().await;
    assert_eq!(integrity(path).await, "ok");
    versions
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let mut at_least = BTreeMap::new();
    let mut n_acknowledged = 0;
    for kill in 0..N_KILLS {
        let mut child = start(&mut Command::new(this_binary()), &path);
        let output = BufReader::new(child.stdout.take().unwrap());
        // The first kills hit the opening, the others any moment of the commits after some of them.
        let random = Uuid::new_v4().as_u128();
        let patience = if kill < 3 {
            kill
        } else {
            (random % 200) as usize
        };
        for _ in 0..(random >> 64) % 2_000 {
            std::thread::yield_now();
        }
        if patience == 0 {
            child.kill().unwrap();
        }
        for (n, line) in output.lines().enumerate() {
            if let Some((lane, version)) = acknowledged(&line.unwrap()) {
                let last = at_least.insert(lane, version);
                assert!(
                    last.is_none_or(|last| last < version),
                    "{lane} went from {last:?} to {version}"
                );
                n_acknowledged += 1;
            }
            if n >= patience {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        at_least = check(&path, &at_least).await;
    }
    assert!(
        n_acknowledged > N_KILLS,
        "{n_acknowledged} commits in all: the kills came too early to tell"
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_write_that_fails_stops_the_store_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    // Files may not grow beyond 2,000 blocks (1 or 2 MiB): writing fails in the middle, as on a broken disk.
    let mut limited = Command::new("sh");
    limited
        .args(["-c", r#"trap "" XFSZ; ulimit -f 2000; exec "$0" "$@""#])
        .arg(this_binary());
    let mut child = start(&mut limited, &path);
    let mut at_least = BTreeMap::new();
    let mut has_stopped = false;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        at_least.extend(acknowledged(&line));
        has_stopped |= line == "stopped";
    }
    assert!(child.wait().unwrap().success());
    assert!(has_stopped);
    assert_eq!(
        at_least.len(),
        LANES.len(),
        "the limit must not hit the opening"
    );
    check(&path, &at_least).await;
}
