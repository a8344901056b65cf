//! Go's `encoding/gob`, as far as one struct needs it: the peer keeps plugin state in it, so we do too.
//!
//! A stream is a sequence of messages, each with its length in front. A message with a negative
//! type id describes a type, one with a positive id holds a value of it. A field is encoded as the
//! difference between its number and the one before, and fields with zero values are left out,
//! except for structs. Ids are whatever the writing process had free: only names count.

mod read;
mod write;

pub(crate) use read::{Gob, GobError, read_struct};
pub(crate) use write::{Kind, Writer, struct_type, texts_type, time_type};

/// Ids that every process knows.
mod builtin {
    pub(super) const BOOL: i64 = 1;
    pub(super) const INT: i64 = 2;
    pub(super) const UINT: i64 = 3;
    pub(super) const FLOAT: i64 = 4;
    pub(super) const BYTES: i64 = 5;
    pub(super) const STRING: i64 = 6;
    pub(super) const COMPLEX: i64 = 7;
    pub(super) const INTERFACE: i64 = 8;
}

#[cfg(test)]
mod tests;
