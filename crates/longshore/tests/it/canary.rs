//! What people give to the service stays with them: a canary in every input is in no log, Event, status, metric or process
//! list, and in no file that another user of the machine may read.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command as Process, Stdio},
};

use kube::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    cluster::config,
    longshore, outcome,
    service_process::{Service, until},
};

const PARAM: &str = "canary-of-a-param-8c1f";
const ENV: &str = "canary-of-an-env-27d0";
const SECRET: &str = "canary-of-a-secret-93aa";
const STORE: &str = "canary-of-a-store-5b6e";
const DATABASE: &str = "canary-of-a-database-e41d";
/// What tests give on command lines.
const OTHER: &str = "another-canary";
const ALL: [&str; 5] = [PARAM, ENV, SECRET, STORE, DATABASE];

/// Its task has every canary in its environment, and waits.
const DAG: &str = r#"
dag_id: canary
workspace: true
params: {secret: none}
tasks:
  hold:
    command: [sh, -c, 'test ${#PARAM} = 22 && test ${#SECRET} = 23 || exit 7; cd "$LONGSHORE_WORKSPACE"; echo on > ran; while [ ! -e go ]; do sleep 0.05; done']
    env: {PARAM: "{{ params.secret }}", LITERAL: canary-of-an-env-27d0}
    executor_config:
      pod_override:
        spec:
          containers:
          - name: base
            env:
            - {name: SECRET, valueFrom: {secretKeyRef: {name: canary, key: key}}}
"#;

/// The canaries in a text.
fn found(text: &str) -> Vec<&'static str> {
    found_of(&ALL, text)
}

