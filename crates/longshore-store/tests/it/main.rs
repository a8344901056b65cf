//! The store, from outside: one suite for every engine, and what only files can show.

mod conflicts;
mod crash;
mod files;
mod group;
mod model;
mod samples;
mod stores;
mod suite;
