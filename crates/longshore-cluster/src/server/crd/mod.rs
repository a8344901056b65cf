//! CustomResourceDefinitions: from an accepted definition to a resource that is served.
//!
//! `accept` and `structural` say which definitions are taken. `definition` compiles one into the
//! resources that it serves, `schema` is what it knows about objects: `defaults`, `prune`,
//! `validate`, `lists`. `catalog` keeps the compiled form of every stored definition. `settle` makes
//! the status of definitions true, and empties those that are deleted.
//!
//! **Invariant:** what is served follows from the stored definitions alone. Nothing is registered,
//! so nothing can be forgotten: a definition whose status says `Established` is served, also after a
//! restart.

mod accept;
mod catalog;
mod columns;
mod custom;
mod defaults;
mod definition;
mod formats;
mod json_path;
mod keywords;
mod lists;
mod names;
mod prune;
mod rules;
mod schema;
mod settle;
mod structural;
#[cfg(test)]
mod tests;
mod validate;

pub(crate) use accept::{mark_deleted, prepare_create, prepare_update, violations};
pub(crate) use catalog::Catalog;
pub(crate) use columns::{Column, ColumnType};
pub(crate) use custom::{Custom, ScalePaths};
pub(crate) use rules::n_rules;
pub(crate) use settle::settle;
