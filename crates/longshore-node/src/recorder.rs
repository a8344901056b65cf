//! Events of the node.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Error,
    runtime::events::{self, Event, Reporter},
};

/// How many texts are told apart in memory; beyond that, the counts start anew.
const MAX_NOTES: usize = 1024;

/// Publishes Events. The same text about the same object is one Event with a count.
///
/// A recorder of kube counts whatever has the same reason, and keeps the first text: what is wrong with a pod
/// would be one Event, which stays what it was at first. So each text has a recorder of its own.
#[derive(Clone)]
pub(crate) struct Recorder {
    client: Client,
    reporter: Reporter,
    of_notes: Arc<Mutex<BTreeMap<String, events::Recorder>>>,
}

impl Recorder {
    pub(crate) fn new(client: Client, reporter: Reporter) -> Recorder {
        Recorder {
            client,
            reporter,
            of_notes: Arc::default(),
        }
    }

    /// Publishes an Event about an object.
    pub(crate) async fn publish(
        &self,
        event: &Event,
        about: &ObjectReference,
    ) -> Result<(), Error> {
        let recorder = self.of_note(event.note.as_deref().unwrap_or_default());
        recorder.publish(event, about).await
    }

    fn of_note(&self, note: &str) -> events::Recorder {
        let of_notes = self.of_notes.lock();
        let mut of_notes = of_notes.unwrap_or_else(PoisonError::into_inner);
        if let Some(recorder) = of_notes.get(note) {
            return recorder.clone();
        }
        if of_notes.len() >= MAX_NOTES {
            of_notes.clear();
        }
        let recorder = events::Recorder::new(self.client.clone(), self.reporter.clone());
        of_notes.insert(note.to_owned(), recorder.clone());
        recorder
    }
}
