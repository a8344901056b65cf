//! The operation that deletes a pod, whatever made the pod: begun when a client asks for its deletion, done by its
//! delete.

mod decide;
#[cfg(test)]
mod tests;

pub use decide::decide;
