//! The parser of DAG files: a script of a few lines plays Airflow, under our program.

use std::{fs, path::Path};

use longshore_airflow::{
    api::store::Variable,
    parser::{ParseRequest, ParserQuestion, ParserReply, ParsingResult},
};
use longshore_python::{
    Prefork, PreforkSpec, Restarts,
    parser::{Outcome, Parsed, Parser, ParserRows},
};
use tempfile::TempDir;

use super::*;

/// Plays `airflow.dag_processing.processor`: runs the file, and sends what it left in `DAGS`.
const PROCESSOR: &str = "
def _parse_file_entrypoint():
    import traceback
    id, request, _ = recv()
    assert id == 0 and request['type'] == 'DagFileParseRequest', request
    file, root = request['file'], request['bundle_path']
    sys.path.insert(0, root)
    scope = {'__file__': file, 'ask': ask, 'send': send, 'sock': sock}
    errors = {}
    try:
        with open(file) as f:
            exec(compile(f.read(), file, 'exec'), scope)
    except Exception:
        errors[os.path.relpath(file, root)] = traceback.format_exc()
    ask(7, {
        'type': 'DagFileParsingResult',
        'fileloc': file,
        'serialized_dags': [{'data': dag, 'last_loaded': None} for dag in scope.get('DAGS', [])],
        'warnings': scope.get('WARNINGS'),
        'import_errors': errors,
    })
";

const ZOO: &str =
    include_str!("../../../longshore-airflow/testdata/serialization/example-zoo.json");

/// Knows one variable.
struct Rows;

impl ParserRows for Rows {
    async fn answer(&self, question: &ParserQuestion) -> ParserReply {
        if let ParserQuestion::Variable(key) = question
            && key == "known"
        {
            return variable(key, "ü");
        }
        if matches!(question, ParserQuestion::PutVariable(..)) {
            return ParserReply::Done;
        }
        ParserReply::Missing
    }
}

fn variable(key: &str, value: &str) -> ParserReply {
    ParserReply::Variable(Variable {
        key: key.to_owned(),
        value: Some(value.to_owned()),
    })
}

/// A bundle, and an environment with an Airflow of ours.
struct World {
    dir: TempDir,
}

impl World {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let world = Self { dir };
        let processor = format!("{}\n{PROCESSOR}", include_str!("frames.py"));
        world.write("site/airflow/__init__.py", "");
        world.write("site/airflow/dag_processing/__init__.py", "");
        world.write("site/airflow/dag_processing/processor.py", &processor);
        for (path, text) in files {
            world.write(&format!("dags/{path}"), text);
        }
        world
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn env(&self) -> BTreeMap<std::ffi::OsString, std::ffi::OsString> {
        BTreeMap::from([
            ("LC_ALL".into(), "C.UTF-8".into()),
            ("PYTHONPATH".into(), self.path("site").into()),
            ("PYTHONDONTWRITEBYTECODE".into(), "1".into()),
        ])
    }

    fn request(&self, file: &str) -> ParseRequest {
        ParseRequest::of_file("b", self.path("dags").to_str().unwrap(), file)
    }

    async fn parse_with(&self, starter: Starter, file: &str, limits: Limits) -> Parsed {
        let parser = Parser::new(starter, self.env(), PathBuf::from("/"), limits);
        let request = self.request(file);
        parser.parse(&request, &Rows, std::future::pending()).await
    }

    async fn parse(&self, file: &str) -> Parsed {
        self.parse_with(plain(), file, limits()).await
    }
}

fn found(parsed: &Parsed) -> &ParsingResult {
    match &parsed.outcome {
        Outcome::Found(result) => result,
        Outcome::Again { why } => panic!("{why}"),
    }
}

/// The import error of a file that has no DAG.
fn error<'a>(parsed: &'a Parsed, file: &str) -> &'a str {
    let result = found(parsed);
    assert!(result.dags.is_empty());
    assert_eq!(result.import_errors.keys().collect::<Vec<_>>(), [file]);
    &result.import_errors[file]
}

