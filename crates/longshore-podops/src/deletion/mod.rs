//! The operation that deletes a pod, whatever made it: begun when somebody wants the pod to go, done by its delete.

mod decide;
#[cfg(test)]
mod tests;

pub use decide::decide;
