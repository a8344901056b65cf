-- What schedules need to go on. The file of the same name for Postgres makes the same columns.

-- The data interval of the DAG's latest scheduled run; both or neither. The schedule goes on from it, whatever became of
-- the run. Writer: scheduler, in the transaction that creates the run.
ALTER TABLE dag ADD COLUMN last_interval_start TEXT;
ALTER TABLE dag ADD COLUMN last_interval_end TEXT;
-- Optimistic lock, as in the other tables. Writer: the store. From now on the scheduler alone writes DAGs, what users and
-- the folder decide included.
ALTER TABLE dag ADD COLUMN version BIGINT NOT NULL DEFAULT 1;

-- Whether a DAG has a run about an instant.
CREATE INDEX run_by_logical_date ON run (dag_id, logical_date);
