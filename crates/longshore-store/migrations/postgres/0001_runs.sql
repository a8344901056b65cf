-- The tables of one scheduler, in Postgres: the same tables and columns as in the file of the same name for SQLite, which
-- says what they mean. Text sorts by its bytes, as there, whatever the server's locale.

CREATE TABLE scheduler (
    id                  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    watch_position      TEXT COLLATE "C",
    n_openings          BIGINT NOT NULL
);

CREATE TABLE pool (
    name                TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    slots               BIGINT NOT NULL
);

INSERT INTO pool (name, slots) VALUES ('default_pool', 128);

CREATE TABLE document (
    hash                TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    body                TEXT COLLATE "C" NOT NULL
);

CREATE TABLE dag (
    dag_id              TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    file                TEXT COLLATE "C",
    is_paused           BIGINT NOT NULL CHECK (is_paused IN (0, 1)),
    next_run_after      TEXT COLLATE "C",
    next_logical_date   TEXT COLLATE "C",
    next_interval_start TEXT COLLATE "C",
    next_interval_end   TEXT COLLATE "C",
    parsed_at           TEXT COLLATE "C" NOT NULL,
    error               TEXT COLLATE "C",
    document_hash       TEXT COLLATE "C" REFERENCES document (hash)
);

CREATE TABLE run (
    dag_id              TEXT COLLATE "C" NOT NULL,
    run_id              TEXT COLLATE "C" NOT NULL,
    run_type            TEXT COLLATE "C" NOT NULL,
    state               TEXT COLLATE "C" NOT NULL,
    logical_date        TEXT COLLATE "C",
    queued_at           TEXT COLLATE "C" NOT NULL,
    start_date          TEXT COLLATE "C",
    end_date            TEXT COLLATE "C",
    conf                TEXT COLLATE "C" NOT NULL,
    dag_hash            TEXT COLLATE "C" NOT NULL REFERENCES document (hash),
    is_prepared         BIGINT NOT NULL CHECK (is_prepared IN (0, 1)),
    reason              TEXT COLLATE "C",
    version             BIGINT NOT NULL,
    PRIMARY KEY (dag_id, run_id)
);

CREATE INDEX run_unfinished ON run (queued_at, dag_id, run_id) WHERE state IN ('queued', 'running');
CREATE INDEX run_by_age ON run (queued_at, dag_id, run_id);
CREATE INDEX run_of_dag_by_age ON run (dag_id, queued_at, run_id);

CREATE TABLE task_instance (
    id                  TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    dag_id              TEXT COLLATE "C" NOT NULL,
    run_id              TEXT COLLATE "C" NOT NULL,
    task_id             TEXT COLLATE "C" NOT NULL,
    map_index           BIGINT NOT NULL,
    is_archived         BIGINT NOT NULL CHECK (is_archived IN (0, 1)),
    state               TEXT COLLATE "C",
    try_number          BIGINT NOT NULL,
    max_tries           BIGINT NOT NULL,
    launch              BIGINT NOT NULL,
    launch_failures     BIGINT NOT NULL,
    pool                TEXT COLLATE "C" NOT NULL,
    pool_slots          BIGINT NOT NULL,
    priority_weight     BIGINT NOT NULL,
    scheduled_at        TEXT COLLATE "C",
    queued_at           TEXT COLLATE "C",
    start_date          TEXT COLLATE "C",
    end_date            TEXT COLLATE "C",
    pod_name            TEXT COLLATE "C",
    pod_uid             TEXT COLLATE "C",
    failure             TEXT COLLATE "C",
    result              TEXT COLLATE "C",
    version             BIGINT NOT NULL,
    FOREIGN KEY (dag_id, run_id) REFERENCES run (dag_id, run_id)
);

CREATE UNIQUE INDEX task_instance_current ON task_instance (dag_id, run_id, task_id, map_index) WHERE is_archived = 0;
CREATE INDEX task_instance_archived ON task_instance (dag_id, run_id) WHERE is_archived = 1;
