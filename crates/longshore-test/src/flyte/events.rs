//! The events service: keeps all events that it gets.

use longshore_proto::flyteidl2::workflow::{ActionEvent, RecordResponse};

use super::{Refused, ServicesState};

impl ServicesState {
    /// All of them, or none.
    pub(super) fn record(&mut self, events: Vec<ActionEvent>) -> Result<RecordResponse, Refused> {
        if let Some(event) = events.iter().find(|event| flaw(event)) {
            let refused = format!("expected an action and an attempt from 1: {event:?}");
            return Err(Refused::invalid(refused));
        }
        self.events.extend(events);
        Ok(RecordResponse {})
    }
}

/// Whether the peer would refuse the event.
fn flaw(event: &ActionEvent) -> bool {
    let run = event.id.as_ref().and_then(|id| id.run.as_ref());
    run.is_none() || event.attempt == 0
}
