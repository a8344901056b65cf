//! Which log files a pod has: written by its actor, read by requests for a log.

use std::collections::BTreeMap;

use tokio::sync::watch;

use crate::logs::LogError;

/// The logs of a pod by container.
pub(crate) type LogBook = BTreeMap<String, ContainerLog>;

/// What there is of one container's logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerLog {
    /// The newest attempt.
    pub(crate) last: Option<u32>,
    /// Whether that attempt can still write.
    pub(crate) is_live: bool,
    /// The init of that attempt while it runs, as the host sees it.
    pub(crate) init: Option<i32>,
    /// The waiting reason before the first attempt.
    pub(crate) waiting: String,
}

/// Lets a follower of a log find out when an attempt has ended.
#[derive(Clone, Debug)]
pub(crate) struct AttemptWatch {
    pub(crate) book: watch::Receiver<LogBook>,
    pub(crate) container: String,
    pub(crate) attempt: u32,
}

impl AttemptWatch {
    /// Whether nothing more will be written.
    pub(crate) fn has_ended(&mut self) -> bool {
        let book = self.book.borrow_and_update();
        let log = book.get(&self.container);
        log.is_none_or(|log| log.last != Some(self.attempt) || !log.is_live)
    }
}

/// The container and attempt that a client means.
pub(crate) fn choose(
    book: &LogBook,
    pod: &str,
    container: Option<&str>,
    is_previous: bool,
) -> Result<(String, u32), LogError> {
    let known = || book.keys().cloned().collect::<Vec<_>>().join(", ");
    let container = match container {
        Some(name) => name.to_owned(),
        None if book.len() == 1 => book.keys().next().cloned().unwrap_or_default(),
        None => String::new(),
    };
    let pod = pod.to_owned();
    let Some(log) = book.get(&container) else {
        return Err(LogError::NoContainer {
            pod,
            container,
            known: known(),
        });
    };
    let Some(last) = log.last else {
        return Err(LogError::Waiting {
            pod,
            container,
            reason: log.waiting.clone(),
        });
    };
    match (is_previous, last.checked_sub(1)) {
        (false, _) => Ok((container, last)),
        (true, Some(previous)) => Ok((container, previous)),
        (true, None) => Err(LogError::NoPrevious { pod, container }),
    }
}