/// Those of these canaries that are in a text.
pub(crate) fn found_of(canaries: &[&'static str], text: &str) -> Vec<&'static str> {
    let mut all = canaries.to_vec();
    all.retain(|canary| text.contains(canary));
    all
}

/// Every command line on this machine but for those that are gone.
fn command_lines() -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .collect()
}

fn assert_no_command_line_has_one() {
    no_command_line_has_one_of(&ALL);
}

pub(crate) fn no_command_line_has_one_of(canaries: &[&'static str]) {
    for line in command_lines() {
        assert_eq!(found_of(canaries, &line), [] as [&str; 0], "{line}");
    }
}

/// The files below a directory that have a canary, and whether another user may read them: `is_open` says whether all
/// directories above may be entered.
pub(crate) fn files_with_one(
    canaries: &[&'static str],
    directory: &Path,
    is_open: bool,
    files: &mut Vec<(PathBuf, bool)>,
) {
    let mode = fs::metadata(directory).unwrap().mode();
    let is_open = is_open && mode & 0o011 != 0;
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if metadata.is_dir() {
            files_with_one(canaries, &entry.path(), is_open, files);
        } else if metadata.is_file()
            && let Ok(content) = fs::read(entry.path())
            && !found_of(canaries, &String::from_utf8_lossy(&content)).is_empty()
        {
            files.push((entry.path(), is_open && metadata.mode() & 0o044 != 0));
        }
    }
}

/// What `GET path` of an HTTP server says.
fn page(url: &str, path: &str) -> String {
    let address = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

async fn get(client: &Client, path: &str) -> Value {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    client.request(request).await.unwrap()
}

/// The file of the workspace that the task writes.
fn workspace(service: &Service) -> Option<PathBuf> {
    let volumes = fs::read_dir(service.data().join("node/volumes/longshore")).ok()?;
    let mut files = volumes.flatten().map(|volume| volume.path().join("ran"));
    files.find(|file| file.exists())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_to_the_service_is_nowhere_where_another_user_may_read_it() {
    let folder = TempDir::new().unwrap();
    let (data, dags) = (folder.path().join("data"), folder.path().join("dags"));
    // Modes as an earlier version has left them, and as a user's umask leaves the file of the stores.
    fs::create_dir_all(&data).unwrap();
    fs::create_dir(&dags).unwrap();
    let stores = data.join("storage.yaml");
    let keys = format!(
        "{{type: s3, connection: {{auth-type: accesskey, access-key: id, secret-key: {STORE}, endpoint: 'http://127.0.0.1:1'}}}}"
    );
    fs::write(&stores, keys).unwrap();
    for (path, mode) in [(folder.path(), 0o755), (&data, 0o755), (&stores, 0o644)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(dags.join("canary.yaml"), DAG).unwrap();
    let mut service = Service::start_in(&data, &dags);
    let client = Client::try_from(config(Path::new(&service.ready("kubeconfig"))).await).unwrap();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "canary"},
        "stringData": {"key": SECRET},
    });
    let request = http::Request::post("/api/v1/namespaces/longshore/secrets")
        .header("content-type", "application/json")
        .body(secret.to_string().into_bytes());
    let _: Value = client.request(request.unwrap()).await.unwrap();
    let trigger = format!("dags trigger canary --run-id r1 --param secret={PARAM}");
    let (code, _, stderr) = service.outcome(&trigger);
    assert_eq!(code, 0, "{stderr}");
    until("the task runs", || workspace(&service).is_some());

    assert_no_command_line_has_one();
    let metrics = page(&service.ready("metrics"), "/metrics");
    assert!(metrics.contains("longshore_"), "{metrics}");
    assert_eq!(found(&metrics), [] as [&str; 0]);
    let mut said = get(&client, "/apis/events.k8s.io/v1/events")
        .await
        .to_string();
    for kind in ["pods", "configmaps", "persistentvolumeclaims"] {
        let list = get(&client, &format!("/api/v1/{kind}")).await;
        for object in list["items"].as_array().unwrap() {
            said.push_str(&object["status"].to_string());
            said.push_str(&object["metadata"].to_string());
        }
    }
    assert_eq!(found(&said), [] as [&str; 0], "{said}");
    let go = workspace(&service).unwrap().with_file_name("go");
    fs::write(go, "").unwrap();
    until("the run is over", || {
        let (_, stdout, _) = service.outcome("runs get canary/r1 -o json");
        stdout.contains("\"success\"")
    });
    let (_, stderr) = service.stop();
    assert_eq!(found(&stderr), [] as [&str; 0], "{stderr}");
    let log = fs::read_to_string(data.join("longshore.log")).unwrap();
    assert_eq!(found(&log), [] as [&str; 0], "{log}");

    nobody_else_reads(&data, &stores);
}

/// Whatever has a canary is closed to others, and so is everything at the top.
fn nobody_else_reads(data: &Path, stores: &Path) {
    let mut files = Vec::new();
    files_with_one(&ALL, data, true, &mut files);
    assert!(!files.is_empty(), "the database has the parameter");
    let open: Vec<_> = files.iter().filter(|(_, is_open)| *is_open).collect();
    assert!(open.is_empty(), "{open:?}");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!((mode(data), mode(stores)), (0o700, 0o600));
    for entry in fs::read_dir(data).unwrap().flatten() {
        let mode = mode(&entry.path());
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", entry.path().display());
    }
}

#[test]
fn the_password_of_a_database_is_in_a_file_and_not_said() {
    let folder = TempDir::new().unwrap();
    let (file, data) = (folder.path().join("url"), folder.path().join("data"));
    fs::write(
        &file,
        format!("postgres://ann:{DATABASE}@127.0.0.1:1/runs\n"),
    )
    .unwrap();
    let process = Process::new(env!("CARGO_BIN_EXE_longshore"))
        .args([
            "standalone",
            "--port",
            "0",
            "--kube-port",
            "0",
            "--metrics-port",
            "0",
        ])
        .arg("--data-dir")
        .arg(&data)
        .arg("--database-url-file")
        .arg(&file)
        .env_remove("LONGSHORE_DATABASE_URL")
        .env_remove("LONGSHORE_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("it logs", || data.join("longshore.log").exists());
    assert_no_command_line_has_one();
    let ended = process.wait_with_output().unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("error[LS1704]"), "{said}");
    assert_eq!(found(&said), [] as [&str; 0], "{said}");
    let log = fs::read_to_string(data.join("longshore.log")).unwrap();
    assert_eq!(found(&log), [] as [&str; 0], "{log}");
}

#[test]
fn a_password_on_the_command_line_is_warned_of_and_not_repeated() {
    let folder = TempDir::new().unwrap();
    let mut command = longshore();
    command
        .args([
            "standalone",
            "--port",
            "0",
            "--kube-port",
            "0",
            "--metrics-port",
            "0",
        ])
        .arg("--data-dir")
        .arg(folder.path().join("data"))
        .args(["--database-url", &format!("mysql://ann:{OTHER}@db/runs")]);
    let (code, stdout, stderr) = outcome(&mut command);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("--database-url-file"), "{stderr}");
    assert!(!(stdout + &stderr).contains(OTHER));
}

#[test]
fn a_secret_in_a_flag_of_the_configuration_is_warned_of_and_not_repeated() {
    let folder = TempDir::new().unwrap();
    for (command, flags, expected) in [
        (
            &["controller"][..],
            &["--storage.connection.secret-key", OTHER][..],
            "the secret in storage.connection.secret-key is on the command line",
        ),
        (
            &["controller", "rbac"],
            &["--storage.stow.config", "{json: another-canary}"],
            "`storage: {stow: {config: {json: …}}}`, and name that with --config",
        ),
        (
            &["dags", "list", "--server", "http://127.0.0.1:1"],
            // Other tests look at all command lines meanwhile, for the canaries above.
            &["--token", OTHER],
            "the token is on the command line",
        ),
    ] {
        let mut longshore = longshore();
        longshore.args(command).args(flags);
        if command == ["controller"] {
            // There is no API server: the controller ends.
            longshore
                .arg("--kubeconfig")
                .arg(folder.path().join("none"));
            longshore.arg("--data-dir").arg(folder.path().join("data"));
        }
        let (_, stdout, stderr) = outcome(&mut longshore);
        assert!(stderr.contains(expected), "{stderr}");
        assert!(!(stdout + &stderr).contains(OTHER), "{stderr}");
    }
}

#[test]
fn a_file_of_stores_with_a_mistake_is_refused_without_its_keys() {
    let folder = TempDir::new().unwrap();
    let (dag, data) = (folder.path().join("dag.yaml"), folder.path().join("data"));
    fs::write(&dag, "dag_id: a\ntasks: {t: {command: ['true']}}\n").unwrap();
    fs::create_dir(&data).unwrap();
    for mistake in [
        format!("type: s3\nconnection:\n  secret-key: {STORE}\n  region: [a\n"),
        format!("type: s3\nconnection:\n  secret-key: {STORE}\n  regoin: a\n"),
        format!("type: s3\nconnection: '{STORE}'\n"),
    ] {
        fs::write(data.join("storage.yaml"), &mistake).unwrap();
        let mut command = longshore();
        command.arg("run").arg(&dag).arg("--data-dir").arg(&data);
        let (code, stdout, stderr) = outcome(&mut command);
        assert_eq!(code, 1, "{mistake}: {stderr}");
        assert!(stderr.contains("storage.yaml is not valid"), "{stderr}");
        assert_eq!(found(&(stdout + &stderr)), [] as [&str; 0], "{stderr}");
    }
}

#[test]
fn a_password_in_the_address_of_a_store_in_the_environment_is_refused_and_not_repeated() {
    let folder = TempDir::new().unwrap();
    let (dag, data) = (folder.path().join("dag.yaml"), folder.path().join("data"));
    fs::write(&dag, "dag_id: a\ntasks: {t: {command: ['true']}}\n").unwrap();
    fs::create_dir(&data).unwrap();
    let google = "{type: stow, stow: {kind: google, config: {json: '{}'}}}";
    let azure = "{type: stow, stow: {kind: azure, config: {account: acme}}}";
    for (store, name) in [
        ("type: s3", "AWS_ENDPOINT"),
        ("type: s3", "AWS_ENDPOINT_URL"),
        ("type: s3", "AWS_ENDPOINT_URL_S3"),
        (google, "GOOGLE_BASE_URL"),
        (azure, "AZURE_STORAGE_ENDPOINT"),
        (azure, "AZURE_AUTHORITY_HOST"),
    ] {
        fs::write(data.join("storage.yaml"), store).unwrap();
        let mut command = longshore();
        command.arg("run").arg(&dag).arg("--data-dir").arg(&data);
        command.env(name, format!("https://id:{STORE}@127.0.0.1:1"));
        let (code, stdout, stderr) = outcome(&mut command);
        assert_eq!(code, 1, "{name}: {stderr}");
        let expected = format!("https://host:port in the variable {name}, found one with a user");
        assert!(stderr.contains(&expected), "{stderr}");
        assert_eq!(found(&(stdout + &stderr)), [] as [&str; 0], "{stderr}");
    }
}

#[test]
fn the_http_api_is_not_served_beyond_loopback() {
    let folder = TempDir::new().unwrap();
    for address in ["0.0.0.0:0", "[::]:0", "10.0.0.1:7080"] {
        let mut command = longshore();
        command
            .args(["controller", "--address", address, "--data-dir"])
            .arg(folder.path().join("data"));
        let (code, _, stderr) = outcome(&mut command);
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains("error[LS1032]"), "{stderr}");
    }
    assert!(!folder.path().join("data").exists());
}
