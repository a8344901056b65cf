use std::{fs, path::Path};

use longshore_k8s::Backoff;
use longshore_python::{End, NotStarted, Prefork, PreforkSpec, Restarts, TooLarge};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::sync::Notify;

use super::*;

fn spec(preload: &[&str]) -> PreforkSpec {
    PreforkSpec {
        interpreter: python(),
        env: BTreeMap::from([("LC_ALL".into(), "C.UTF-8".into())]),
        cwd: PathBuf::from("/"),
        preload: preload.iter().map(|name| (*name).to_owned()).collect(),
        preload_timeout: PATIENCE,
    }
}

/// A server whose modules are found in `dir`.
fn in_dir(dir: &Path, preload: &[&str]) -> PreforkSpec {
    PreforkSpec {
        cwd: dir.to_owned(),
        ..spec(preload)
    }
}

pub(crate) fn forked(preload: &[&str]) -> Starter {
    Starter::Prefork(Box::new(Prefork::new(spec(preload), Restarts::default())))
}

fn server(starter: &Starter) -> &Prefork {
    match starter {
        Starter::Prefork(prefork) => prefork,
        Starter::Plain(_) => panic!("no server"),
    }
}

async fn kill_server(starter: &Starter) -> i32 {
    let pid = i32::try_from(server(starter).server_pid().await.unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    pid
}

#[tokio::test]
async fn a_forked_child_has_the_modules_of_its_server_and_the_others_do_not_see_its_changes() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("heavy.py"),
        "import os\nPID = os.getpid()\nN = [0]\nprint('once')",
    )
    .unwrap();
    let prefork = Prefork::new(in_dir(dir.path(), &["heavy"]), Restarts::default());
    prefork.warm_up().await.unwrap();
    let pid = prefork.server_pid().await.unwrap();
    let starter = Starter::Prefork(Box::new(prefork));
    for _ in 0..2 {
        let text = "import heavy\nheavy.N[0] += 1\ntell(pid=heavy.PID, n=heavy.N[0])";
        let (ended, told) = run_with(&starter, &code(text), limits()).await;
        assert!(ended.is_success(), "{}", ended.into_result().unwrap_err());
        assert_eq!((told.get("pid"), told.get("n")), (json!(pid), json!(1)));
        assert_eq!(
            ended.output.bytes(),
            b"",
            "what the server printed stays there"
        );
    }
    assert_eq!(server(&starter).server_pid().await, Some(pid));
}

#[tokio::test]
async fn many_children_run_at_the_same_time() {
    let starter = forked(&[]);
    let launch = code("assert recv()[1] == {'type': 'Hello'}\ntell(here=1)");
    let told = Told::default();
    let one = async || {
        let child = Child::start(&starter, &launch, limits()).await.unwrap();
        child
            .supervise(hello(), &told, std::future::pending())
            .await
    };
    let all = futures::future::join_all((0..20).map(|_| one())).await;
    assert!(all.iter().all(Ended::is_success), "{all:?}");
    assert_eq!(told.0.lock().unwrap().len(), 20);
}

/// A child that leaves a daemon, and then announces a frame over the limit.
const OVER_A_LIMIT: &str = "
tell(wait=1, daemon=daemon())
sock.sendall(b'\\xff' * 4)
forever()";

#[tokio::test]
async fn a_limit_ends_a_forked_child_with_its_daemon() {
    let (ended, told) = run_with(&forked(&[]), &code(OVER_A_LIMIT), limits()).await;
    let is_frame = matches!(ended.end, End::TooLarge(TooLarge::Frame { .. }));
    assert!(is_frame, "{:?}", ended.end);
    assert!(!runs(told.pid("daemon")));
}

/// Answers `tell(wait=1)` once it is told to.
struct Gate {
    told: Told,
    open: Notify,
}

impl Answers for Gate {
    async fn answer(&self, request: Frame) -> Answer {
        let answer = self.told.answer(request).await;
        if self
            .told
            .0
            .lock()
            .unwrap()
            .last()
            .unwrap()
            .get("wait")
            .is_some()
        {
            self.open.notified().await;
        }
        answer
    }
}

#[tokio::test]
async fn a_server_that_is_killed_takes_no_child_with_it_and_is_started_anew() {
    let starter = forked(&[]);
    let gate = Gate {
        told: Told::default(),
        open: Notify::new(),
    };
    let launch = code("tell(wait=1)\ntell(after=1)");
    let child = Child::start(&starter, &launch, limits()).await.unwrap();
    let pid = child.pid();
    let meanwhile = async {
        gate.told.wait_for("wait").await;
        let old = kill_server(&starter).await;
        until(|| !runs(old)).await;
        let (ended, _) = run_with(&starter, &code(""), limits()).await;
        assert!(ended.is_success(), "{:?}", ended.end);
        let new = server(&starter).server_pid().await.unwrap();
        assert_ne!(i32::try_from(new).unwrap(), old);
        assert!(runs(pid), "the first child runs on");
        gate.open.notify_one();
    };
    let (ended, ()) = tokio::join!(
        child.supervise(None, &gate, std::future::pending()),
        meanwhile
    );
    assert!(ended.is_success(), "{:?}", ended.end);
    assert_eq!(gate.told.get("after"), 1);
}

