-- When workers were heard: see the file of the same name for SQLite.

CREATE TABLE heartbeat (
    task_instance_id      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    heard_at              TEXT COLLATE "C" NOT NULL
);
