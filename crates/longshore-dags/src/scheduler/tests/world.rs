//! A scheduler with its store, where each commit is checked against the laws.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use longshore_core::{Action, Next};
use longshore_store::{
    Changes, DEFAULT_POOL, Heartbeats, Pool, Run, RunKey, RunState, Snapshot, TaskInstance,
    TaskKey, TaskState,
};
use uuid::Uuid;

use crate::{
    model::{Dag, Task, TriggerRule, WeightRule},
    scheduler::{
        ActiveRun, Board, Clearing, Fact, LaunchChange, LaunchFact, Limits, NewRun, Observed,
        Selection, WorkerReport, decide,
        identity::try_id,
        trigger_rule::{Counts, Verdict, evaluate, evaluate_indirect_setups},
    },
    timetable::Timetable,
};

pub(super) use super::changes::{failed, failure, never_started, running, stopped, succeeded};

pub(super) fn task(id: &str, upstream: &[&str]) -> Task {
    Task {
        task_id: id.to_owned(),
        image: None,
        command: Vec::new(),
        args: Vec::new(),
        env: Vec::new(),
        upstream: upstream.iter().map(|&id| id.to_owned()).collect(),
        downstream: BTreeSet::new(),
        retries: 0,
        retry_delay: Duration::from_secs(300),
        retry_exponential_backoff: 0.0,
        max_retry_delay: None,
        execution_timeout: None,
        trigger_rule: TriggerRule::AllSuccess,
        pool: DEFAULT_POOL.to_owned(),
        pool_slots: 1,
        priority_weight: 1,
        weight_rule: WeightRule::Downstream,
        max_active_tis_per_dag: None,
        plugin: None,
        is_setup: false,
        is_teardown: false,
        pod_override: None,
        python: None,
    }
}

pub(super) fn dag(tasks: Vec<Task>) -> Dag {
    let tasks = tasks.into_iter().map(|it| (it.task_id.clone(), it));
    let mut tasks: BTreeMap<String, Task> = tasks.collect();
    let edges: Vec<(String, String)> = tasks
        .values()
        .flat_map(|task| {
            task.upstream
                .iter()
                .map(|before| (before.clone(), task.task_id.clone()))
        })
        .collect();
    for (before, after) in edges {
        tasks.get_mut(&before).unwrap().downstream.insert(after);
    }
    Dag {
        dag_id: "d".to_owned(),
        description: None,
        schedule: None,
        timetable: Timetable::Null,
        start_date: None,
        tags: Vec::new(),
        end_date: None,
        catchup: false,
        is_paused_upon_creation: false,
        params: BTreeMap::new(),
        max_active_runs: 16,
        max_active_tasks: 16,
        dagrun_timeout: None,
        files: BTreeMap::new(),
        workspace: None,
        tasks,
        python: None,
    }
}

pub(super) fn request(dag: &Arc<Dag>, run_id: &str) -> Fact {
    Fact::RunRequested(NewRun::manual(Arc::clone(dag), run_id.to_owned()))
}

pub(super) fn key(run_id: &str) -> RunKey {
    RunKey {
        dag_id: "d".to_owned(),
        run_id: run_id.to_owned(),
    }
}

/// Whether a worker skips others.
fn is_skip(fact: &Fact) -> bool {
    matches!(fact, Fact::Worker(fact) if matches!(*fact.report, WorkerReport::Skips { .. }))
}

/// The scheduler, its store, and a clock.
#[derive(Clone)]
pub(super) struct World {
    pub(super) now: Timestamp,
    pub(super) board: Board,
    pub(super) limits: Limits,
    pub(super) heartbeats: Arc<Heartbeats>,
    pub(super) pools: Vec<Pool>,
    pub(super) runs: BTreeMap<RunKey, Run>,
    pub(super) rows: BTreeMap<TaskKey, TaskInstance>,
    pub(super) archived: Vec<TaskInstance>,
    pub(super) dags: BTreeMap<RunKey, Arc<Dag>>,
    pub(super) watch_position: Option<String>,
    /// What the last round said about the next one.
    pub(super) next: Next,
    ids: BTreeSet<Uuid>,
    /// Whether the last round was told of a clear, without which nothing that is over begins again.
    was_cleared: bool,
    /// Whether the last round was told of a branch that skips others, whatever their rules say.
    was_skipped: bool,
}

