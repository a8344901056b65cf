//! Parts and actions of objects that have paths of their own, beside `/status`.

pub(crate) mod binding;
mod budgets;
pub(crate) mod ephemeral;
pub(crate) mod eviction;
pub(crate) mod finalize;
pub(crate) mod log;
pub(crate) mod scale;
pub(crate) mod streams;
pub(crate) mod token;
