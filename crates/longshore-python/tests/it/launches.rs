use std::{ffi::OsString, fs, os::unix::ffi::OsStringExt};

use longshore_python::End;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use super::{prefork::forked, *};

/// What a program sees of its surroundings.
const LOOK: &str = "
import fcntl
def is_default(s):
    return signal.getsignal(s) == signal.SIG_DFL
names = [n for n in os.listdir('/proc/self/fd') if int(n) != sock.fileno()]
tell(
    env=sorted([os.fsencode(k).hex(), os.fsencode(v).hex()] for k, v in os.environ.items()),
    argv=[os.fsencode(a).hex() for a in sys.argv[1:]],
    cwd=os.getcwd(),
    path=sys.path[0],
    name=__name__,
    fds=len(names) - 1,
    is_leader=os.getpgrp() == os.getpid(),
    blocked=len(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    term=is_default(signal.SIGTERM) and is_default(signal.SIGCHLD) and is_default(signal.SIGHUP),
    pipe=signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN,
    int=signal.getsignal(signal.SIGINT) == signal.default_int_handler,
    is_main=sys.modules['__main__'].__dict__.get('tell') is tell,
)
";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_child_sees_exactly_what_it_was_given_however_it_is_started() {
    let dir = tempfile::tempdir().unwrap();
    let cwd = fs::canonicalize(dir.path()).unwrap();
    // Descriptors that others leave open for our children are not passed on.
    let leak = fs::File::open("/dev/null").unwrap();
    fcntl(&leak, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let odd = OsString::from_vec(vec![b'a', 0xff]);
    for starter in [plain(), forked(&[])] {
        let mut launch = code(LOOK);
        launch.env.insert("ODD".into(), odd.clone());
        launch.args = vec!["ü".into(), odd.clone(), "".into()];
        launch.cwd.clone_from(&cwd);
        let (ended, told) = run_with(&starter, &launch, limits()).await;
        assert!(ended.is_success(), "{}", ended.into_result().unwrap_err());
        let env = json!([[hex(b"LC_ALL"), hex(b"C.UTF-8")], [hex(b"ODD"), "61ff"]]);
        assert_eq!(told.get("env"), env);
        assert_eq!(told.get("argv"), json!([hex("ü".as_bytes()), "61ff", ""]));
        assert_eq!(told.get("cwd"), cwd.to_str().unwrap());
        assert_eq!(told.get("path"), "");
        assert_eq!(told.get("name"), "__main__");
        assert_eq!(
            told.get("fds"),
            3,
            "0, 1, 2, and the one that reads the list"
        );
        assert_eq!(told.get("blocked"), 0);
        for is_true in ["is_leader", "term", "pipe", "int", "is_main"] {
            assert_eq!(told.get(is_true), true, "{is_true}");
        }
    }
}

#[tokio::test]
async fn modules_and_scripts_run_as_main_with_their_own_path() {
    let dir = tempfile::tempdir().unwrap();
    let dir = fs::canonicalize(dir.path()).unwrap();
    let text = format!(
        "{}\nimport neighbour\ntell(name=__name__, argv=sys.argv, n=neighbour.N)",
        include_str!("frames.py")
    );
    fs::write(dir.join("prog.py"), text).unwrap();
    fs::write(dir.join("neighbour.py"), "N = 7").unwrap();
    let script = dir.join("prog.py");
    for starter in [plain(), forked(&[])] {
        for (program, cwd) in [
            (Program::Module("prog".into()), dir.clone()),
            (Program::Script(script.clone()), PathBuf::from("/")),
        ] {
            let launch = Launch {
                program,
                cwd,
                args: vec!["a".into()],
                ..code("")
            };
            let (ended, told) = run_with(&starter, &launch, limits()).await;
            assert!(ended.is_success(), "{}", ended.into_result().unwrap_err());
            assert_eq!(told.get("name"), "__main__");
            assert_eq!(told.get("argv"), json!([script.to_str().unwrap(), "a"]));
            assert_eq!(told.get("n"), 7);
        }
    }
}

#[tokio::test]
async fn a_program_ends_in_the_same_way_however_it_is_started() {
    let starters = [plain(), forked(&[])];
    for (text, expected, printed) in [
        ("sys.exit()", 0, ""),
        ("sys.exit(300)", 44, ""),
        ("sys.exit('no luck')", 1, "no luck"),
        ("raise ValueError('bad')", 1, "ValueError: bad"),
        ("raise KeyboardInterrupt", -2, "KeyboardInterrupt"),
        ("def f(:", 1, "SyntaxError: invalid syntax"),
        ("print('unflushed', end='')", 0, "unflushed"),
        (
            "import threading\nthreading.Thread(target=lambda: (tell(a=1), print('late'))).start()",
            0,
            "late",
        ),
        ("os._exit(9)", 9, ""),
    ] {
        for starter in &starters {
            let (ended, _) = run_with(starter, &code(text), limits()).await;
            let found = format!("{:?}", ended.end);
            let expected = match expected {
                0.. => End::Exited(expected),
                _ => End::Signalled(-expected),
            };
            assert_eq!(found, format!("{expected:?}"), "{text}");
            assert_eq!(ended.output.last_lines(1), printed, "{text}");
        }
    }
}

#[tokio::test]
async fn what_a_child_took_is_told() {
    for starter in [plain(), forked(&[])] {
        let text = "x = b'x' * (50 << 20)\nfor _ in range(3_000_000): pass";
        let (ended, _) = run_with(&starter, &code(text), limits()).await;
        assert!(
            ended.usage.cpu > Duration::from_millis(10),
            "{:?}",
            ended.usage
        );
        assert!(ended.usage.max_rss > 50 << 20, "{:?}", ended.usage);
    }
}
