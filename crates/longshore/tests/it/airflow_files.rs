//! Python DAG files in the folder of a running service, parsed by Airflow. Skipped where `LONGSHORE_TEST_AIRFLOW` names no
//! virtual environment; `cargo xtask airflow` makes one.

use std::{fs, path::PathBuf};

use tempfile::TempDir;

use crate::service_process::{Service, until};

const DAG: &str = "
from airflow.sdk import DAG
from airflow.providers.standard.operators.empty import EmptyOperator

with DAG('from_python', schedule='@daily', tags=['a'], is_paused_upon_creation=False):
    EmptyOperator(task_id='first') >> EmptyOperator(task_id='second')
";

const CONTAINERS: &str = "dag_id: from_yaml\ntasks: {t: {command: ['true']}}\n";

#[test]
fn python_and_container_dags_of_one_folder_are_listed_and_run() {
    #[expect(clippy::disallowed_methods, reason = "tests read the environment")]
    let Some(venv) = std::env::var_os("LONGSHORE_TEST_AIRFLOW") else {
        println!(
            "skipped: no Airflow (`cargo xtask airflow` makes what LONGSHORE_TEST_AIRFLOW names)"
        );
        return;
    };
    let python = PathBuf::from(venv).join("bin/python");
    let dags = TempDir::new().unwrap();
    let file = |name: &str| dags.path().join(name);
    fs::write(file("python.py"), DAG).unwrap();
    fs::write(file("containers.yaml"), CONTAINERS).unwrap();
    fs::write(file("broken.py"), format!("{DAG}\nraise ValueError('no')")).unwrap();
    let python = python.to_str().unwrap();
    let service = Service::start(dags.path(), &["--airflow-python", python]);
    let list = || {
        let (code, out, err) = service.outcome("dags list -o name");
        assert_eq!(code, 0, "{err}");
        (out, err)
    };
    until("the DAGs are listed, and the import error is shown", || {
        let (out, err) = list();
        let has = |name: &str| out.lines().any(|line| line.ends_with(name));
        has("from_python") && has("from_yaml") && err.contains("ValueError: no")
    });

    // No worker is needed for what does nothing.
    let (code, out, err) = service.outcome("dags trigger from_python --run-id mine --watch");
    assert_eq!(code, 0, "{out}{err}");
    let (_, tasks, _) = service.outcome("tasks list from_python/mine");
    assert_eq!(tasks.matches("success").count(), 2, "{tasks}");

    fs::remove_file(file("broken.py")).unwrap();
    fs::write(file("python.py"), DAG.replace("'second'", "'third'")).unwrap();
    until(
        "the changed DAG is known, and the import error is gone",
        || {
            let (_, err) = list();
            let (_, shown, _) = service.outcome("dags show from_python");
            shown.contains("third") && !err.contains("ValueError")
        },
    );
}
