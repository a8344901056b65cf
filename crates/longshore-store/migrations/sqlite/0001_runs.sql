-- The tables of one scheduler, in SQLite. The file of the same name for Postgres makes the same tables and columns; this
-- one says what they mean. Only two types, which both engines have:
--   BIGINT  integers; booleans are 0 or 1.
--   TEXT    strings, sorted by their bytes, and:
--           instants as RFC 3339 in UTC with nine digits of a second (2026-11-21T10:00:00.000000000Z): exact, readable,
--           and in the order of time when sorted as text;
--           uuids in lower case with dashes;
--           JSON documents as their users wrote them.
-- Rows are written whole, by the store's one writer; "writer" below names whose decision a column holds.
-- `version` is the optimistic lock: 1 at the insert, counted up by each update, which names the version that it replaces.

-- Who this database belongs to. Exactly one row, made when the database is created.
CREATE TABLE scheduler (
    -- 8 random base-36 characters: the value of the pods' `airflow-worker` label. Writer: the store, once.
    id             TEXT NOT NULL PRIMARY KEY,
    -- The last `resourceVersion` of the pod watch whose effects are committed; opaque; null before the first event.
    -- In the transaction of those effects, so that a restart neither misses nor repeats an event. Writer: scheduler.
    watch_position TEXT,
    -- How often the database was opened: a store that lost its connection notices another one in between.
    -- Writer: the store.
    n_openings     BIGINT NOT NULL
);

-- Slots that task instances share, over all DAGs.
CREATE TABLE pool (
    -- Its name. Writer: the user.
    name  TEXT   NOT NULL PRIMARY KEY,
    -- How many slots; -1 is unlimited. Writer: the user.
    slots BIGINT NOT NULL
);

-- The pool of every task that names none. 128 is Airflow's default.
INSERT INTO pool (name, slots) VALUES ('default_pool', 128);

-- DAG documents, each once, however many runs are pinned to it. Rows are never changed.
CREATE TABLE document (
    -- SHA-256 of the body, in hexadecimal. Writer: the store.
    hash TEXT NOT NULL PRIMARY KEY,
    -- JSON: the document as its file had it, files beside it included. Writer: whoever creates a run, the DAG folder.
    body TEXT NOT NULL
);

-- What the service knows of the DAGs in its folder.
CREATE TABLE dag (
    -- Its name. Writer: the DAG folder.
    dag_id              TEXT   NOT NULL PRIMARY KEY,
    -- Its file, relative to the folder; null once that is gone. Writer: the DAG folder.
    file                TEXT,
    -- 1 while no scheduled run may be created. Writer: the user; at the insert the DAG folder.
    is_paused           BIGINT NOT NULL CHECK (is_paused IN (0, 1)),
    -- When the next scheduled run is due; null for none. Writer of this and the next three: scheduler, in the
    -- transaction that creates the run before.
    next_run_after      TEXT,
    -- The instant that it will be about; null if none.
    next_logical_date   TEXT,
    -- Its data interval; both or neither.
    next_interval_start TEXT,
    next_interval_end   TEXT,
    -- When its file was last read. Writer: the DAG folder.
    parsed_at           TEXT   NOT NULL,
    -- What was wrong with the file then; null for nothing. Writer: the DAG folder.
    error               TEXT,
    -- The last document without errors; null before there was one. Writer: the DAG folder.
    document_hash       TEXT REFERENCES document (hash)
);

-- Runs of DAGs, finished ones too.
CREATE TABLE run (
    -- The DAG. Writer: whoever creates the run.
    dag_id       TEXT   NOT NULL,
    -- The run, unique within the DAG. Writer: whoever creates the run.
    run_id       TEXT   NOT NULL,
    -- What started it: scheduled, manual, backfill. Writer: whoever creates the run.
    run_type     TEXT   NOT NULL,
    -- queued, running, success, failed. Writer: scheduler.
    state        TEXT   NOT NULL,
    -- The instant that it is about; null for a manual run without one. Writer: whoever creates the run.
    logical_date TEXT,
    -- When it was created. Writer: whoever creates the run.
    queued_at    TEXT   NOT NULL,
    -- When its first task could start. Writer: scheduler.
    start_date   TEXT,
    -- When it ended. Writer: scheduler.
    end_date     TEXT,
    -- JSON: parameters given at the trigger, over the DAG's defaults. Writer: whoever creates the run.
    conf         TEXT   NOT NULL,
    -- The DAG document that the run is pinned to, so that a changed file changes no run. Writer: whoever creates it, once.
    dag_hash     TEXT   NOT NULL REFERENCES document (hash),
    -- 1 once the objects that all its pods share exist in the cluster. Writer: scheduler.
    is_prepared  BIGINT NOT NULL CHECK (is_prepared IN (0, 1)),
    -- Why it ended as it did, where its tasks do not tell: timed_out, cancelled, all_tasks_deadlocked. Writer: scheduler.
    reason       TEXT,
    -- Optimistic lock, see above. Writer: the store.
    version      BIGINT NOT NULL,
    PRIMARY KEY (dag_id, run_id)
);

