-- When workers were heard. The file of the same name for Postgres makes the same table.

-- For people: what decides about silent workers is in memory. Written in one statement for all workers, at most once in
-- 10 s; a row is deleted when its worker was not heard for an hour.
CREATE TABLE heartbeat (
    -- The try. Writer of this and the other: the service, from the worker.
    task_instance_id TEXT NOT NULL PRIMARY KEY,
    -- When its worker was last heard.
    heard_at         TEXT NOT NULL
);
