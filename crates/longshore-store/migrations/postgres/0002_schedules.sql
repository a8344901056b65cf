-- What schedules need to go on: see the file of the same name for SQLite.

ALTER TABLE dag ADD COLUMN last_interval_start TEXT COLLATE "C";
ALTER TABLE dag ADD COLUMN last_interval_end TEXT COLLATE "C";
ALTER TABLE dag ADD COLUMN version BIGINT NOT NULL DEFAULT 1;

CREATE INDEX run_by_logical_date ON run (dag_id, logical_date);