impl World {
    pub(super) fn new() -> Self {
        let mut world = Self {
            now: "2026-11-21T10:00:00Z".parse().unwrap(),
            board: Board::default(),
            limits: Limits::default(),
            heartbeats: Arc::new(Heartbeats::new(Timestamp::MAX)),
            pools: Vec::new(),
            runs: BTreeMap::new(),
            rows: BTreeMap::new(),
            archived: Vec::new(),
            dags: BTreeMap::new(),
            watch_position: None,
            next: Next::AwaitChange,
            ids: BTreeSet::new(),
            was_cleared: false,
            was_skipped: false,
        };
        world.set_pools(&[("default_pool", 128)]);
        world
    }

    /// A world in which one run of this DAG was requested.
    pub(super) fn with_run(dag: Dag) -> Self {
        let mut world = Self::new();
        world.round(vec![request(&Arc::new(dag), "r")]);
        world
    }

    pub(super) fn set_pools(&mut self, pools: &[(&str, i64)]) {
        self.pools = pools
            .iter()
            .map(|&(name, slots)| Pool::new(name, slots))
            .collect();
        self.board.set_pools(self.pools.clone());
    }

    /// Changes a row of run `r`, in the store too: what a worker will have said.
    pub(super) fn put(&mut self, task: &str, change: impl FnOnce(&mut TaskInstance)) {
        change(self.rows.get_mut(&key("r").task(task)).unwrap());
        self.board = self.load();
    }

