//! A folder that is followed, with children: a script of a few lines plays Airflow, and rounds are committed as the
//! scheduler does it.

use std::{fs, process::Command};

use jiff::Timestamp;
use longshore_kit::{Clock, SystemClock};
use longshore_store::{Changes, RunStore as _, Shared as Kept, Store, StoredVariable};
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::{
    catalog::{Catalog, parsed, rows},
    pods::build::PodConfig,
    scheduler::board::Board,
};

/// The longest that a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Plays `airflow.dag_processing.processor`: runs the file, and sends a DAG for each name in `DAGS`.
const PROCESSOR: &str = "
def _parse_file_entrypoint():
    global sock
    import traceback
    sock = socket.socket(fileno=os.dup(0))
    id, request, _ = recv()
    file, root = request['file'], request['bundle_path']
    scope = {'ask': ask}
    errors = {}
    try:
        with open(file) as f:
            exec(compile(f.read(), file, 'exec'), scope)
    except Exception:
        errors[os.path.relpath(file, root)] = traceback.format_exc()
    def dag(name):
        task = {'task_id': 't', 'task_type': 'EmptyOperator', '_task_module': 'm'}
        return {'__version': 3, 'dag': {
            'dag_id': name, 'fileloc': file, 'is_paused_upon_creation': False,
            'tasks': [{'__type': 'operator', '__var': task}]}}
    ask(7, {
        'type': 'DagFileParsingResult', 'fileloc': file, 'warnings': [], 'import_errors': errors,
        'serialized_dags': [{'data': dag(it), 'last_loaded': None} for it in scope.get('DAGS', [])],
    })
";

struct World {
    folder: TempDir,
    store: Arc<Store>,
    shared: Arc<Shared>,
    shutdown: CancellationToken,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(
            Store::open(&folder.path().join("longshore.db"))
                .await
                .unwrap(),
        );
        let shared = Shared::new(
            store.clone(),
            Arc::new(SystemClock),
            "cluster".to_owned(),
            (PodConfig::default(), None),
            Board::default(),
            Catalog::default(),
            0,
        );
        let world = Self {
            folder,
            store,
            shared: Arc::new(shared),
            shutdown: CancellationToken::new(),
        };
        world.install();
        world
    }

    /// Puts our Airflow into the environment.
    fn install(&self) {
        // The prefork server imports the module before a child has its socket.
        let frames = include_str!("../../../longshore-python/tests/it/frames.py");
        let frames = frames.replace("sock = socket.socket(fileno=os.dup(0))\n", "");
        let processor = format!("{frames}\n{PROCESSOR}");
        for module in PARSER_MODULES {
            let path = module.replace('.', "/");
            let parts = path.match_indices('/').map(|(at, _)| &path[..at]);
            parts.for_each(|part| self.write(&format!("site/{part}/__init__.py"), ""));
            self.write(&format!("site/{path}.py"), "");
        }
        self.write("site/airflow/dag_processing/processor.py", &processor);
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn config(&self, interpreter: PathBuf) -> ParsingConfig {
        let env = [
            ("LC_ALL", "C.UTF-8".into()),
            ("PYTHONPATH", self.path("site").into_os_string()),
            ("PYTHONDONTWRITEBYTECODE", "1".into()),
        ];
        ParsingConfig {
            python: PythonEnvironment {
                interpreter,
                env: env.map(|(name, value)| (name.into(), value)).into(),
                cwd: PathBuf::from("/"),
            },
            bundles: vec![FollowedBundle {
                name: BundleName::new("dags-folder").unwrap(),
                refresh_interval: Duration::from_secs(300),
                source: BundleSource::Local(self.path("dags")),
            }],
            settings: ParsingSettings {
                min_file_process_interval: SignedDuration::from_millis(200),
                ..ParsingSettings::default()
            },
            told: self.store.clone(),
            secrets: Secrets::new(None),
        }
    }

    /// Follows the folder.
    fn start(&self, interpreter: PathBuf) -> tokio::task::JoinHandle<()> {
        self.shared
            .catalog_mut()
            .configure_bundles(["dags-folder".to_owned()]);
        let config = self.config(interpreter);
        tokio::spawn(follow(self.shared.clone(), config, self.shutdown.clone()))
    }

    /// Commits what is new, until the DAGs and files are as they are to be.
    async fn until(&self, expected: &[&str]) {
        let mut known = Vec::new();
        let reached = timeout(PATIENCE, async {
            loop {
                self.round().await;
                known = self.known();
                if known == expected {
                    return;
                }
                self.shared.inbox.arrived().await;
            }
        });
        if reached.await.is_err() {
            panic!("expected {expected:?}, found {known:?}");
        }
    }

    async fn round(&self) {
        let catalog = self.shared.catalog();
        let entries = rows::decide(&catalog, Timestamp::UNIX_EPOCH);
        let files = parsed::decide(&catalog, &entries, Timestamp::UNIX_EPOCH);
        let mut changes = Changes::default();
        catalog.collect_into(&mut changes, &entries, files);
        if !changes.is_empty() {
            self.store.commit(&changes).await.unwrap();
        }
        let version = catalog.version();
        self.shared.catalog_mut().apply(&entries, &changes, version);
    }

    /// Each DAG with its file, and each import error by its last line.
    fn known(&self) -> Vec<String> {
        let known = self.shared.catalog().known().into_iter().map(|known| {
            let name = known.dag_id.as_deref().unwrap_or("-");
            let file = known.file.as_deref().unwrap_or("-");
            let error = known.error.as_deref().unwrap_or("fine");
            let error = error.trim_end().lines().last().unwrap_or_default();
            format!("{name} in {file}: {error}")
        });
        known.collect()
    }
}

