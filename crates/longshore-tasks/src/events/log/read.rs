//! Reads the event log, while it is written or not.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufRead, BufReader, ErrorKind},
    path::Path,
};

use super::{LoggedEvent, files};

/// Which events are wanted; an empty name wants all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Of this run.
    pub run: &'a str,
    /// Of this action.
    pub action: &'a str,
}

impl Wanted<'_> {
    fn includes(&self, event: &LoggedEvent) -> bool {
        (self.run.is_empty() || self.run == event.run)
            && (self.action.is_empty() || self.action == event.action)
    }
}

pub(super) fn read(directory: &Path, wanted: &Wanted<'_>) -> io::Result<Vec<LoggedEvent>> {
    let mut events = Vec::new();
    let mut seen = BTreeSet::new();
    for (_, path) in files(directory)? {
        let file = match File::open(&path) {
            // It was the oldest, and there are too many.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            file => file?,
        };
        for line in BufReader::new(file).split(b'\n') {
            let Ok(event) = serde_json::from_slice::<LoggedEvent>(&line?) else {
                continue;
            };
            // After a crash an event comes again, with another time of its report.
            if wanted.includes(&event) && seen.insert(identity(&event)) {
                events.push(event);
            }
        }
    }
    Ok(events)
}

/// What the receiver of an event knows it by.
fn identity(event: &LoggedEvent) -> (String, String, String, String, u32, String, u32) {
    (
        event.project.clone(),
        event.domain.clone(),
        event.run.clone(),
        event.action.clone(),
        event.attempt,
        event.phase.clone(),
        event.version,
    )
}
