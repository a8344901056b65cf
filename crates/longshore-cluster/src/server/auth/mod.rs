//! Who sends a request.
//!
//! `wire` finds the user of a request that comes over the network, and puts an `Arc<UserInfo>` into the
//! extensions of the request. `http` takes it from there; a request from this process without a user is one of
//! [`UserInfo::admin`]. A [`Call`](super::verbs::Call) carries the user to the verbs, to reviews and to webhooks.

#[cfg(test)]
mod tests;
mod user;

pub(crate) use user::UserInfo;
