//! What the pure laws must know about the toy, and the observations to check it with.

use longshore_core::{Action, Never, ObjectRef, Resource, Seen};
use proptest::{collection::vec, prelude::*};

use super::{Bug, Effect, Observed, Order, OrderPod, PodPhase, State, Status, decide::OrderPlan};
use crate::{
    EPOCH,
    laws::{Decider, Read, all_reads},
};

/// At most: the record, and the deletion of the pods of every attempt.
const MAX_ACTIONS: usize = 5;

crate::reads! {
    Observed { order, pods, is_refused, n_failed_creates, now }
}

impl Decider for Bug {
    type Observed = Observed;
    type Status = Status;
    type Effect = Effect;
    type Question = Never;

    fn decide(&self, observed: &Observed) -> OrderPlan {
        self.plan(observed)
    }

    fn max_actions(&self) -> usize {
        MAX_ACTIONS
    }

    fn reads(&self, observed: &Observed) -> Result<Vec<Read<Observed>>, String> {
        all_reads(observed)
    }

    fn leaves_terminal(&self, observed: &Observed, status: &Status) -> bool {
        let state = observed.order.present().map(|order| order.state);
        matches!(state, Some(State::Succeeded(_) | State::Failed(_))) && state != Some(status.state)
    }

    fn intent_of(&self, action: &Action<Status, Effect>) -> Option<String> {
        match action {
            Action::Create(create)
            | Action::Call(Effect::CreateAnyhow(create) | Effect::CreateCounted(create)) => {
                let attempt = create.identity.value().rsplit('/').next();
                Some(format!("running {}", attempt.unwrap_or_default()))
            }
            Action::Persist(_)
            | Action::EnsureFinalizer { .. }
            | Action::Patch(_)
            | Action::Delete(_)
            | Action::Call(Effect::DeleteAnyhow(_))
            | Action::Announce(_)
            | Action::Ask(_)
            | Action::Used(_)
            | Action::RemoveFinalizer { .. } => None,
        }
    }

    fn is_intended(&self, observed: &Observed, intent: &str) -> bool {
        let order = observed.order.present();
        order.is_some_and(|order| order.state.to_string() == intent)
    }

    fn records_intent(&self, status: &Status, intent: &str) -> bool {
        status.state.to_string() == intent
    }
}

/// Observations of orders in every state with any pods.
pub fn observations() -> impl Strategy<Value = Observed> {
    let state = prop_oneof![
        Just(State::New),
        (1..=3_u32).prop_map(State::Running),
        (1..=3_u32).prop_map(State::Succeeded),
        (1..=3_u32).prop_map(State::Failed),
    ];
    let phase = prop_oneof![
        Just(None),
        Just(Some(PodPhase::Unfinished)),
        Just(Some(PodPhase::Succeeded)),
        Just(Some(PodPhase::Failed)),
    ];
    let pods = vec((phase, any::<bool>(), any::<bool>()), 0..=3);
    (state, 1..=3_u32, pods, any::<bool>()).prop_map(|(state, n_attempts, pods, is_refused)| {
        let pods = pods.into_iter().zip(1_u32..);
        let pods = pods.map(
            |((phase, was_seen_running, is_deleting), attempt)| OrderPod {
                target: address(Resource::POD, &format!("order-{attempt}")),
                attempt,
                phase,
                was_seen_running,
                is_deleting,
            },
        );
        Observed {
            order: Seen::Present(Order {
                target: address(Resource::CONFIG_MAP, "order"),
                version: "7".to_owned(),
                script: "exit 0".to_owned(),
                n_attempts,
                state,
            }),
            pods: Seen::Present(pods.collect()),
            is_refused,
            n_failed_creates: 0,
            now: EPOCH,
        }
    })
}

fn address(resource: Resource, name: &str) -> ObjectRef {
    ObjectRef {
        resource,
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: Some(format!("uid-of-{name}")),
    }
}
