-- Values that the scheduler does not decide upon: see the file of the same name for SQLite.

CREATE TABLE xcom (
    dag_id                TEXT COLLATE "C" NOT NULL,
    run_id                TEXT COLLATE "C" NOT NULL,
    task_id               TEXT COLLATE "C" NOT NULL,
    map_index             BIGINT NOT NULL,
    key                   TEXT COLLATE "C" NOT NULL,
    value                 TEXT COLLATE "C" NOT NULL,
    mapped_length         BIGINT,
    is_dag_result         BIGINT NOT NULL CHECK (is_dag_result IN (0, 1)),
    written_at            TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (dag_id, run_id, task_id, key, map_index),
    FOREIGN KEY (dag_id, run_id) REFERENCES run (dag_id, run_id)
);

CREATE INDEX xcom_mapped ON xcom (dag_id, run_id) WHERE mapped_length IS NOT NULL;

CREATE TABLE rendered (
    task_instance_id      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    fields                TEXT COLLATE "C",
    map_index_label       TEXT COLLATE "C"
);

CREATE TABLE variable (
    key                   TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    value                 TEXT COLLATE "C" NOT NULL,
    is_encrypted          BIGINT NOT NULL CHECK (is_encrypted IN (0, 1)),
    description           TEXT COLLATE "C"
);

CREATE TABLE connection (
    conn_id               TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    conn_type             TEXT COLLATE "C" NOT NULL,
    description           TEXT COLLATE "C",
    host                  TEXT COLLATE "C",
    schema                TEXT COLLATE "C",
    login                 TEXT COLLATE "C",
    port                  BIGINT,
    password              TEXT COLLATE "C",
    is_password_encrypted BIGINT NOT NULL CHECK (is_password_encrypted IN (0, 1)),
    extra                 TEXT COLLATE "C",
    is_extra_encrypted    BIGINT NOT NULL CHECK (is_extra_encrypted IN (0, 1))
);

CREATE TABLE task_state (
    dag_id                TEXT COLLATE "C" NOT NULL,
    run_id                TEXT COLLATE "C" NOT NULL,
    task_id               TEXT COLLATE "C" NOT NULL,
    map_index             BIGINT NOT NULL,
    key                   TEXT COLLATE "C" NOT NULL,
    value                 TEXT COLLATE "C" NOT NULL,
    expires_at            TEXT COLLATE "C",
    PRIMARY KEY (dag_id, run_id, task_id, map_index, key),
    FOREIGN KEY (dag_id, run_id) REFERENCES run (dag_id, run_id)
);

CREATE TABLE event_log (
    id                    BIGINT NOT NULL PRIMARY KEY,
    at                    TEXT COLLATE "C" NOT NULL,
    event                 TEXT COLLATE "C" NOT NULL,
    dag_id                TEXT COLLATE "C",
    run_id                TEXT COLLATE "C",
    task_id               TEXT COLLATE "C",
    map_index             BIGINT,
    try_number            BIGINT,
    owner                 TEXT COLLATE "C",
    extra                 TEXT COLLATE "C"
);

CREATE INDEX event_log_of_dag ON event_log (dag_id, id);
