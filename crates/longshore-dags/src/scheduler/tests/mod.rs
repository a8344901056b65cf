//! The scheduler against a store that is a map.

mod board;
mod changes;
mod clear;
mod edges;
mod laws;
mod limits;
mod mapped;
mod python;
mod retry;
mod runs;
mod tries;
mod waiting;
mod workers;
mod world;
