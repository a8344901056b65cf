use longshore_python::{End, TooLarge};

use super::*;

#[tokio::test]
async fn a_daemon_that_a_child_leaves_is_ended_with_it() {
    let (ended, told) = run("tell(daemon=daemon())", limits()).await;
    assert!(ended.is_success(), "{:?}", ended.end);
    assert_eq!(ended.n_left, 1);
    assert!(!runs(told.pid("daemon")), "ended before the end is told");
}

#[tokio::test]
async fn the_rest_of_the_process_group_is_ended_with_a_child() {
    let text = "import subprocess\ntell(other=subprocess.Popen(['sleep', '600']).pid)";
    let launch = {
        let mut launch = code(text);
        launch.env.insert("PATH".into(), "/usr/bin:/bin".into());
        launch
    };
    let (ended, told) = run_with(&plain(), &launch, limits()).await;
    assert!(ended.is_success(), "{:?}", ended.end);
    assert!(!runs(told.pid("other")));
}

#[tokio::test]
async fn a_limit_ends_the_descendants_too() {
    let text = "
pid = daemon()
fork = os.fork()
if fork == 0:
    forever()
tell(daemon=pid, fork=fork)
sock.sendall(b'\\xff' * 4)
forever()";
    let (ended, told) = run(text, limits()).await;
    let is_frame = matches!(ended.end, End::TooLarge(TooLarge::Frame { .. }));
    assert!(is_frame, "{:?}", ended.end);
    assert!(!runs(told.pid("daemon")) && !runs(told.pid("fork")));
}

#[tokio::test]
async fn the_memory_of_a_daemon_counts() {
    let limits = Limits {
        memory: Some(100 << 20),
        ..limits()
    };
    let text = "
pid = daemon()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        x = b'x' * (120 << 20)
        forever()
    os._exit(0)
tell(daemon=pid)
forever()";
    let (ended, told) = run(text, limits).await;
    let is_memory = matches!(ended.end, End::TooLarge(TooLarge::Memory { .. }));
    assert!(is_memory, "{:?}", ended.end);
    assert!(!runs(told.pid("daemon")));
}

#[tokio::test]
async fn a_child_whose_conversation_is_dropped_is_ended_with_all_its_descendants() {
    let told = Told::default();
    let launch = code("tell(daemon=daemon())\nforever()");
    let child = Child::start(&plain(), &launch, limits()).await.unwrap();
    let pid = child.pid();
    tokio::select! {
        ended = child.supervise(None, &told, std::future::pending()) => panic!("{ended:?}"),
        _ = told.wait_for("daemon") => {}
    }
    until(|| !runs(pid) && !runs(told.pid("daemon"))).await;
}
