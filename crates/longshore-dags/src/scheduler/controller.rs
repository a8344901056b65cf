//! The scheduler's round: facts, committed rows and what the DAGs' schedules ask for in, one transaction out.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use longshore_core::{Action, Class, Classify, Never, Next, Plan};
use longshore_kit::{Answers, Controller};
use longshore_store::{Changes, Run, RunKey, Snapshot, StoreError, TaskInstance, TaskState};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    board::{ActiveRun, Board, LoadError},
    clear::Clearing,
    decide::{self, Decision, Limits},
    facts::Fact,
    instances::InstanceKey,
    observe::{self, Observed},
    worker::{RequestId, WorkerAnswer},
};
use crate::{
    base::{
        change::StateChange,
        documents::StoredDags,
        position::{Position, Reached},
        shared::Shared,
    },
    catalog::{Entry, StoredRows, due, parsed, rows},
    measures::DagMeasures,
    model::CanonicalError,
};

/// There is one scheduler per database, so there is one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TheScheduler;

impl fmt::Display for TheScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("scheduler")
    }
}

/// What one round records: the rows that change, how many facts of the inbox that settles, and the version of the
/// catalog that it was decided upon.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    changes: Changes,
    n_facts: usize,
    /// Runs that schedules request: further facts, which were never in the inbox.
    scheduled: Vec<Fact>,
    /// The DAGs among the changes.
    dags: Vec<Entry>,
    catalog_version: u64,
    /// What workers are answered once this is committed.
    answers: Vec<(RequestId, Option<WorkerAnswer>)>,
}

/// Decides which task may start, and what became of those that did. Its only effect is the commit; `launch/` creates
/// and deletes pods by the committed rows.
pub(crate) struct Scheduler {
    shared: Arc<Shared>,
    limits: Limits,
    measures: DagMeasures,
}

