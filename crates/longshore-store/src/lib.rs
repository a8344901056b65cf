//! Runs, task instances and the watch position, in SQLite.
