//! Longshore.
fn main() {}
