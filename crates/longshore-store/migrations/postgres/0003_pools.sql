-- Pools that a file of the DAG folder names: the same columns as in the file of the same name for SQLite, which says what
-- they mean.

ALTER TABLE pool ADD COLUMN file TEXT COLLATE "C";
ALTER TABLE pool ADD COLUMN slots_before BIGINT;
