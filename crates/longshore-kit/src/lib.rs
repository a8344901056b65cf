//! The shell around every pure controller: rounds, plans applied in order, caches, events, backoff, shutdown.
