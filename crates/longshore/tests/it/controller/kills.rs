//! A controller that is killed again and again: `cargo xtask campaign controller-kill` runs this with other numbers.

#[path = "../../../../../xtask/src/campaign/dice.rs"]
pub(crate) mod dice;

use std::{fs, path::PathBuf, time::Duration};

use dice::Dice;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    deaths,
    replica::{Plan, Replica, until},
};
use crate::{
    cluster::TestCluster,
    longshore, outcome,
    task_actions::{PodRecord, TaskActions, action},
};

/// Kills of each part.
pub(crate) const KILLS: &str = "LONGSHORE_TEST_KILLS";
/// TaskActions, and tasks of the DAG.
pub(super) const ACTIONS: &str = "LONGSHORE_TEST_ACTIONS";
const TASKS: &str = "LONGSHORE_TEST_TASKS";
/// The seed of the moments.
pub(crate) const SEED: &str = "LONGSHORE_TEST_SEED";
/// The program, instead of the one that was built with this test.
pub(crate) const BINARY: &str = "LONGSHORE_TEST_BINARY";

/// How long a controller lives, in milliseconds: one time counted from its start, the other from when it leads.
const LIFE_MS: (u64, u64) = (50, 1_500);
/// The lease where there are two replicas: as short as may be, because each kill waits for its end.
const SHORT_LEASE: &str = "2s";