/// Why a round of the scheduler failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SchedulerError {
    /// The rows could not be committed or read.
    #[error("the round was not recorded")]
    Store(#[from] StoreError),
    /// The stored rows make no board.
    #[error("another process changed the rows, and the scheduler cannot take them up again")]
    Rows(#[from] LoadError<CanonicalError>),
}

impl Classify for SchedulerError {
    fn class(&self) -> Class {
        match self {
            Self::Store(error) => error.class(),
            Self::Rows(error) => error.class(),
        }
    }
}

impl Scheduler {
    pub(crate) fn new(shared: Arc<Shared>, limits: Limits, measures: DagMeasures) -> Self {
        Self {
            shared,
            limits,
            measures,
        }
    }

    /// After a commit: changes the board, removes the settled facts from the inbox, and wakes the tasks that wait for a
    /// commit.
    fn committed(&self, record: &Record) {
        let mut facts = self.shared.inbox.peek().facts;
        facts.truncate(record.n_facts);
        facts.extend(record.scheduled.iter().cloned());
        let launched = &self.shared.launched;
        launched.tries_ended(&record.changes.archived);
        self.forget_workers(&record.changes);
        let (before, ended) = {
            let mut board = self.shared.board_mut();
            let before = Before::of(&record.changes, &board, &facts);
            let ended = board.apply(&record.changes, &facts);
            (before, ended)
        };
        ended.iter().for_each(|run| launched.run_ended(run));
        self.shared
            .catalog_mut()
            .apply(&record.dags, &record.changes, record.catalog_version);
        let position = record.changes.watch_position.as_deref();
        let position = position.map(|text| Reached::stored(Some(text), &self.shared.cluster));
        self.shared.inbox.consume(record.n_facts, position);
        self.shared.follow_actions_if_wanted();
        let at = self.shared.clock.now();
        // A run begins before its tasks do, and ends after them.
        let runs = |is_over: bool| {
            let runs = record.changes.runs.iter().zip(&before.runs);
            let runs = runs.filter(move |(run, _)| run.state.is_finished() == is_over);
            runs.filter_map(|(run, before)| StateChange::of_run(at, before.as_deref(), run))
        };
        let rows = &record.changes.task_instances;
        rows.iter().zip(&before.rows).for_each(warn_of_result);
        let tasks = rows.iter().zip(&before.rows);
        let tasks =
            tasks.filter_map(|(row, before)| StateChange::of_task(at, before.as_deref(), row));
        self.publish(runs(false).chain(tasks).chain(runs(true)));
        // The ids before as well: the pod of an ended try is to go.
        let before = before.rows.iter().flatten().map(|row| row.id);
        self.shared
            .launch_keys
            .add(before.chain(rows.iter().map(|row| row.id)));
        self.shared
            .launch_keys
            .add(facts.iter().filter_map(Fact::ti_id));
        self.shared
            .run_keys
            .add(record.changes.runs.iter().map(|run| run.key.clone()));
        self.shared.workers.answer(&record.answers);
        self.shared.committed.notify_waiters();
    }

    /// Nobody waits for heartbeats of tries that do not run any more.
    fn forget_workers(&self, changes: &Changes) {
        let archived = changes.archived.iter().map(|it| &it.task_instance);
        let ended = changes.task_instances.iter().filter(|row| {
            let runs = matches!(row.state, Some(TaskState::Queued | TaskState::Running));
            row.airflow.is_some() && !runs
        });
        let ids: Vec<Uuid> = ended.chain(archived).map(|row| row.id).collect();
        if !ids.is_empty() {
            self.shared.change_heartbeats(|heartbeats| {
                ids.into_iter().for_each(|id| heartbeats.forget(id))
            });
        }
    }

    fn publish(&self, changes: impl Iterator<Item = StateChange>) {
        for change in changes {
            // There may be no receiver.
            let _ = self.shared.changes.send(change);
        }
    }

    /// Reads the rows again after a conflict. Most likely they were written by an own commit whose response was lost.
    ///
    /// All reads come first: where one fails, nothing has changed, and the next commit meets the same conflict.
    async fn reload(&self) -> Result<(), SchedulerError> {
        let mut snapshot = self.shared.store.load().await?;
        let dags = StoredRows::take(&mut snapshot);
        let position = snapshot.watch_position.as_deref();
        let position = Reached::stored(position, &self.shared.cluster);
        let settled = self.settled(&snapshot).await?;
        let mut facts = self.shared.inbox.peek().facts;
        facts.retain(|fact| !settled.has(fact));
        let before = with_cleared(self.shared.board(), &facts);
        let mut stored = StoredDags::known(&before, &self.shared.catalog());
        stored.add(std::mem::take(&mut snapshot.documents).into_values());
        let mut reloaded = Board::load(snapshot, |run| stored.read(&run.dag_hash))?;
        let mut ended = BTreeMap::new();
        for key in before.runs.keys() {
            if !reloaded.runs.contains_key(key) {
                ended.insert(key, self.shared.store.run(key).await?);
            }
        }

        self.shared.inbox.stored(position);
        self.shared.inbox.forget(|fact| settled.has(fact));
        {
            let mut board = self.shared.board_mut();
            // What was read of them may be older than a change of them.
            reloaded.pools = board.pools.clone();
            board.clone_from(&reloaded);
        }
        self.shared.catalog_mut().reload(dags, &mut stored);
        self.shared.launched.rows_reloaded();
        for (key, before) in &before.runs {
            match (reloaded.runs.get(key), ended.remove(key)) {
                (Some(now), _) => {
                    let rows = now.tasks.values().map(|row| &**row);
                    self.publish_since(before, &now.run, rows);
                }
                (None, Some(Some((run, rows)))) => self.publish_since(before, &run, rows.iter()),
                (None, _) => {}
            }
        }
        for board in [&before, &reloaded] {
            self.shared
                .launch_keys
                .add(board.task_instances().map(|row| row.id));
        }
        self.shared
            .run_keys
            .add(before.runs.keys().chain(reloaded.runs.keys()).cloned());
        self.shared.committed.notify_waiters();
        Ok(())
    }

    /// The facts that the commit whose response was lost has settled, of those that have another meaning when they are
    /// applied again.
    async fn settled(&self, snapshot: &Snapshot) -> Result<Settled, StoreError> {
        let is_open = |key: &RunKey| snapshot.runs.iter().any(|run| run.key == *key);
        let mut settled = Settled::default();
        for key in self.shared.inbox.requested() {
            if !is_open(&key) && self.shared.store.has_run(&key, None).await? {
                settled.ended.push(key);
            }
        }
        for clearing in self.shared.inbox.clearings() {
            let key = &clearing.run;
            let Some(stored) = clearing.stored.as_ref().filter(|_| !is_open(key)) else {
                continue;
            };
            let now = self.shared.store.run(key).await?;
            if now.is_none_or(|(now, _)| now.version != stored.run.version) {
                settled.cleared.push(clearing);
            }
        }
        let position = snapshot.watch_position.as_deref();
        let position = position.and_then(|text| text.parse::<Position>().ok());
        settled.is_in_this_cluster = position.is_some_and(|at| at.cluster == self.shared.cluster);
        Ok(settled)
    }

    /// Publishes what happened to a run between its last known rows and a reload.
    fn publish_since<'a>(
        &self,
        before: &ActiveRun,
        run: &Run,
        rows: impl Iterator<Item = &'a TaskInstance>,
    ) {
        let at = self.shared.clock.now();
        self.publish(rows.filter_map(|row| {
            let before = before
                .tasks
                .get(&InstanceKey::from(&row.key))
                .map(|row| &**row);
            StateChange::of_task(at, before, row)
        }));
        self.publish(StateChange::of_run(at, Some(&before.run), run).into_iter());
    }
}

