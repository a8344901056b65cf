-- Values that the scheduler does not decide upon: never loaded at start, and written apart from its rounds. The file of the
-- same name for Postgres makes the same tables and columns. Rows of a try are written by the worker that runs it, and only
-- while its try is the current one.

-- Values that tasks leave for other tasks.
CREATE TABLE xcom (
    -- The task instance. Writer of this and the rest: a task, through its worker.
    dag_id        TEXT   NOT NULL,
    run_id        TEXT   NOT NULL,
    task_id       TEXT   NOT NULL,
    map_index     BIGINT NOT NULL,
    -- Which of its values; `return_value` for what it returned.
    key           TEXT   NOT NULL,
    -- JSON, as the worker wrote it.
    value         TEXT   NOT NULL,
    -- How many task instances a task that maps over the value has; null where none does.
    mapped_length BIGINT,
    -- 1 if it is the result of the DAG.
    is_dag_result BIGINT NOT NULL CHECK (is_dag_result IN (0, 1)),
    -- When it was written. Writer: the service.
    written_at    TEXT   NOT NULL,
    PRIMARY KEY (dag_id, run_id, task_id, key, map_index),
    FOREIGN KEY (dag_id, run_id) REFERENCES run (dag_id, run_id)
);

-- The lengths over which tasks of a run map.
CREATE INDEX xcom_mapped ON xcom (dag_id, run_id) WHERE mapped_length IS NOT NULL;

-- What people see of a try.
CREATE TABLE rendered (
    -- The try. Writer of this and the rest: a task, through its worker.
    task_instance_id TEXT NOT NULL PRIMARY KEY,
    -- JSON object: the operator's fields with their templates filled in; null before.
    fields           TEXT,
    -- The name of a mapped task instance, in place of its index; null for none.
    map_index_label  TEXT
);

-- Values that tasks read and write, beside their runs.
CREATE TABLE variable (
    -- Its name. Writer of this and the rest: users, and tasks through their workers.
    key          TEXT   NOT NULL PRIMARY KEY,
    -- The value; a token of Fernet where the next column says so.
    value        TEXT   NOT NULL,
    is_encrypted BIGINT NOT NULL CHECK (is_encrypted IN (0, 1)),
    -- For people; null for none.
    description  TEXT
);

-- How tasks reach foreign systems.
CREATE TABLE connection (
    -- Its name. Writer of this and the rest: users.
    conn_id               TEXT   NOT NULL PRIMARY KEY,
    -- postgres, http, ….
    conn_type             TEXT   NOT NULL,
    -- For people; null for none, and so for the rest.
    description           TEXT,
    host                  TEXT,
    schema                TEXT,
    login                 TEXT,
    port                  BIGINT,
    -- The password, and more; each a token of Fernet where the column after it says so.
    password              TEXT,
    is_password_encrypted BIGINT NOT NULL CHECK (is_password_encrypted IN (0, 1)),
    extra                 TEXT,
    is_extra_encrypted    BIGINT NOT NULL CHECK (is_extra_encrypted IN (0, 1))
);

-- Values that a task instance keeps from try to try.
CREATE TABLE task_state (
    -- The task instance. Writer of this and the rest: the task, through its worker.
    dag_id     TEXT   NOT NULL,
    run_id     TEXT   NOT NULL,
    task_id    TEXT   NOT NULL,
    map_index  BIGINT NOT NULL,
    -- Which of its values.
    key        TEXT   NOT NULL,
    -- JSON, as the worker wrote it.
    value      TEXT   NOT NULL,
    -- From when on it is not there; null for never.
    expires_at TEXT,
    PRIMARY KEY (dag_id, run_id, task_id, map_index, key),
    FOREIGN KEY (dag_id, run_id) REFERENCES run (dag_id, run_id)
);

-- What happened, for people: Airflow's audit log. Rows are never changed.
CREATE TABLE event_log (
    -- Counts from 1. Writer: the store.
    id         BIGINT NOT NULL PRIMARY KEY,
    -- When, and what: one word, or a few. Writer of this and the rest: scheduler, service.
    at         TEXT   NOT NULL,
    event      TEXT   NOT NULL,
    -- What it is about, as far as it is about one; null otherwise.
    dag_id     TEXT,
    run_id     TEXT,
    task_id    TEXT,
    map_index  BIGINT,
    try_number BIGINT,
    -- Who did it; null for nobody.
    owner      TEXT,
    -- More, for people; null for nothing.
    extra      TEXT
);

CREATE INDEX event_log_of_dag ON event_log (dag_id, id);
