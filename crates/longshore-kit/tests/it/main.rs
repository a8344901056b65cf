//! The kit against a fake API server of a few lines.

#[cfg(test)]
mod runner;
