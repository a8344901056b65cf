use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
};

use longshore_python::{
    Descriptors, End, Exit, FrameError, NotStarted, Process, Step, TooLarge, TooLong,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::*;

async fn end_of(text: &str, limits: Limits) -> End {
    run(text, limits).await.0.end
}

#[tokio::test]
async fn a_child_that_exits_says_its_code() {
    for code in [0, 1, 3, 255] {
        let end = end_of(&format!("sys.exit({code})"), limits()).await;
        assert!(
            matches!(end, End::Exited(found) if found == code),
            "{end:?}"
        );
    }
}

#[tokio::test]
async fn a_child_that_a_signal_ends_says_which() {
    for number in [9, 11, 15] {
        let end = end_of(&format!("os.kill(os.getpid(), {number})"), limits()).await;
        assert!(
            matches!(end, End::Signalled(found) if found == number),
            "{end:?}"
        );
    }
}

#[tokio::test]
async fn a_child_that_takes_too_long_is_killed() {
    let wall = Duration::from_millis(500);
    let limits = Limits {
        wall: Some(wall),
        ..limits()
    };
    let text = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nforever()";
    let end = end_of(text, limits).await;
    assert!(
        matches!(end, End::TooLong(TooLong::Wall(found)) if found == wall),
        "{end:?}"
    );
}

#[tokio::test]
async fn a_child_that_says_nothing_for_too_long_is_killed() {
    // The limit must be longer than the start of an interpreter, however slow this machine is.
    for seconds in [1, 4, 16, 64] {
        let silence = Duration::from_secs(seconds);
        let limits = Limits {
            silence: Some(silence),
            wall: None,
            ..limits()
        };
        let (ended, told) = run("tell(spoke=1)\nforever()", limits).await;
        let end = ended.end;
        let is_silence = matches!(end, End::TooLong(TooLong::Silence(found)) if found == silence);
        assert!(is_silence, "{end:?}");
        if !told.0.lock().unwrap().is_empty() {
            return;
        }
    }
    panic!("the child never spoke");
}

#[tokio::test]
async fn a_child_that_takes_too_much_memory_is_killed() {
    let most = 40 << 20;
    let limits = Limits {
        memory: Some(most),
        ..limits()
    };
    let end = end_of("x = b'x' * (80 << 20)\nforever()", limits).await;
    let End::TooLarge(TooLarge::Memory { found, max }) = end else {
        panic!("{end:?}");
    };
    assert_eq!(max, most);
    assert!(found > most, "{found}");
}

#[tokio::test]
async fn a_frame_over_the_limit_ends_the_child_by_its_length_alone() {
    let limits = Limits {
        frame: 1000,
        ..limits()
    };
    let end = end_of("sock.sendall(struct.pack('>I', 1001))\nforever()", limits).await;
    let expected = TooLarge::Frame {
        found: 1001,
        max: 1000,
    };
    assert!(
        matches!(end, End::TooLarge(found) if found == expected),
        "{end:?}"
    );
}

#[tokio::test]
async fn garbage_ends_the_child_while_it_runs_and_after() {
    for rest in ["forever()", "sys.exit(1)"] {
        let text = format!("sock.sendall(struct.pack('>I', 3) + b'abc')\n{rest}");
        let end = end_of(&text, limits()).await;
        assert!(
            matches!(end, End::Garbage(FrameError::Trailing(2))),
            "{end:?}"
        );
    }
}

#[tokio::test]
async fn a_stream_that_ends_inside_a_frame_is_garbage_unless_the_child_failed() {
    let cut = "sock.sendall(struct.pack('>I', 10) + b'abc')\n";
    let end = end_of(cut, limits()).await;
    assert!(
        matches!(end, End::Garbage(FrameError::Truncated { expected: 7 })),
        "{end:?}"
    );
    let end = end_of(&format!("{cut}sys.exit(4)"), limits()).await;
    assert!(matches!(end, End::Exited(4)), "{end:?}");
}

#[tokio::test]
async fn a_child_that_closes_its_pipe_and_runs_on_is_killed() {
    let linger = Duration::from_millis(300);
    let limits = Limits { linger, ..limits() };
    let end = end_of("sock.close(); os.close(0)\nforever()", limits).await;
    assert!(
        matches!(end, End::ClosedPipe { after } if after == linger),
        "{end:?}"
    );
}

#[tokio::test]
async fn a_child_that_closes_its_pipe_and_ends_has_ended_well() {
    let end = end_of("sock.close(); os.close(0)", limits()).await;
    assert!(matches!(end, End::Exited(0)), "{end:?}");
}

#[tokio::test]
async fn a_child_that_is_stopped_may_end_by_itself_and_is_killed_where_it_does_not() {
    let polite = "signal.signal(signal.SIGTERM, lambda *_: (tell(asked=1), sys.exit(0)))";
    let deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)";
    for (handler, grace) in [(polite, PATIENCE), (deaf, Duration::from_millis(300))] {
        let told = Told::default();
        let limits = Limits { grace, ..limits() };
        let launch = code(&format!("{handler}\ntell(ready=1)\nforever()"));
        let child = Child::start(&plain(), &launch, limits).await.unwrap();
        let stop = async { drop(told.wait_for("ready").await) };
        let ended = child.supervise(None, &told, stop).await;
        assert!(matches!(ended.end, End::Stopped), "{:?}", ended.end);
        let is_asked = told
            .0
            .lock()
            .unwrap()
            .iter()
            .any(|body| body.get("asked").is_some());
        assert_eq!(is_asked, handler == polite);
    }
}

