//! TaskActions as people apply them: with kubectl, from files. It is skipped where `LONGSHORE_TEST_KUBECTL` names none.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::replica::{Plan, until};
use crate::{cluster::TestCluster, repository, task_actions::TaskActions};

/// kubectl, on a cluster of a test.
struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
}

impl Kubectl {
    fn given(cluster: &TestCluster) -> Option<Self> {
        #[expect(clippy::disallowed_methods, reason = "tests read the environment")]
        let Some(program) = std::env::var_os("LONGSHORE_TEST_KUBECTL") else {
            println!("skipped: no kubectl (set LONGSHORE_TEST_KUBECTL)");
            return None;
        };
        Some(Self {
            program: program.into(),
            kubeconfig: cluster.admin_kubeconfig(),
            namespace: cluster.namespace.clone(),
        })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["-n", &self.namespace])
            .args(arguments);
        command
    }

    /// What it printed; it has to succeed.
    fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The reason of the condition `Progressing`.
    fn reason(&self, name: &str) -> String {
        let path = "jsonpath={.status.conditions[?(@.type=='Progressing')].reason}";
        self.run(&["get", "taskaction", name, "-o", path])
    }
}

/// A copy of a file that names no namespace, as the one of the test is given to kubectl.
fn without_namespace(file: &Path, folder: &Path) -> PathBuf {
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines().filter(|line| !line.contains("namespace:"));
    let copy = folder.join("applied.yaml");
    fs::write(&copy, lines.collect::<Vec<_>>().join("\n")).unwrap();
    copy
}

/// The lines of `get -w` until one holds `last`.
fn watched(mut watching: Child, last: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in BufReader::new(watching.stdout.take().unwrap()).lines() {
        lines.push(line.unwrap());
        if lines.last().unwrap().contains(last) {
            break;
        }
    }
    watching.kill().unwrap();
    watching.wait().unwrap();
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies_the_example_and_watches_it_and_a_stale_one_is_invalid() {
    let cluster = TestCluster::start().await;
    let Some(kubectl) = Kubectl::given(&cluster) else {
        return;
    };
    TaskActions::install(&cluster).await;
    let plan = Plan {
        lease: "0",
        ..Plan::of(&cluster, "tasks")
    };
    let mut controller = plan.start("controller");
    until("it runs", || controller.leads()).await;

    let watching = kubectl
        .command(&["get", "taskactions", "-w"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let example = without_namespace(
        &repository().join("examples/taskaction.yaml"),
        cluster.folder.path(),
    );
    kubectl.run(&["apply", "-f", example.to_str().unwrap()]);
    let lines = tokio::task::spawn_blocking(|| watched(watching, "Completed"))
        .await
        .unwrap();
    let words = |line: &str| -> Vec<String> {
        let words = line.split_whitespace();
        words.map(str::to_owned).collect()
    };
    let header = ["NAME", "RUN", "ACTION", "TASKTYPE", "STATUS", "AGE"];
    assert_eq!(words(&lines[0]), header, "{lines:#?}");
    let end = words(lines.last().unwrap());
    assert_eq!(
        end[..5],
        ["hello-a0", "hello", "a0", "raw-container", "Completed"],
        "{lines:#?}"
    );

    // Its spec is that of an older definition; only without its strict validation does kubectl send it.
    let stale = repository().join("crates/longshore-tasks/testdata/flyte.org_v1_taskaction.yaml");
    let stale = without_namespace(&stale, cluster.folder.path());
    let applied = kubectl
        .command(&["apply", "--validate=false", "-f"])
        .arg(&stale)
        .output();
    let applied = applied.unwrap();
    let stderr = String::from_utf8_lossy(&applied.stderr);
    assert!(applied.status.success(), "{stderr}");
    until("the stale one has ended", || {
        kubectl.reason("taskaction-sample") == "InvalidSpec"
    })
    .await;
    assert_eq!(controller.stop(), Some(0), "{}", controller.log());
}