#[expect(clippy::disallowed_methods, reason = "the campaign tells its numbers")]
pub(crate) fn told(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

pub(crate) fn number(variable: &str, default: u64) -> u64 {
    told(variable).map_or(default, |text| text.parse().unwrap())
}

/// The controllers of a test: one that starts again at once, or two of which one waits.
struct Controllers {
    plan: Plan,
    dice: Dice,
    /// The replicas; the leader is the first.
    replicas: Vec<Replica>,
    n_started: usize,
}

impl Controllers {
    async fn start(cluster: &TestCluster, role: &'static str, n_replicas: usize) -> Self {
        let mut plan = Plan::of(cluster, role);
        plan.lease = if n_replicas > 1 { SHORT_LEASE } else { "0" };
        if let Some(binary) = told(BINARY) {
            plan.program = PathBuf::from(binary);
        }
        let mut controllers = Self {
            plan,
            dice: Dice::new(number(SEED, 1)),
            replicas: Vec::new(),
            n_started: 0,
        };
        controllers.add();
        controllers.until_one_leads().await;
        for _ in 1..n_replicas {
            controllers.add();
        }
        controllers
    }

    fn add(&mut self) {
        self.n_started += 1;
        let name = format!("{}-{}", self.plan.role, self.n_started);
        self.replicas.push(self.plan.spawn(&name));
    }

    /// Waits until a replica leads, and moves it to the front.
    async fn until_one_leads(&mut self) {
        let mut at = None;
        until("one leads", || {
            at = self.replicas.iter().position(Replica::leads);
            at.is_some()
        })
        .await;
        self.replicas.swap(0, at.unwrap());
    }

    /// Kills the leader at a random moment of its life, and starts another replica.
    async fn kill(&mut self, n: u64) {
        // Alone, it is killed before it leads, too.
        if self.replicas.len() > 1 || n.is_multiple_of(2) {
            self.until_one_leads().await;
        }
        let life = self.dice.between(LIFE_MS.0, LIFE_MS.1);
        tokio::time::sleep(Duration::from_millis(life)).await;
        let mut dead = self.replicas.remove(0);
        dead.kill();
        self.add();
    }
}

/// Checks the end of an action. Answers how often it was launched.
fn n_launches(action: &Value, record: &PodRecord) -> usize {
    let name = action["metadata"]["name"].as_str().unwrap();
    let number = name.strip_prefix('a').unwrap().parse().unwrap();
    if let Some(death) = deaths::of(number) {
        return death.check(action, record);
    }
    let status = &action["status"];
    let end = super::actions::ending(action);
    assert_eq!(end.as_deref(), Some("Completed"), "{action}");
    assert_eq!(status["attempts"], 1, "{action}");
    let n_failures = status["systemFailures"].as_u64().unwrap_or(0);
    assert_eq!(n_failures, 0, "{action}");
    1
}

/// Actions are created in as many portions as there are kills, one before each.
async fn actions(n_replicas: usize, n_kills: u64, n_actions: u64) -> Value {
    let cluster = TestCluster::start().await;
    let actions = TaskActions::install(&cluster).await;
    let record = PodRecord::start(&cluster);
    let mut controllers = Controllers::start(&cluster, "tasks", n_replicas).await;
    let began_at = Instant::now();
    let mut n_created = 0;
    for n in 1..=n_kills {
        while n_created < n_actions * n / n_kills {
            let run_ms = controllers.dice.between(0, 1_500);
            let script = format!("run {run_ms}ms exit 0");
            let name = format!("a{n_created}");
            let death = deaths::of(n_created);
            let action = death.map_or_else(|| action(&name, 0, &script), |it| it.action(&name));
            actions.create(&action).await;
            n_created += 1;
        }
        controllers.kill(n).await;
    }
    let n_at_last_kill = record.n_pods();
    let n_ended = usize::try_from(n_actions).unwrap();
    actions.until_count(n_ended).await;
    let ended = actions.list().await;
    let n_launches = ended.iter().map(|action| n_launches(action, &record));
    let n_launches: usize = n_launches.sum();
    record.assert_one_pod_per_launch();
    assert_eq!(record.n_launches_of_all(), n_launches);
    json!({
        "replicas": n_replicas, "kills": n_kills, "actions": n_actions,
        "pods_at_the_last_kill": n_at_last_kill, "pods": record.n_pods(), "seconds": began_at.elapsed().as_secs_f64(),
    })
}

/// Whether the program of the first try of a task kills itself.
fn is_killed(n: u64) -> bool {
    n % 10 == 3
}

/// Tasks in lanes, each a random time long.
fn dag(n_tasks: u64, dice: &mut Dice) -> String {
    const LANES: u64 = 8;
    let head = "dag_id: kill\nschedule: '@once'\nstart_date: 2026-01-01\ncatchup: true\nmax_active_tasks: 1000\ntasks:\n";
    (0..n_tasks).fold(head.to_owned(), |mut text, n| {
        let run = format!("run, {}ms, exit", dice.between(0, 600));
        let command = match is_killed(n) {
            true => format!("{run}, '137', '|', {run}, '0'"),
            false => format!("{run}, '0'"),
        };
        let before = n.checked_sub(LANES).map(|before| format!("depends_on: [t{before}], "));
        let before = before.unwrap_or_default();
        text += &format!(
            "  t{n}: {{image: scripted, retries: 2, retry_delay: 1s, {before}command: [{command}]}}\n"
        );
        text
    })
}

async fn tasks(n_replicas: usize, n_kills: u64, n_tasks: u64) -> Value {
    let cluster = TestCluster::start().await;
    let record = PodRecord::start(&cluster);
    let data = Plan::of(&cluster, "dags").data();
    fs::create_dir_all(data.join("dags")).unwrap();
    fs::write(
        data.join("dags/kill.yaml"),
        dag(n_tasks, &mut Dice::new(number(SEED, 1))),
    )
    .unwrap();
    let mut controllers = Controllers::start(&cluster, "dags", n_replicas).await;
    let began_at = Instant::now();
    for n in 1..=n_kills {
        controllers.kill(n).await;
    }
    let n_at_last_kill = record.n_pods();
    let ask = |line: &str| -> Value {
        let mut command = longshore();
        command
            .args(line.split(' '))
            .args(["-o", "json"])
            .env("LONGSHORE_DATA_DIR", &data);
        serde_json::from_str(&outcome(&mut command).1).unwrap_or_default()
    };
    let mut run = Value::Null;
    until("the run is over", || {
        run = ask("runs list")["items"][0].clone();
        run["state"] == "success" || run["state"] == "failed"
    })
    .await;
    assert_eq!(run["state"], "success", "{run}");
    let rows = ask(&format!(
        "tasks list kill/{}",
        run["runId"].as_str().unwrap()
    ));
    let rows = rows["items"].as_array().unwrap();
    for row in rows {
        let number = row["taskId"].as_str().unwrap().strip_prefix('t').unwrap();
        let tries = 1 + u64::from(is_killed(number.parse().unwrap()));
        assert_eq!(
            (&row["state"], &row["tryNumber"]),
            (&json!("success"), &json!(tries)),
            "{row}"
        );
    }
    assert_eq!(rows.len(), usize::try_from(n_tasks).unwrap());
    record.assert_one_pod_per_launch();
    let n_killed = (0..n_tasks).filter(|n| is_killed(*n)).count();
    assert_eq!(record.n_launches_of_all(), rows.len() + n_killed);
    json!({
        "replicas": n_replicas, "kills": n_kills, "tasks": n_tasks,
        "pods_at_the_last_kill": n_at_last_kill, "pods": record.n_pods(), "seconds": began_at.elapsed().as_secs_f64(),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_runs_twice_when_the_controller_is_killed_again_and_again() {
    let (n_kills, n_actions, n_tasks) = (number(KILLS, 2), number(ACTIONS, 8), number(TASKS, 40));
    // Mostly they wait: for kills, and for leases to end.
    let (actions_of_one, actions_of_two, tasks_of_one, tasks_of_two) = tokio::join!(
        actions(1, n_kills, n_actions),
        actions(2, n_kills, n_actions),
        tasks(1, n_kills, n_tasks),
        tasks(2, n_kills, n_tasks),
    );
    let result = json!({
        "actions": [actions_of_one, actions_of_two],
        "dag": [tasks_of_one, tasks_of_two],
        "seed": number(SEED, 1),
        "each_launch_had": "exactly one pod",
        "programs_that_are_killed": "launched as often as is counted, and no more",
    });
    println!("result {result}");
}
