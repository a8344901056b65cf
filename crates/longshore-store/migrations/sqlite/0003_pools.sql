-- Pools that a file of the DAG folder names. The file of the same name for Postgres makes the same columns.

-- The file that the slots come from, relative to the DAG folder; null where they come from a request of a user. Writer: the
-- DAG folder.
ALTER TABLE pool ADD COLUMN file TEXT;
-- How many slots a user had given the pool before the file named it: it gets them back when the file no longer does. Null
-- where there was no such pool, which is then deleted. Writer: the DAG folder.
ALTER TABLE pool ADD COLUMN slots_before BIGINT;