-- What a scheduler starts from; holds few rows, however long the history.
CREATE INDEX run_unfinished ON run (queued_at, dag_id, run_id) WHERE state IN ('queued', 'running');
-- Listings, newest first, of all DAGs and of one.
CREATE INDEX run_by_age ON run (queued_at, dag_id, run_id);
CREATE INDEX run_of_dag_by_age ON run (dag_id, queued_at, run_id);

-- Tries of tasks. The current try of a task instance and its archived ones live in one table, because an id must be
-- unique among all of them: it is what a pod carries, and what tells a late pod from the current one.
CREATE TABLE task_instance (
    -- uuid of the try, in the pod's label `ti_id`; a new try gets a new one. Writer: scheduler.
    id              TEXT   NOT NULL PRIMARY KEY,
    -- The run. Writer: scheduler.
    dag_id          TEXT   NOT NULL,
    run_id          TEXT   NOT NULL,
    -- The task within the DAG. Writer: scheduler.
    task_id         TEXT   NOT NULL,
    -- Which copy of a mapped task; -1 for an unmapped one. Writer: scheduler.
    map_index       BIGINT NOT NULL,
    -- 0: the task instance as it is, addressed by the four columns above. 1: a try that another one followed; never
    -- changed again. Writer: the store.
    is_archived     BIGINT NOT NULL CHECK (is_archived IN (0, 1)),
    -- Airflow's word for the state; null before its dependencies hold. Writer: scheduler.
    state           TEXT,
    -- Which try, from 1; 0 before the first. Writer: scheduler.
    try_number      BIGINT NOT NULL,
    -- Retries allowed: tries are this + 1. Writer: scheduler, at creation.
    max_tries       BIGINT NOT NULL,
    -- Which launch of this try, from 1, stored before the launch; 0 before the first. Part of the pod's name.
    -- Writer: scheduler.
    launch          BIGINT NOT NULL,
    -- Launches of this try that died before the task process ran. Writer: scheduler.
    launch_failures BIGINT NOT NULL,
    -- The pool whose slots it takes; a name, not a reference: a pool may be missing, and then the task waits.
    -- Writer: scheduler, at creation.
    pool            TEXT   NOT NULL,
    -- How many slots. Writer: scheduler, at creation.
    pool_slots      BIGINT NOT NULL,
    -- Weight in the queue, higher first. Writer: scheduler, at creation.
    priority_weight BIGINT NOT NULL,
    -- When it became scheduled. Writer: scheduler.
    scheduled_at    TEXT,
    -- When it became queued. Writer: scheduler.
    queued_at       TEXT,
    -- When its process started. Writer: scheduler, from the pod.
    start_date      TEXT,
    -- When it ended. Writer: scheduler, from the pod.
    end_date        TEXT,
    -- The pod of the current launch, stored before it is created. Writer: scheduler.
    pod_name        TEXT,
    -- That pod's uid once it was seen: from then on a missing pod was deleted. Writer: scheduler, from the pod.
    pod_uid         TEXT,
    -- JSON object: why the last try ended badly. Writer: scheduler, from the pod.
    failure         TEXT,
    -- JSON: the task's small result, at most 4,096 bytes. Writer: the task, through its pod.
    result          TEXT,
    -- Optimistic lock, see above; an archived try keeps the one it had. Writer: the store.
    version         BIGINT NOT NULL,
    FOREIGN KEY (dag_id, run_id) REFERENCES run (dag_id, run_id)
);

-- The address of a task instance.
CREATE UNIQUE INDEX task_instance_current ON task_instance (dag_id, run_id, task_id, map_index) WHERE is_archived = 0;
-- The history of a run.
CREATE INDEX task_instance_archived ON task_instance (dag_id, run_id) WHERE is_archived = 1;
