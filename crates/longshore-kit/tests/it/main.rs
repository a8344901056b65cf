//! The kit against a fake API server of a few lines.

#[cfg(test)]
mod cache;
#[cfg(test)]
mod cache_model;
#[cfg(test)]
mod list_watch;
#[cfg(test)]
mod runner;
#[cfg(test)]
mod wiring;
