//! A run whose context leads to another cluster than before.

use std::fs;

use tempfile::TempDir;

use crate::{
    longshore, outcome,
    run::{Background, result},
    service_process::Service,
};

const DAG: &str = "dag_id: moved\ntasks:\n  one:\n    image: any\n    command: [sleep, '1000']\n";

/// Two services have the same name for their contexts.
fn place(service: &Service) -> [String; 4] {
    let kubeconfig = service.ready("kubeconfig");
    ["--context", "longshore", "--kubeconfig", &kubeconfig].map(str::to_owned)
}

#[test]
fn a_run_goes_on_in_another_cluster_only_if_its_user_says_so() {
    let folder = TempDir::new().unwrap();
    let [dags, data, dag] = ["dags", "data", "dag.yaml"].map(|name| folder.path().join(name));
    fs::create_dir(&dags).unwrap();
    fs::write(&dag, DAG).unwrap();
    let former = Service::start(&dags, &[]);
    let arguments = place(&former);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut run = Background::start(&dag, &data, &arguments);
    run.wait_until_it_runs("one");
    run.signal("INT");
    let (code, rest) = run.end();
    assert_eq!(code, 130, "{rest}");
    let run_id = result(&rest).1["runId"].as_str().unwrap().to_owned();

    let service = Service::start(&dags, &[]);
    let resume = |more: &[&str]| {
        let mut command = longshore();
        command.arg("run").arg(&dag).arg("--data-dir").arg(&data);
        command.args(["-o", "json", "--resume", &run_id]);
        outcome(command.args(place(&service)).args(more))
    };
    let (code, stdout, stderr) = resume(&[]);
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    for part in ["LS1386", &*run_id, "--in-other-cluster"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    let arguments = place(&service);
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    arguments.extend(["--resume", &run_id, "--in-other-cluster"]);
    let mut run = Background::start(&dag, &data, &arguments);
    run.wait_until_it_runs("one");
    run.signal("INT");
    let (code, rest) = run.end();
    assert_eq!(code, 130, "{rest}");
}