/// A file that reads, imports, lists and asks.
const CURIOUS: &str = "
import glob, json, os
from team import helper
os.chdir(os.path.dirname(__file__))
here = os.path.dirname(__file__)
DAGS = [json.load(open('data/zoo.json'))]
names = [os.path.basename(p) for p in glob.glob(here + '/conf/*.yaml')]
assert names == ['a.yaml'], names
assert ask(1, {'type': 'GetVariable', 'key': 'known'}) == {
    'type': 'VariableResult', 'key': 'known', 'value': 'ü'}
try:
    ask(2, {'type': 'GetConnection', 'conn_id': 'db'})
except LookupError as e:
    assert e.args[0] == {
        'type': 'ErrorResponse', 'error': 'CONNECTION_NOT_FOUND', 'detail': {'conn_id': 'db'}}, e
else:
    raise AssertionError('there is no connection')
assert ask(3, {'type': 'PutVariable', 'key': 'k', 'value': 'v', 'description': None}) is None
try:
    open(here + '/missing.txt')
except FileNotFoundError:
    pass
WARNINGS = [{'dag_id': 'zoo', 'warning_type': 'runtime varying value', 'message': 'Line 3'}]
print('imported')
";

fn curious() -> World {
    World::new(&[
        ("curious.py", CURIOUS),
        ("other.py", ""),
        ("team/__init__.py", ""),
        ("team/helper.py", "from . import deep"),
        ("team/deep.py", ""),
        ("team/unused.py", ""),
        ("data/zoo.json", ZOO),
        ("conf/a.yaml", ""),
    ])
}

fn check_curious(parsed: &Parsed) {
    let result = found(parsed);
    let errors = &result.import_errors;
    assert!(errors.is_empty(), "{errors:?}");
    let zoo: Json = serde_json::from_str(ZOO).unwrap();
    let dags: Vec<Json> = result.dags.iter().map(|it| it.document.to_json()).collect();
    assert_eq!(dags, [zoo]);
    assert_eq!(result.warnings.len(), 1);
    let reads = parsed.reads.as_ref().unwrap();
    assert_eq!(
        reads,
        &[
            "conf/",
            "curious.py",
            "data/zoo.json",
            "missing.txt",
            "team/__init__.py",
            "team/deep.py",
            "team/helper.py",
        ]
    );
    assert!(parsed.asked.variables.iter().eq(["known"]));
    assert!(parsed.asked.connections.iter().eq(["db"]));
    assert!(!parsed.asked.has_asked_more);
    assert_eq!(parsed.output.last_lines(1), "imported");
}

#[tokio::test]
async fn a_file_is_parsed_and_what_it_has_read_is_known() {
    check_curious(&curious().parse("curious.py").await);
}

#[tokio::test]
async fn a_forked_parser_finds_the_same() {
    let world = curious();
    let spec = PreforkSpec {
        interpreter: python(),
        env: world.env(),
        cwd: PathBuf::from("/"),
        preload: vec!["airflow".to_owned(), "json".to_owned(), "glob".to_owned()],
        preload_timeout: PATIENCE,
    };
    let starter = Starter::Prefork(Box::new(Prefork::new(spec, Restarts::default())));
    check_curious(&world.parse_with(starter, "curious.py", limits()).await);
}

#[tokio::test]
async fn what_a_file_does_wrong_is_an_import_error_of_it() {
    let world = World::new(&[
        ("raises.py", "raise ValueError('no')"),
        ("asks.py", "ask(1, {'type': 'GetVariable', 'key': 'other'})"),
        (
            "exits.py",
            "import sys; print('bye', flush=True); sys.exit(3)",
        ),
        ("leaves.py", "import os; os._exit(0)"),
        (
            "babbles.py",
            "import os; os.write(0, b'\\x00\\x00\\x00\\x03abc')",
        ),
        ("aborts.py", "import os; os.abort()"),
        (
            "invents.py",
            "send(1, {'type': 'LaunchRocket'}); import os; os._exit(1)",
        ),
    ]);
    for (file, words) in [
        ("raises.py", "ValueError: no"),
        ("asks.py", "VARIABLE_NOT_FOUND"),
        ("exits.py", "bye"),
        ("leaves.py", "without a result"),
        ("babbles.py", "protocol"),
        ("aborts.py", "SIGABRT"),
        ("invents.py", "`LaunchRocket`"),
    ] {
        let parsed = world.parse(file).await;
        let text = error(&parsed, file);
        assert!(text.contains(words), "{file}: {text}");
    }
}