#[tokio::test]
async fn a_child_of_a_server_that_is_gone_still_has_its_limits() {
    let starter = forked(&[]);
    let gate = Gate {
        told: Told::default(),
        open: Notify::new(),
    };
    let child = Child::start(&starter, &code(OVER_A_LIMIT), limits())
        .await
        .unwrap();
    let meanwhile = async {
        gate.told.wait_for("wait").await;
        let old = kill_server(&starter).await;
        until(|| !runs(old)).await;
        gate.open.notify_one();
    };
    let (ended, ()) = tokio::join!(
        child.supervise(None, &gate, std::future::pending()),
        meanwhile
    );
    let is_frame = matches!(ended.end, End::TooLarge(TooLarge::Frame { .. }));
    assert!(is_frame, "{:?}", ended.end);
    assert!(!runs(gate.told.pid("daemon")));
}

/// The server is stopped while it is asked, so that it is killed before it can fork.
#[tokio::test]
async fn a_server_that_is_killed_while_it_is_asked_is_replaced_and_the_child_runs_once() {
    let starter = forked(&[]);
    server(&starter).warm_up().await.unwrap();
    let pid = server(&starter).server_pid().await.unwrap();
    let old = Pid::from_raw(pid.try_into().unwrap());
    kill(old, Signal::SIGSTOP).unwrap();
    let launch = code("tell(ran=1)");
    let ask = run_with(&starter, &launch, limits());
    let and_kill = async {
        // The request is in the socket of the server once its lock is free again.
        tokio::task::yield_now().await;
        assert_eq!(server(&starter).server_pid().await, Some(pid));
        kill(old, Signal::SIGKILL).unwrap();
    };
    let ((ended, told), ()) = tokio::join!(ask, and_kill);
    assert!(ended.is_success(), "{:?}", ended.end);
    assert_eq!(told.0.lock().unwrap().len(), 1);
    assert_ne!(server(&starter).server_pid().await, Some(pid));
}

#[tokio::test]
async fn a_module_that_cannot_be_imported_is_named_and_the_next_start_waits() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("broken.py"),
        "raise RuntimeError('half installed')",
    )
    .unwrap();
    let backoff = Backoff {
        first: Duration::from_secs(600),
        max: Duration::from_secs(600),
    };
    let restarts = Restarts::new(backoff, Duration::from_secs(1));
    let prefork = Prefork::new(in_dir(dir.path(), &["json", "broken"]), restarts);
    for _ in 0..2 {
        let why = prefork.warm_up().await.unwrap_err();
        let NotStarted::Import { module, output } = &why else {
            panic!("{why:?}");
        };
        assert_eq!(module, "broken");
        assert!(output.ends_with("RuntimeError: half installed"), "{output}");
    }
    let why = prefork.warm_up().await.unwrap_err();
    let NotStarted::BackingOff { wait, why } = &why else {
        panic!("{why:?}");
    };
    assert!(*wait > Duration::from_secs(500), "{wait:?}");
    assert!(why.contains("broken"), "{why}");
}

#[tokio::test]
async fn a_server_with_threads_refuses_to_serve() {
    let dir = tempfile::tempdir().unwrap();
    let text = "import threading, time\nt = threading.Thread(target=time.sleep, args=(600,), daemon=True)\nt.start()";
    fs::write(dir.path().join("threaded.py"), text).unwrap();
    let prefork = Prefork::new(in_dir(dir.path(), &["threaded"]), Restarts::default());
    let why = prefork.warm_up().await.unwrap_err();
    assert!(matches!(why, NotStarted::Threads(2)), "{why:?}");
}

#[tokio::test]
async fn an_import_that_hangs_ends_with_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let text = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)";
    fs::write(dir.path().join("hangs.py"), text).unwrap();
    // The limit must be longer than the start of an interpreter, however slow this machine is.
    for seconds in [1, 4, 16, 64] {
        let preload_timeout = Duration::from_secs(seconds);
        let spec = PreforkSpec {
            preload_timeout,
            ..in_dir(dir.path(), &["hangs"])
        };
        let prefork = Prefork::new(spec, Restarts::default());
        let why = prefork.warm_up().await.unwrap_err();
        assert!(
            matches!(why, NotStarted::Slow(found) if found == preload_timeout),
            "{why:?}"
        );
        if let Ok(pid) = fs::read_to_string(dir.path().join("pid")) {
            let pid = pid.parse().unwrap();
            return until(|| !runs(pid)).await;
        }
    }
    panic!("the import never began");
}

#[tokio::test]
async fn a_server_that_is_dropped_ends_and_its_children_do_not() {
    let starter = forked(&[]);
    let told = Told::default();
    let launch = code("recv()\ntell(after=1)");
    let child = Child::start(&starter, &launch, limits()).await.unwrap();
    let pid = server(&starter)
        .server_pid()
        .await
        .unwrap()
        .try_into()
        .unwrap();
    drop(starter);
    until(|| !runs(pid)).await;
    let ended = child
        .supervise(hello(), &told, std::future::pending())
        .await;
    assert!(ended.is_success(), "{:?}", ended.end);
    assert_eq!(told.get("after"), 1);
}