    pub(super) fn wait(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    pub(super) fn observe(&self, facts: Vec<Fact>) -> Observed {
        Observed {
            now: self.now,
            board: self.board.clone(),
            facts,
            watch_position: Some("7".to_owned()),
            store_position: false,
            limits: self.limits.clone(),
            heartbeats: Arc::clone(&self.heartbeats),
        }
    }

    /// Decides, commits, applies, and holds everything against the laws. Answers what was committed.
    pub(super) fn round(&mut self, facts: Vec<Fact>) -> Changes {
        for fact in &facts {
            if let Fact::RunRequested(new) = fact {
                self.dags
                    .entry(new.key())
                    .or_insert_with(|| Arc::clone(&new.dag));
            }
        }
        self.was_cleared = facts.iter().any(|fact| fact.clearing().is_some());
        self.was_skipped = facts.iter().any(is_skip);
        let observed = self.observe(facts);
        let plan = decide(&observed);
        assert_eq!(plan, decide(&observed), "a decision is deterministic");
        self.next = plan.next;
        let mut changes = Changes::default();
        for action in plan.actions {
            assert!(changes.is_empty(), "a round is one commit");
            let Action::Persist(persisted) = action else {
                panic!("{action:?}");
            };
            changes = persisted;
        }
        self.commit(&changes);
        self.board.apply(&changes, &observed.facts);
        assert_eq!(
            self.board,
            self.load(),
            "the board is what a restart would load"
        );
        self.check_limits();
        let again = decide(&self.observe(Vec::new()));
        assert_eq!(again.actions, [], "nothing follows from nothing");
        // As after a commit whose answer was lost, without what the scheduler forgets then.
        let mut repeated = observed.facts;
        let is_once = |fact: &_| {
            matches!(
                fact,
                Fact::RunRequested(_) | Fact::Interrupt(_) | Fact::Resume(_)
            )
        };
        repeated.retain(|fact| !is_once(fact) && !self.is_settled(fact));
        let again = decide(&self.observe(repeated.clone()));
        assert_eq!(again.actions, [], "twice: {repeated:?}");
        changes
    }

    /// A clear took up a run that was over, which is over again: the row that it was asked with is an old one.
    fn is_settled(&self, fact: &Fact) -> bool {
        fact.clearing().is_some_and(|clearing| {
            let now = self.runs.get(&clearing.run).map(|run| run.version);
            let asked = clearing.stored.as_ref().map(|stored| stored.run.version);
            asked.is_some() && asked != now && !self.board.runs.contains_key(&clearing.run)
        })
    }

    fn load(&self) -> Board {
        let runs: Vec<Run> = self
            .runs
            .values()
            .filter(|run| !run.state.is_finished())
            .cloned()
            .collect();
        let snapshot = Snapshot {
            runs,
            task_instances: self.rows.values().cloned().collect(),
            pools: self.pools.clone(),
            ..Snapshot::default()
        };
        Board::load(snapshot, |run| {
            Ok::<_, Infallible>(Arc::clone(&self.dags[&run.key]))
        })
        .unwrap()
    }

    /// What the store does, with its optimistic lock, and the laws of single rows.
    fn commit(&mut self, changes: &Changes) {
        for run in &changes.runs {
            let old = self.runs.get(&run.key);
            assert_eq!(
                run.version,
                old.map_or(0, |old| old.version),
                "conflict on {}",
                run.key
            );
            assert!(
                self.was_cleared || old.is_none_or(|old| !old.state.is_finished()),
                "{} was over",
                run.key
            );
            let new = Run {
                version: run.version + 1,
                ..run.clone()
            };
            self.runs.insert(run.key.clone(), new);
        }
        for ended in &changes.archived {
            let ended = &ended.task_instance;
            assert_eq!(
                self.rows[&ended.key].id, ended.id,
                "only the current try is archived"
            );
            let has_succeeded = ended.state == Some(TaskState::Success);
            assert!(ended.state == Some(TaskState::Failed) || (has_succeeded && self.was_cleared));
            self.archived.push(ended.clone());
        }
        let before = self.rows.clone();
        for row in &changes.task_instances {
            let old = before.get(&row.key);
            check_row(old, row, self.was_cleared || self.was_skipped);
            if old.is_none_or(|old| old.id != row.id) {
                assert!(self.ids.insert(row.id), "the id of each try is new");
                let n_archived = changes
                    .archived
                    .iter()
                    .filter(|it| it.task_instance.key == row.key);
                let was_launched = old.is_some_and(|old| old.launch > 0);
                assert_eq!(n_archived.count(), usize::from(was_launched), "{}", row.key);
            }
            let new = TaskInstance {
                version: row.version + 1,
                ..row.clone()
            };
            self.rows.insert(row.key.clone(), new);
        }
        for row in &changes.task_instances {
            let old = before.get(&row.key);
            let waited = |state| {
                matches!(
                    state,
                    None | Some(TaskState::UpForRetry | TaskState::UpForReschedule)
                )
            };
            let waits_for_retry = row.state == Some(TaskState::UpForRetry);
            if self.was_skipped && row.state == Some(TaskState::Skipped) {
                continue;
            }
            if old.is_none_or(|old| waited(old.state)) && !waits_for_retry {
                self.check_dependencies(row);
            }
        }
        if let Some(position) = &changes.watch_position {
            self.watch_position = Some(position.clone());
        }
    }

    /// D3: what left `None`, or the wait for its retry or its next look, did so because its rule says so of the committed
    /// states.
    fn check_dependencies(&self, row: &TaskInstance) {
        let run = &self.runs[&row.key.run];
        let dag = &self.dags[&row.key.run];
        let task = &dag.tasks[&row.key.task_id];
        let count = |ids: &BTreeSet<String>| {
            let mut counts = Counts::default();
            for id in ids {
                let is_of_task =
                    |it: &&TaskInstance| it.key.run == row.key.run && it.key.task_id == *id;
                for instance in self.rows.values().filter(is_of_task) {
                    counts.add(instance.state, dag.tasks[id].is_setup);
                }
            }
            counts
        };
        let setups: BTreeSet<String> = ancestors(dag, task)
            .into_iter()
            .filter(|id| dag.tasks[id].is_setup && !task.upstream.contains(id))
            .filter(|id| is_relevant(dag, &dag.tasks[id], task))
            .collect();
        let mut verdict = evaluate(task.trigger_rule, &count(&task.upstream));
        if task.trigger_rule != TriggerRule::Always && !setups.is_empty() {
            let of_setups = evaluate_indirect_setups(&count(&setups));
            if of_setups != Verdict::Run {
                verdict = of_setups;
            }
        }
        match row.state {
            None => assert!(
                verdict == Verdict::Wait || run.state != RunState::Running || !run.is_prepared,
                "{} waits for nothing",
                row.key
            ),
            Some(TaskState::Skipped | TaskState::UpstreamFailed) => assert!(
                run.reason.is_some() || verdict == Verdict::End(row.state.unwrap()),
                "{} ended against its rule",
                row.key
            ),
            Some(_) => assert_eq!(
                verdict,
                Verdict::Run,
                "{} started against its rule",
                row.key
            ),
        }
    }

    /// D4, on the committed state.
    fn check_limits(&self) {
        let holding: Vec<&TaskInstance> = self
            .rows
            .values()
            .filter(|row| row.state.is_some_and(TaskState::is_occupying))
            .collect();
        assert!(
            holding.len() <= self.limits.parallelism as usize,
            "parallelism"
        );
        for pool in &self.pools {
            let used: u32 = holding
                .iter()
                .filter(|row| row.pool == pool.name)
                .map(|row| row.pool_slots)
                .sum();
            assert!(
                pool.slots == -1 || i64::from(used) <= pool.slots,
                "pool {}",
                pool.name
            );
        }
        let mut n_running: BTreeMap<&str, u32> = BTreeMap::new();
        for (key, run) in &self.runs {
            let dag = &self.dags[key];
            let n = holding.iter().filter(|row| row.key.run == *key).count();
            assert!(
                n <= dag.max_active_tasks as usize,
                "max_active_tasks of {key}"
            );
            assert!(
                n == 0 || run.state == RunState::Running,
                "{key} is not running"
            );
            if run.state == RunState::Running {
                let n_running = n_running.entry(&key.dag_id).or_default();
                *n_running += 1;
                assert!(
                    *n_running <= dag.max_active_runs,
                    "max_active_runs of {}",
                    key.dag_id
                );
            }
        }
        for row in &holding {
            let task = &self.dags[&row.key.run].tasks[&row.key.task_id];
            let n = holding
                .iter()
                .filter(|it| it.key.task_id == row.key.task_id)
                .count();
            let max = task.max_active_tis_per_dag.unwrap_or(u32::MAX);
            assert!(
                n <= max as usize,
                "max_active_tis_per_dag of {}",
                row.key.task_id
            );
        }
    }

    /// The clear of a selection of tasks of a run.
    pub(super) fn clear(&self, run: &str, selection: &Selection) -> Fact {
        let run = key(run);
        let stored = self.stored(&run);
        let tries = selection.tries(&stored).unwrap();
        Fact::Clear(Clearing {
            tries: tries.into_keys().collect(),
            stored: (!self.board.runs.contains_key(&run)).then_some(stored),
            run,
        })
    }

    /// A run as the store has it.
    pub(super) fn stored(&self, key: &RunKey) -> Arc<ActiveRun> {
        let rows = self.rows.values().filter(|row| row.key.run == *key);
        let snapshot = Snapshot {
            runs: vec![self.runs[key].clone()],
            task_instances: rows.cloned().collect(),
            ..Snapshot::default()
        };
        let dag = |run: &Run| Ok::<_, Infallible>(Arc::clone(&self.dags[&run.key]));
        Board::load(snapshot, dag).unwrap().runs[key].clone()
    }

    /// That no pod of a task's try lives.
    pub(super) fn pods_ended(&self, task: &str) -> Fact {
        let ti_id = self.row(task).id;
        Fact::LaunchEnded { ti_id }
    }

    pub(super) fn run(&self) -> &Run {
        &self.runs[&key("r")]
    }

    pub(super) fn row(&self, task: &str) -> &TaskInstance {
        &self.rows[&key("r").task(task)]
    }

    /// An instance of a mapped task of run `r`.
    pub(super) fn instance(&self, task: &str, map_index: i32) -> &TaskInstance {
        let at = TaskKey {
            map_index,
            ..key("r").task(task)
        };
        &self.rows[&at]
    }

    /// Maps a task of run `r` that has not begun over so many map indexes.
    pub(super) fn map(&mut self, task: &str, n: i32) {
        let unmapped = self.rows.remove(&key("r").task(task)).unwrap();
        for map_index in 0..n {
            let mut row = unmapped.clone();
            row.key.map_index = map_index;
            if map_index > 0 {
                row.id = try_id(self.now, &row.key, 1);
                self.ids.insert(row.id);
            }
            self.rows.insert(row.key.clone(), row);
        }
        self.board = self.load();
    }

    pub(super) fn state(&self, task: &str) -> Option<TaskState> {
        self.row(task).state
    }

    /// A fact about the current pod of a task of run `r`.
    pub(super) fn pod(&self, task: &str, what: LaunchChange) -> Fact {
        pod_of(self.row(task), what)
    }

    /// A round with one fact about a pod.
    pub(super) fn pod_round(&mut self, task: &str, what: LaunchChange) -> Changes {
        let fact = self.pod(task, what);
        self.round(vec![fact])
    }
}

/// A fact about the current pod of a task instance.
pub(super) fn pod_of(row: &TaskInstance, what: LaunchChange) -> Fact {
    Fact::Launched(LaunchFact {
        ti_id: row.id,
        launch: row.launch,
        pod_name: row.pod_name.clone().unwrap_or_default(),
        pod_uid: format!("uid-{}-{}", row.id, row.launch),
        resource_version: None,
        what,
    })
}

fn ancestors(dag: &Dag, task: &Task) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut stack: Vec<&String> = task.upstream.iter().collect();
    while let Some(id) = stack.pop() {
        if found.insert(id.clone()) {
            stack.extend(&dag.tasks[id].upstream);
        }
    }
    found
}

