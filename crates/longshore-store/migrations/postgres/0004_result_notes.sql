-- Why results were not taken: the same column as in the file of the same name for SQLite, which says what it means.

ALTER TABLE task_instance ADD COLUMN result_note TEXT COLLATE "C";