#[tokio::test]
async fn a_file_that_hangs_is_ended_with_its_daemons() {
    let world = World::new(&[(
        "hangs.py",
        "import os, subprocess, time\n\
         child = subprocess.Popen(['/bin/sleep', '600'], start_new_session=True)\n\
         print(child.pid, flush=True)\n\
         time.sleep(600)",
    )]);
    // The limit must be longer than the start of an interpreter, however slow this machine is.
    for seconds in [1, 4, 16] {
        let limits = Limits {
            wall: Some(Duration::from_secs(seconds)),
            ..limits()
        };
        let parsed = world.parse_with(plain(), "hangs.py", limits).await;
        let text = error(&parsed, "hangs.py");
        assert!(text.contains("dag_file_processor_timeout"), "{text}");
        assert!(parsed.reads.is_none());
        if let Ok(pid) = parsed.output.last_lines(1).parse() {
            assert!(!runs(pid));
            return;
        }
    }
    panic!("the file was never run");
}

#[tokio::test]
async fn a_file_that_forks_is_parsed_once_and_its_child_ends() {
    let world = World::new(&[(
        "forks.py",
        "import os, time\n\
         pid = os.fork()\n\
         if pid == 0:\n    time.sleep(600)\n\
         print(pid, flush=True)",
    )]);
    let parsed = world.parse("forks.py").await;
    assert!(found(&parsed).import_errors.is_empty());
    let pid = parsed.output.last_lines(1).parse().unwrap();
    assert!(!runs(pid));
}

fn why(parsed: &Parsed) -> &str {
    match &parsed.outcome {
        Outcome::Again { why } => why,
        Outcome::Found(result) => panic!("{result:?}"),
    }
}

#[tokio::test]
async fn an_environment_that_cannot_parse_says_nothing_about_the_file() {
    let world = World::new(&[("a.py", "")]);
    fs::remove_dir_all(world.path("site")).unwrap();
    let without = world.parse("a.py").await;
    assert!(
        why(&without).contains("No module named 'airflow'"),
        "{}",
        why(&without)
    );
    let missing = Starter::Plain(Path::new("/nonexistent/python").to_owned());
    let missing = world.parse_with(missing, "a.py", limits()).await;
    assert!(
        why(&missing).contains("/nonexistent/python"),
        "{}",
        why(&missing)
    );
}

#[tokio::test]
async fn a_parser_that_is_stopped_or_killed_leaves_the_file_as_it_was() {
    let world = World::new(&[(
        "waits.py",
        "import os\nask(1, {'type': 'GetVariable', 'key': str(os.getpid())})\nimport time\ntime.sleep(600)",
    )]);
    /// Kills whoever asks, or lets the caller stop it.
    struct Killer(bool, tokio::sync::Notify);
    impl ParserRows for Killer {
        async fn answer(&self, question: &ParserQuestion) -> ParserReply {
            let ParserQuestion::Variable(key) = question else {
                panic!("{question:?}");
            };
            if self.0 {
                let pid = nix::unistd::Pid::from_raw(key.parse().unwrap());
                nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
            } else {
                self.1.notify_one();
            }
            variable(key, "")
        }
    }
    for (kills, words) in [(true, "SIGKILL"), (false, "stopped")] {
        let rows = Killer(kills, tokio::sync::Notify::new());
        let limits = Limits {
            grace: Duration::from_millis(100),
            ..limits()
        };
        let parser = Parser::new(plain(), world.env(), PathBuf::from("/"), limits);
        let request = world.request("waits.py");
        let parsed = parser.parse(&request, &rows, rows.1.notified()).await;
        assert!(why(&parsed).contains(words), "{}", why(&parsed));
    }
}
