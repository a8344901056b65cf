-- What signs the tokens of workers. The file of the same name for Postgres makes the same column.

-- A secret that signs the tokens of workers, where the configuration has none; null before the first use. Kept, so that a
-- restart keeps the tokens of running workers good. Writer: the store, once.
ALTER TABLE scheduler ADD COLUMN token_secret TEXT;