/// Whether a setup that a task does not directly wait for is one that it needs.
fn is_relevant(dag: &Dag, setup: &Task, task: &Task) -> bool {
    let mut teardowns = setup
        .downstream
        .iter()
        .map(|id| &dag.tasks[id])
        .filter(|other| other.is_teardown)
        .peekable();
    let is_needed = teardowns.peek().is_none()
        || teardowns.any(|teardown| ancestors(dag, teardown).contains(&task.task_id));
    !task.is_teardown && is_needed
}

/// The laws of one row.
fn check_row(old: Option<&TaskInstance>, new: &TaskInstance, was_cleared: bool) {
    let key = &new.key;
    assert!(
        new.try_number <= new.max_tries + 1,
        "{key} has too many tries"
    );
    let wants_pod = new.state.is_some_and(TaskState::is_occupying);
    assert!(
        !wants_pod || (new.launch > 0 && new.pod_name.is_some()),
        "{key} has no pod name"
    );
    let is_restarting = new.state == Some(TaskState::Restarting);
    assert!(
        is_restarting || new.state.is_some_and(TaskState::is_finished) == is_ended(new),
        "{key} end date"
    );
    let Some(old) = old else {
        assert_eq!(new.version, 0, "{key} is new");
        return;
    };
    assert_eq!(new.version, old.version, "conflict on {key}");
    assert!(
        was_cleared || !old.state.is_some_and(TaskState::is_finished),
        "{key} was over"
    );
    assert_ne!(new, old, "{key} did not change");
    assert!(new.try_number >= old.try_number, "{key} lost a try");
    if new.id == old.id {
        assert!(new.launch >= old.launch, "{key} lost a launch");
        let is_relaunched = new.launch > old.launch;
        assert!(
            is_relaunched || new.pod_name == old.pod_name || !wants_pod,
            "{key} renamed"
        );
    }
}

fn is_ended(row: &TaskInstance) -> bool {
    row.end_date.is_some() && row.state != Some(TaskState::UpForRetry)
}