/// The interpreter itself, without the shims that version managers put before it.
fn python() -> PathBuf {
    let output = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output()
        .unwrap();
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_folder_become_rows_and_follow_their_changes() {
    let world = World::new().await;
    world.write("dags/a.py", "# an airflow dag\nDAGS = ['one', 'two']\n");
    world.write("dags/b.py", "# an airflow dag\nraise ValueError('no')\n");
    world.write("dags/helper.py", "raise ValueError('nobody parses this')\n");
    let following = world.start(python());
    world
        .until(&[
            "one in a.py: fine",
            "two in a.py: fine",
            "- in b.py: ValueError: no",
        ])
        .await;
    let stored = world.store.load().await.unwrap();
    assert_eq!(stored.dag_versions.len(), 2);
    let source = stored.dag_versions[0].source.as_ref().unwrap();
    let source = world.store.document(source).await.unwrap();
    assert!(source.body().contains("DAGS = ['one', 'two']"));

    world.write("dags/b.py", "# an airflow dag\nDAGS = ['three']\n");
    world
        .until(&[
            "one in a.py: fine",
            "three in b.py: fine",
            "two in a.py: fine",
        ])
        .await;
    fs::remove_file(world.path("dags/a.py")).unwrap();
    world
        .until(&["one in -: fine", "three in b.py: fine", "two in -: fine"])
        .await;
    world.shutdown.cancel();
    timeout(PATIENCE, following).await.unwrap().unwrap();
    assert_eq!(world.store.load().await.unwrap().import_errors, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_that_comes_later_is_seen_without_a_change_of_the_file() {
    let world = World::new().await;
    let ask = "# an airflow dag
try:
    DAGS = [ask(1, {'type': 'GetVariable', 'key': 'name'})['value']]
except LookupError as e:
    raise LookupError(e.args[0]['error'])
";
    world.write("dags/a.py", ask);
    let following = world.start(python());
    world
        .until(&["- in a.py: LookupError: VARIABLE_NOT_FOUND"])
        .await;
    let variable = StoredVariable {
        key: "name".to_owned(),
        value: Secrets::new(None).seal("told", SystemClock.now()).unwrap(),
        description: None,
    };
    world.store.keep(Kept::Variable(variable)).await.unwrap();
    world.until(&["told in a.py: fine"]).await;
    world.shutdown.cancel();
    timeout(PATIENCE, following).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_without_airflow_says_nothing_about_the_files() {
    let world = World::new().await;
    world.write("dags/a.py", "# an airflow dag\nDAGS = ['one']\n");
    fs::remove_dir_all(world.path("site/airflow")).unwrap();
    let following = world.start(python());
    timeout(PATIENCE, world.shared.inbox.arrived())
        .await
        .unwrap();
    world.until(&[]).await;
    // One that comes is used without a restart.
    world.install();
    world.until(&["one in a.py: fine"]).await;
    world.shutdown.cancel();
    timeout(PATIENCE, following).await.unwrap().unwrap();
}
