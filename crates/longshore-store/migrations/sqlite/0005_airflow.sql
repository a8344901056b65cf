-- What Airflow DAGs need that the scheduler decides upon. The file of the same name for Postgres makes the same tables and
-- columns. Columns that only Airflow DAGs use are null for container DAGs.

-- Places of DAG files: Airflow's bundles, as the configuration names them.
CREATE TABLE bundle (
    -- Its name. Writer: the scheduler, from the configuration.
    name           TEXT   NOT NULL PRIMARY KEY,
    -- The version that was last seen (a commit); null for a bundle without versions. Writer: scheduler, from the bundle.
    bundle_version TEXT,
    -- When it was last looked at; null before. Writer: scheduler.
    refreshed_at   TEXT,
    -- 0 once the configuration names it no more. Writer: scheduler.
    is_active      BIGINT NOT NULL CHECK (is_active IN (0, 1)),
    -- Optimistic lock. Writer: the store.
    version        BIGINT NOT NULL
);

-- Versions of DAGs from Python. What a version says never changes: a DAG that is parsed again is the same version, unless
-- it says something else.
CREATE TABLE dag_version (
    -- uuid: `dag_version_id` of workloads. Writer: scheduler, once.
    id             TEXT   NOT NULL PRIMARY KEY,
    -- The DAG. Writer: scheduler, once.
    dag_id         TEXT   NOT NULL,
    -- Counts from 1 for each DAG. Writer: scheduler, once.
    number         BIGINT NOT NULL,
    -- SHA-256, in hexadecimal, of what the document says, whatever the order of its keys. Writer: scheduler, once.
    content_hash   TEXT   NOT NULL,
    -- The serialized DAG, as the parser wrote it. Writer: scheduler, once.
    document_hash  TEXT   NOT NULL REFERENCES document (hash),
    -- The text of the DAG file, in the same table; null where nobody has read it. It may change without the DAG.
    -- Writer: scheduler, from the parser.
    source_hash    TEXT REFERENCES document (hash),
    -- The bundle of the file; null for none. Writer: scheduler, from the parser.
    bundle_name    TEXT,
    -- The bundle's version that the DAG was last parsed in; null for a bundle without versions. Writer: as before.
    bundle_version TEXT,
    -- The file, relative to the bundle. Writer: as before.
    file           TEXT   NOT NULL,
    -- When this version was first seen. Writer: scheduler, once.
    created_at     TEXT   NOT NULL,
    -- Optimistic lock. Writer: the store.
    version        BIGINT NOT NULL
);

CREATE UNIQUE INDEX dag_version_by_number ON dag_version (dag_id, number);

-- Files of which no DAG could be read.
CREATE TABLE import_error (
    -- The bundle. Writer of all but the last: scheduler, from the parser.
    bundle_name TEXT   NOT NULL,
    -- The file, relative to the bundle.
    file        TEXT   NOT NULL,
    -- What the parser said: a traceback, or a sentence.
    error       TEXT   NOT NULL,
    -- When it said so.
    seen_at     TEXT   NOT NULL,
    -- Optimistic lock. Writer: the store.
    version     BIGINT NOT NULL,
    PRIMARY KEY (bundle_name, file)
);

-- The looks of sensors that gave up their worker in between. Not loaded at start: what the scheduler decides upon is in
-- `task_instance`.
CREATE TABLE reschedule (
    -- The try. Writer: scheduler, from the worker.
    task_instance_id TEXT   NOT NULL,
    -- Counts from 1 for each try. Writer: scheduler.
    number           BIGINT NOT NULL,
    -- When this look began, and when it ended. Writer: scheduler, from the worker.
    start_date       TEXT   NOT NULL,
    end_date         TEXT   NOT NULL,
    -- When the next one is due. Writer: the worker.
    reschedule_date  TEXT   NOT NULL,
    PRIMARY KEY (task_instance_id, number)
);

-- How tries go on that gave up their worker to wait for a trigger or for a human. Not loaded at start.
CREATE TABLE deferral (
    -- The try. Writer of this and the rest: scheduler, from the worker.
    task_instance_id TEXT NOT NULL PRIMARY KEY,
    -- The trigger's class; null where it waits for a human.
    classpath        TEXT,
    -- JSON: the trigger's arguments, as the worker sent them; null as before.
    trigger_kwargs   TEXT,
    -- The queue of the trigger; null for the default.
    queue            TEXT,
    -- JSON object: arguments of the method that goes on, as the worker sent them.
    next_kwargs      TEXT NOT NULL
);

-- Before this a run does not start; null for at once. Writer: whoever creates the run.
ALTER TABLE run ADD COLUMN run_after TEXT;
-- The interval that it is about; both or neither. Writer: whoever creates the run.
ALTER TABLE run ADD COLUMN data_interval_start TEXT;
ALTER TABLE run ADD COLUMN data_interval_end TEXT;
-- The version of the DAG that `dag_hash` belongs to; null for container DAGs. Writer: scheduler: a run that is not pinned to
-- a version of its bundle moves on to the next version of the DAG, and `dag_hash` with it.
ALTER TABLE run ADD COLUMN dag_version_id TEXT REFERENCES dag_version (id);
-- The version of the bundle that the run is pinned to; null for none. Writer: whoever creates the run.
ALTER TABLE run ADD COLUMN bundle_version TEXT;
-- How often users cleared tasks of it. Writer: scheduler.
ALTER TABLE run ADD COLUMN clear_number BIGINT NOT NULL DEFAULT 0;
-- Who asked for it; null where nobody did. Writer: whoever creates the run.
ALTER TABLE run ADD COLUMN triggered_by TEXT;
-- For people; null for none. Writer: users.
ALTER TABLE run ADD COLUMN note TEXT;

-- The version of the DAG that the try belongs to; null for tasks of container DAGs, and then so is each column below.
-- Writer: scheduler.
ALTER TABLE task_instance ADD COLUMN dag_version_id TEXT REFERENCES dag_version (id);
-- The process that runs it; all or none. Writer: scheduler, from the worker.
ALTER TABLE task_instance ADD COLUMN hostname TEXT;
ALTER TABLE task_instance ADD COLUMN unixname TEXT;
ALTER TABLE task_instance ADD COLUMN pid BIGINT;
-- The method that goes on after a deferral; null where the try begins at its beginning. Writer: scheduler, from the worker.
ALTER TABLE task_instance ADD COLUMN next_method TEXT;
-- When the wait for the trigger, or for a human, is over; null for never. Writer: scheduler, from the worker.
ALTER TABLE task_instance ADD COLUMN timeout_at TEXT;
-- How often this try was rescheduled, when its first look began, and when the next one is due. Writer: scheduler, from the
-- worker.
ALTER TABLE task_instance ADD COLUMN n_reschedules BIGINT;
ALTER TABLE task_instance ADD COLUMN first_look_at TEXT;
ALTER TABLE task_instance ADD COLUMN reschedule_at TEXT;
-- The wait before the next try that a retry policy wants instead of the task's, in microseconds; and why. Writer: scheduler,
-- from the worker.
ALTER TABLE task_instance ADD COLUMN retry_delay BIGINT;
ALTER TABLE task_instance ADD COLUMN retry_reason TEXT;

-- 1 if deferred tasks hold their slots. Writer: as that of `slots`.
ALTER TABLE pool ADD COLUMN include_deferred BIGINT NOT NULL DEFAULT 0 CHECK (include_deferred IN (0, 1));
