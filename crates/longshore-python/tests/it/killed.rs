//! What is left when we are killed ourselves: this test is its own victim, in a second process of the test binary.

use std::{
    io::{BufRead, BufReader, Write},
    process::Stdio,
};

use longshore_python::{Prefork, PreforkSpec, Restarts};

use super::{prefork::forked, *};

const NAME: &str = "killed::everything_ends_when_we_are_killed";
const VICTIM: &str = "as-the-victim";

#[test]
fn everything_ends_when_we_are_killed() {
    if std::env::args().any(|arg| arg == VICTIM) {
        return be_the_victim();
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, VICTIM, "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let pids: Vec<i32> = lines
        .map_while(Result::ok)
        .filter_map(|line| line.strip_prefix("pid ").map(|pid| pid.parse().unwrap()))
        .take(6)
        .collect();
    assert_eq!(pids.len(), 6, "the victim says what runs");
    assert!(pids.iter().all(|pid| runs(*pid)));
    victim.kill().unwrap();
    victim.wait().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(until(|| !pids.iter().any(|pid| runs(*pid))));
}

/// Starts children and servers, says their pids, and waits to be killed.
fn be_the_victim() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let starters = [plain(), forked(&[])];
        let launch = code("tell(daemon=daemon(), me=os.getpid())\nforever()");
        let told = [Told::default(), Told::default()];
        let supervise = async |n: usize| {
            let child = Child::start(&starters[n], &launch, limits()).await.unwrap();
            child.supervise(None, &told[n], std::future::pending()).await
        };
        let dir = tempfile::tempdir().unwrap();
        let hangs = "import os, time\nopen('pid.new', 'w').write(str(os.getpid()))\nos.rename('pid.new', 'pid')\ntime.sleep(600)";
        std::fs::write(dir.path().join("hangs.py"), hangs).unwrap();
        let importing = Prefork::new(
            PreforkSpec {
                interpreter: python(),
                env: BTreeMap::new(),
                cwd: dir.path().to_owned(),
                preload: vec!["hangs".to_owned()],
                preload_timeout: PATIENCE,
            },
            Restarts::default(),
        );
        let say = async {
            let mut pids = Vec::new();
            for told in &told {
                told.wait_for("me").await;
                pids.extend([told.pid("me"), told.pid("daemon")]);
            }
            let Starter::Prefork(server) = &starters[1] else {
                panic!("no server");
            };
            pids.push(server.server_pid().await.unwrap().try_into().unwrap());
            until(|| dir.path().join("pid").exists()).await;
            let pid = std::fs::read_to_string(dir.path().join("pid")).unwrap();
            pids.push(pid.parse().unwrap());
            let mut out = std::io::stdout();
            writeln!(out).unwrap();
            for pid in pids {
                writeln!(out, "pid {pid}").unwrap();
            }
            out.flush().unwrap();
        };
        let ended = tokio::join!(supervise(0), supervise(1), importing.warm_up(), say);
        panic!("nothing ends before we are killed: {ended:?}");
    });
}