/// Whoever makes a daemon and kills the keeper before we look at the processes again can hide that daemon, but not the
/// child.
#[tokio::test]
async fn a_keeper_that_is_killed_takes_everything_with_it() {
    let (reader, writer) = std::io::pipe().unwrap();
    let (_open, stdin) = std::os::unix::net::UnixStream::pair().unwrap();
    let descriptors = Descriptors {
        stdin: stdin.into(),
        stderr: writer.try_clone().unwrap().into(),
        stdout: writer.into(),
    };
    let text = "print(daemon(), os.getppid(), flush=True)\nforever()";
    let mut process = Process::start(&python(), &code(text), descriptors)
        .await
        .unwrap();
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).unwrap();
    let pids: Vec<i32> = line
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect();
    let [daemon, keeper] = pids[..] else {
        panic!("{line}");
    };
    assert!(process.memory() > 1 << 20);
    kill(Pid::from_raw(keeper), Signal::SIGKILL).unwrap();
    let exited = process.wait().await;
    assert!(matches!(exited.exit, Exit::KeeperLost(_)), "{exited:?}");
    until(|| !runs(process.pid()) && !runs(daemon)).await;
}

#[tokio::test]
async fn a_child_that_kills_its_keeper_is_ended_and_says_so() {
    let (ended, told) = run(
        "tell(me=os.getpid())\nos.kill(os.getppid(), 9)\nforever()",
        limits(),
    )
    .await;
    assert!(matches!(ended.end, End::KeeperLost(_)), "{:?}", ended.end);
    until(|| !runs(told.pid("me"))).await;
}

#[tokio::test]
async fn an_interpreter_that_is_missing_or_none_is_named() {
    let launch = code("");
    let missing = Starter::Plain(PathBuf::from("/nonexistent/python"));
    let why = Child::start(&missing, &launch, limits()).await.unwrap_err();
    assert!(matches!(&why, NotStarted::Interpreter { .. }), "{why:?}");
    assert!(why.to_string().contains("/nonexistent/python"), "{why}");
    let other = Starter::Plain(PathBuf::from("/bin/cat"));
    let why = Child::start(&other, &launch, limits()).await.unwrap_err();
    let NotStarted::NoKeeper { output, .. } = &why else {
        panic!("{why:?}");
    };
    assert!(output.contains("cat"), "{output}");
}

#[tokio::test]
async fn a_working_directory_that_is_missing_is_named_with_what_the_system_says() {
    let launch = Launch {
        cwd: PathBuf::from("/nonexistent"),
        ..code("tell(ran=1)")
    };
    let (ended, told) = run_with(&plain(), &launch, limits()).await;
    let End::NotStarted(NotStarted::Refused { step, source }) = &ended.end else {
        panic!("{:?}", ended.end);
    };
    assert_eq!(*step, Step::Directory);
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
    assert!(told.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_a_child_prints_is_kept_to_the_last_lines_and_is_in_its_error() {
    let limits = Limits {
        output: 1000,
        ..limits()
    };
    let text = "
for n in range(1000):
    print('out', n, flush=True)
    print('err', n, file=sys.stderr, flush=True)
raise ValueError('no such thing')";
    let (ended, _) = run(text, limits).await;
    assert_eq!(ended.output.bytes().len(), 1000);
    assert!(ended.output.n_dropped() > 10_000);
    let last = ended.output.last_lines(9);
    assert!(
        last.contains("err 999") && last.ends_with("ValueError: no such thing"),
        "{last}"
    );
    let error = ended.into_result().unwrap_err().to_string();
    assert!(
        error.starts_with("expected the child to exit with code 0, found 1: "),
        "{error}"
    );
    assert!(error.ends_with("ValueError: no such thing"), "{error}");
}
