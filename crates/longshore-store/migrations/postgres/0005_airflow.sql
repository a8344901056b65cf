-- What Airflow DAGs need that the scheduler decides upon: see the file of the same name for SQLite.

CREATE TABLE bundle (
    name             TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    bundle_version   TEXT COLLATE "C",
    refreshed_at     TEXT COLLATE "C",
    is_active        BIGINT NOT NULL CHECK (is_active IN (0, 1)),
    version          BIGINT NOT NULL
);

CREATE TABLE dag_version (
    id               TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    dag_id           TEXT COLLATE "C" NOT NULL,
    number           BIGINT NOT NULL,
    content_hash     TEXT COLLATE "C" NOT NULL,
    document_hash    TEXT COLLATE "C" NOT NULL REFERENCES document (hash),
    source_hash      TEXT COLLATE "C" REFERENCES document (hash),
    bundle_name      TEXT COLLATE "C",
    bundle_version   TEXT COLLATE "C",
    file             TEXT COLLATE "C" NOT NULL,
    created_at       TEXT COLLATE "C" NOT NULL,
    version          BIGINT NOT NULL
);

CREATE UNIQUE INDEX dag_version_by_number ON dag_version (dag_id, number);

CREATE TABLE import_error (
    bundle_name      TEXT COLLATE "C" NOT NULL,
    file             TEXT COLLATE "C" NOT NULL,
    error            TEXT COLLATE "C" NOT NULL,
    seen_at          TEXT COLLATE "C" NOT NULL,
    version          BIGINT NOT NULL,
    PRIMARY KEY (bundle_name, file)
);

CREATE TABLE reschedule (
    task_instance_id TEXT COLLATE "C" NOT NULL,
    number           BIGINT NOT NULL,
    start_date       TEXT COLLATE "C" NOT NULL,
    end_date         TEXT COLLATE "C" NOT NULL,
    reschedule_date  TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (task_instance_id, number)
);

CREATE TABLE deferral (
    task_instance_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    classpath        TEXT COLLATE "C",
    trigger_kwargs   TEXT COLLATE "C",
    queue            TEXT COLLATE "C",
    next_kwargs      TEXT COLLATE "C" NOT NULL
);

ALTER TABLE run ADD COLUMN run_after TEXT COLLATE "C";
ALTER TABLE run ADD COLUMN data_interval_start TEXT COLLATE "C";
ALTER TABLE run ADD COLUMN data_interval_end TEXT COLLATE "C";
ALTER TABLE run ADD COLUMN dag_version_id TEXT COLLATE "C" REFERENCES dag_version (id);
ALTER TABLE run ADD COLUMN bundle_version TEXT COLLATE "C";
ALTER TABLE run ADD COLUMN clear_number BIGINT NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN triggered_by TEXT COLLATE "C";
ALTER TABLE run ADD COLUMN note TEXT COLLATE "C";

ALTER TABLE task_instance ADD COLUMN dag_version_id TEXT COLLATE "C" REFERENCES dag_version (id);
ALTER TABLE task_instance ADD COLUMN hostname TEXT COLLATE "C";
ALTER TABLE task_instance ADD COLUMN unixname TEXT COLLATE "C";
ALTER TABLE task_instance ADD COLUMN pid BIGINT;
ALTER TABLE task_instance ADD COLUMN next_method TEXT COLLATE "C";
ALTER TABLE task_instance ADD COLUMN timeout_at TEXT COLLATE "C";
ALTER TABLE task_instance ADD COLUMN n_reschedules BIGINT;
ALTER TABLE task_instance ADD COLUMN first_look_at TEXT COLLATE "C";
ALTER TABLE task_instance ADD COLUMN reschedule_at TEXT COLLATE "C";
ALTER TABLE task_instance ADD COLUMN retry_delay BIGINT;
ALTER TABLE task_instance ADD COLUMN retry_reason TEXT COLLATE "C";

ALTER TABLE pool ADD COLUMN include_deferred BIGINT NOT NULL DEFAULT 0 CHECK (include_deferred IN (0, 1));
