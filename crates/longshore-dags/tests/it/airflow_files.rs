//! Airflow's own examples, parsed by Airflow's own parser: each document is written again as it was read, and becomes a
//! DAG of ours. Skipped where `LONGSHORE_TEST_AIRFLOW` names no virtual environment; `cargo xtask airflow` makes one.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use futures::StreamExt as _;
use longshore_airflow::{parser::ParseRequest, serialized::Document};
use longshore_dags::model::Dag;
use longshore_python::{
    Answer, Answers, Child, Frame, Launch, Limits, Prefork, PreforkSpec, Program, Restarts,
    Starter, parser::PARSER_MODULES, value,
};
use serde_json::{Value, json};

/// Upstream's entry of a parser, unmodified.
const PARSER: &str =
    "from airflow.dag_processing.processor import _parse_file_entrypoint as m; m()";

/// Keeps what a parser sends.
#[derive(Default)]
struct Sent(Mutex<Vec<Value>>);

impl Answers for Sent {
    async fn answer(&self, frame: Frame) -> Answer {
        self.0
            .lock()
            .unwrap()
            .push(value::to_json(&frame.body).unwrap());
        Answer::Body(value::from_json(&json!({"type": "OKResponse", "ok": true})).unwrap())
    }
}

struct World {
    starter: Starter,
    env: BTreeMap<OsString, OsString>,
    home: tempfile::TempDir,
}

impl World {
    fn new(venv: &Path) -> Self {
        let home = tempfile::tempdir().unwrap();
        let env = BTreeMap::from([
            ("LC_ALL".into(), "C.UTF-8".into()),
            ("HOME".into(), home.path().into()),
            ("AIRFLOW_HOME".into(), home.path().into()),
            // Custom timetables and weights of examples are plugins, which only come with the examples.
            ("AIRFLOW__CORE__LOAD_EXAMPLES".into(), "True".into()),
        ]);
        let spec = PreforkSpec {
            interpreter: venv.join("bin/python"),
            env: env.clone(),
            cwd: home.path().to_owned(),
            preload: PARSER_MODULES.map(str::to_owned).to_vec(),
            preload_timeout: Duration::from_secs(120),
        };
        let prefork = Prefork::new(spec, Restarts::default());
        Self {
            starter: Starter::Prefork(Box::new(prefork)),
            env,
            home,
        }
    }

    /// The result of a file, as the parser wrote it.
    async fn parse(&self, root: &Path, file: &str) -> Value {
        let launch = Launch {
            program: Program::Code(PARSER.to_owned()),
            args: Vec::new(),
            env: self.env.clone(),
            cwd: self.home.path().to_owned(),
        };
        let limits = Limits {
            wall: Some(Duration::from_secs(120)),
            ..Limits::PARSER
        };
        let request = ParseRequest::of_file("examples", root.to_str().unwrap(), file);
        let first = value::from_json(&request.to_json()).unwrap();
        let child = Child::start(&self.starter, &launch, limits).await.unwrap();
        let sent = Sent::default();
        let ended = child
            .supervise(Some(first), &sent, std::future::pending())
            .await;
        let sent = sent.0.into_inner().unwrap();
        let result = sent
            .into_iter()
            .find(|body| body["type"] == "DagFileParsingResult");
        result.unwrap_or_else(|| panic!("{file}: {ended:?}"))
    }
}

/// The folders of examples, and the Python files in them, from the root of the installed packages.
fn examples(site: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![
        site.join("airflow/example_dags"),
        site.join("airflow/providers/standard/example_dags"),
    ];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let is_module = name.ends_with(".py") && name != "__init__.py";
            if path.is_dir() && !name.starts_with('_') {
                folders.push(path);
            } else if is_module {
                let path = path.strip_prefix(site).unwrap();
                found.insert(path.to_str().unwrap().to_owned());
            }
        }
    }
    found
}

fn site_packages(venv: &Path) -> PathBuf {
    let lib = std::fs::read_dir(venv.join("lib")).unwrap();
    let mut lib = lib.map(|entry| entry.unwrap().path().join("site-packages"));
    lib.find(|path| path.join("airflow").is_dir()).unwrap()
}

/// What became of the DAGs of a file: one line for each part that is not supported.
fn check(file: &str, result: &Value, unsupported: &mut Vec<String>) -> usize {
    let dags = result["serialized_dags"].as_array().unwrap();
    for dag in dags {
        let raw = &dag["data"];
        let document = Document::read(raw.clone()).unwrap_or_else(|why| panic!("{file}: {why}"));
        assert_eq!(document.to_json(), *raw, "{file}");
        let model = Dag::of_document(&document).unwrap_or_else(|why| panic!("{file}: {why:?}"));
        let text = raw.to_string();
        assert_eq!(Dag::from_text(&text).unwrap(), model, "{file}");
        assert_eq!(
            model.tasks.len(),
            document.dag.tasks.iter().count(),
            "{file}"
        );
        let python = model.python.unwrap();
        let parts = python.unsupported.iter();
        unsupported.extend(parts.map(|part| format!("{}: {part}", model.dag_id)));
    }
    dags.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_of_airflow_is_read_and_written_again_and_what_is_not_supported_is_named() {
    #[expect(clippy::disallowed_methods, reason = "tests read the environment")]
    let Some(venv) = std::env::var_os("LONGSHORE_TEST_AIRFLOW") else {
        println!(
            "skipped: no Airflow (`cargo xtask airflow` makes what LONGSHORE_TEST_AIRFLOW names)"
        );
        return;
    };
    let venv = PathBuf::from(venv);
    let site = site_packages(&venv);
    let world = World::new(&venv);
    let files = examples(&site);
    let results = futures::stream::iter(&files).map(|file| async {
        let result = world.parse(&site, file).await;
        (file.clone(), result)
    });
    let results: BTreeMap<String, Value> = results.buffer_unordered(2).collect().await;
    let (mut n_dags, mut unsupported, mut errors) = (0, Vec::new(), Vec::new());
    for (file, result) in &results {
        n_dags += check(file, result, &mut unsupported);
        let of_file = result["import_errors"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        for (path, text) in of_file {
            let text = text.as_str().unwrap_or_default().trim_end().to_owned();
            let last = text.lines().last().unwrap_or_default().to_owned();
            errors.push(format!("{path}: {last}"));
        }
    }
    unsupported.sort();
    errors.sort();
    insta::assert_snapshot!("unsupported_parts_of_examples", unsupported.join("\n"));
    insta::assert_snapshot!("import_errors_of_examples", errors.join("\n"));
    println!(
        "airflow: {} files, {n_dags} DAGs read and written again",
        files.len()
    );
}