/// Facts that are on record already.
#[derive(Debug, Default)]
struct Settled {
    /// Runs that were requested, and have ended.
    ended: Vec<RunKey>,
    /// Clears of runs that have ended again.
    cleared: Vec<Clearing>,
    /// Whether the rows are of this cluster.
    is_in_this_cluster: bool,
}

impl Settled {
    fn has(&self, fact: &Fact) -> bool {
        let is_requested = fact
            .requested()
            .is_some_and(|run| self.ended.contains(&run));
        let is_cleared = fact.clearing().is_some_and(|it| self.cleared.contains(it));
        let is_change = self.is_in_this_cluster && *fact == Fact::ClusterChanged;
        is_requested || is_cleared || is_change
    }
}

/// The rows that a commit changes, as they were: in the order of the changes, and `None` for a row that is created.
///
/// A clone of the whole board instead would make the commit copy the rows that it changes.
struct Before {
    runs: Vec<Option<Arc<Run>>>,
    rows: Vec<Option<Arc<TaskInstance>>>,
}

impl Before {
    /// Runs that were over are not on the board: the cleared ones are among the facts.
    fn of(changes: &Changes, board: &Board, facts: &[Fact]) -> Self {
        let cleared: Vec<&Arc<ActiveRun>> = cleared(facts).collect();
        let active = |key: &RunKey| {
            let is_it = |active: &&Arc<ActiveRun>| active.run.key == *key;
            let on_board = board.runs.get(key);
            on_board.or_else(|| cleared.iter().copied().find(is_it))
        };
        let run = |run: &Run| Some(Arc::clone(&active(&run.key)?.run));
        let row = |row: &TaskInstance| {
            active(&row.key.run)?
                .tasks
                .get(&InstanceKey::from(&row.key))
                .cloned()
        };
        Self {
            runs: changes.runs.iter().map(run).collect(),
            rows: changes.task_instances.iter().map(row).collect(),
        }
    }
}

/// A task that leaves no result succeeds all the same: its user has to hear of it.
fn warn_of_result((row, before): (&TaskInstance, &Option<Arc<TaskInstance>>)) {
    let noted = before.as_ref().and_then(|row| row.result_note.as_ref());
    if let Some(why) = row.result_note.as_ref().filter(|why| noted != Some(*why)) {
        tracing::warn!(task = %row.key, %why, "the result of a task was not taken");
    }
}

