-- Why results were not taken. The file of the same name for Postgres makes the same column.

-- Why what the task left is no result, for the user; null where it left one or nothing. Writer: scheduler, from the pod.
ALTER TABLE task_instance ADD COLUMN result_note TEXT;
