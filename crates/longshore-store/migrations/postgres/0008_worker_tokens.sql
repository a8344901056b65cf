-- What signs the tokens of workers: see the file of the same name for SQLite.

ALTER TABLE scheduler ADD COLUMN token_secret TEXT COLLATE "C";
