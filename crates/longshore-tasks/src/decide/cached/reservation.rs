//! The reservation of a task: when it is asked for, and what came of it.

use std::time::Duration;

use jiff::Timestamp;
use longshore_core::{Action as Do, Asked};

use super::super::{Round, Step};
use crate::{
    catalog::{Cached, decide::Claim},
    questions::{Holder, TaskQuestion},
};

/// No catalog expects the owner of a reservation later than this: the peer's `maxReservationHeartbeat`.
const MAX_HEARTBEAT: Duration = Duration::from_secs(10);
/// The shortest time that a catalog has for the answer who has a reservation.
const MIN_RESERVE_TIMEOUT: Duration = Duration::from_millis(500);

/// What came of a reservation.
pub(super) struct Held {
    /// When the answer came.
    pub(super) at: Timestamp,
    /// The answer.
    pub(super) claim: Claim,
}

/// What came of the reservation, unless it is time to ask again.
pub(super) fn fresh(round: &Round<'_>, cached: &Cached, is_launched: bool) -> Option<Held> {
    let held = last_claim(cached).filter(|_| !cached.is_freed)?;
    (!left(round, &held, is_launched).is_zero()).then_some(held)
}

/// Whether this action has had the reservation all along, and has it when the catalog is asked now: no other action can
/// have filled the cache meanwhile.
pub(super) fn keeps(round: &Round<'_>, cached: &Cached) -> bool {
    let Some(Held { at, claim }) = last_claim(cached) else {
        return false;
    };
    let is_ours = matches!(&claim, Claim::HeldBy { owner, .. } if *owner == cached.entry.owner);
    // One heartbeat before it ends.
    is_ours && round.since(at) < 2 * heartbeat(round, Some(&claim))
}

/// How soon a reservation is extended after it was granted or extended last.
fn heartbeat(round: &Round<'_>, claim: Option<&Claim>) -> Duration {
    let granted = match claim {
        Some(Claim::HeldBy { heartbeat, .. }) if !heartbeat.is_zero() => *heartbeat,
        Some(Claim::HeldBy { .. } | Claim::Failed(_)) | None => MAX_HEARTBEAT,
    };
    granted.min(round.policy.requeue)
}

/// What came of the reservation when it was asked for last.
pub(super) fn last_claim(cached: &Cached) -> Option<Held> {
    let last = if cached.reserved.is_over() {
        &cached.reserved
    } else {
        &cached.reserved_before
    };
    match last {
        Asked::Answered {
            at,
            answer: Holder { owner, heartbeat },
        } => Some(Held {
            at: *at,
            claim: Claim::HeldBy {
                owner: owner.clone(),
                heartbeat: *heartbeat,
            },
        }),
        Asked::Failed { at, message, .. } => Some(Held {
            at: *at,
            claim: Claim::Failed(message.clone()),
        }),
        Asked::NotAsked | Asked::UnderWay { .. } | Asked::AskedByAnother => None,
    }
}

/// How long until it is time to ask for the reservation again. What runs extends its own before that ends, whichever
/// request is lost: a heartbeat that fails is repeated soon.
pub(super) fn left(round: &Round<'_>, held: &Held, is_launched: bool) -> Duration {
    let heartbeat = heartbeat(round, Some(&held.claim));
    let within = match held.claim {
        Claim::HeldBy { .. } => heartbeat,
        Claim::Failed(_) if is_launched => heartbeat / 4,
        Claim::Failed(_) => round.policy.requeue,
    };
    within.saturating_sub(round.since(held.at))
}

/// Asks for the reservation. It lasts three heartbeats: with half of one for the answer, at least two requests fit in after
/// the last one that was answered.
pub(super) fn reserve(round: &Round<'_>, cached: &Cached) -> Step {
    let claim = last_claim(cached).map(|held| held.claim);
    let ours = claim.filter(
        |claim| matches!(claim, Claim::HeldBy { owner, .. } if *owner == cached.entry.owner),
    );
    let timeout = heartbeat(round, ours.as_ref()) / 2;
    Do::Ask(TaskQuestion::Reserve {
        entry: cached.entry.clone(),
        uid: cached.uid.clone(),
        heartbeat: round.policy.requeue,
        timeout: timeout.max(MIN_RESERVE_TIMEOUT),
    })
}