/// Decides upon further facts as well.
fn decide_with(work: &decide::Observed, further: &[Fact]) -> Decision {
    if further.is_empty() {
        return decide::decide_and_answer(work);
    }
    let mut work = work.clone();
    work.facts.extend(further.iter().cloned());
    decide::decide_and_answer(&work)
}

/// The runs that were over and that a user clears.
fn cleared(facts: &[Fact]) -> impl Iterator<Item = &Arc<ActiveRun>> {
    let cleared = facts.iter().filter_map(Fact::clearing);
    cleared.filter_map(|clearing| clearing.stored.as_ref())
}

/// The board with the runs that were over and that a user clears, as they were.
fn with_cleared(mut board: Board, facts: &[Fact]) -> Board {
    for stored in cleared(facts) {
        let key = stored.run.key.clone();
        board.runs.entry(key).or_insert_with(|| stored.clone());
    }
    board
}

impl Controller for Scheduler {
    type Key = TheScheduler;
    type Observed = Observed;
    type Status = Record;
    type Effect = Never;
    type Question = Never;
    type Error = SchedulerError;

    fn name(&self) -> &'static str {
        "dags.scheduler"
    }

    async fn observe(
        &self,
        _key: &TheScheduler,
        now: Timestamp,
        _answers: &Answers<Never>,
    ) -> Result<Observed, SchedulerError> {
        let loaded = observe::load(&self.shared, now).await?;
        let Shared { cluster, .. } = &*self.shared;
        Ok(observe::assemble(loaded, now, cluster, &self.limits))
    }

    /// The pure decisions, and a record of what they settle even where they change nothing.
    fn decide(&self, observed: &Observed) -> Plan<Record> {
        let Observed {
            work,
            catalog,
            existing_runs,
        } = observed;
        let mut dags = rows::decide(catalog, work.now);
        let files = parsed::decide(catalog, &dags, work.now);
        let due = due::decide(catalog, &work.board, &work.facts, existing_runs, work.now);
        // Never both: schedules wait until the rows are as they are to be.
        dags.extend(due.entries);
        let scheduled: Vec<Fact> = due.runs.into_iter().map(Fact::RunRequested).collect();
        let Decision {
            plan: decision,
            answers,
        } = decide_with(work, &scheduled);
        let mut changes = Changes::default();
        for action in decision.actions {
            if let Action::Persist(rows) = action {
                changes = rows;
            }
        }
        catalog.collect_into(&mut changes, &dags, files);
        let is_over = |run: &Run| run.state.is_finished() && due.held.contains(&run.key.dag_id);
        let has_made_room = changes.runs.iter().any(is_over);
        let mut plan = Plan {
            actions: vec![],
            next: decision.next.min(due.next),
        };
        if has_made_room || !catalog.is_settled() {
            plan.next = Next::After(Duration::ZERO);
        }
        let record = Record {
            n_facts: work.facts.len(),
            scheduled,
            dags,
            catalog_version: catalog.version(),
            changes,
            answers,
        };
        if record.n_facts > 0 || !record.changes.is_empty() || !catalog.is_settled() {
            plan.actions.push(Action::Persist(record));
        }
        plan
    }

    async fn persist(&self, _key: &TheScheduler, record: &Record) -> Result<(), SchedulerError> {
        if !record.changes.is_empty() {
            let began = Instant::now();
            let committed = self.shared.store.commit(&record.changes).await;
            self.measures.committed(began.elapsed());
            match committed {
                Ok(()) => {}
                Err(error @ StoreError::Conflict { .. }) => {
                    self.reload().await?;
                    return Err(error.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.committed(record);
        Ok(())
    }

    async fn call(&self, _key: &TheScheduler, effect: &Never) -> Result<(), SchedulerError> {
        match *effect {}
    }
}
