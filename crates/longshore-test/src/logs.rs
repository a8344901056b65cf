//! A test fails on a WARN or ERROR line that it did not expect.

use std::{
    fmt::{self, Write},
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};

use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    subscriber::DefaultGuard,
};
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    layer::Context,
    layer::SubscriberExt,
    registry::LookupSpan,
};

/// Collects the warnings and errors of this thread until it is dropped, and fails the test then if there was one that
/// was not allowed.
///
/// It sees what runs on this thread, which is everything in a `current_thread` runtime.
#[derive(Debug)]
#[must_use]
pub struct QuietLogs {
    logs: CollectedLogs,
    allowed: Vec<String>,
}

/// Starts to collect.
pub fn quiet_logs() -> QuietLogs {
    QuietLogs {
        logs: CollectedLogs::start(),
        allowed: Vec::new(),
    }
}

/// The warnings and errors of this thread since the start of the collection. Dropping it ends the collection.
#[derive(Debug)]
pub(crate) struct CollectedLogs {
    lines: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

impl CollectedLogs {
    pub(crate) fn start() -> Self {
        let lines = Arc::default();
        let layer = Collect {
            lines: Arc::clone(&lines),
        };
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(LevelFilter::WARN));
        let subscriber = subscriber.with(shown());
        Self {
            lines,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    /// Every line so far, which begins with its level.
    pub(crate) fn lines(&self) -> Vec<String> {
        let lines = self.lines.lock();
        lines.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl QuietLogs {
    /// Lines that contain this are expected.
    pub fn allow(mut self, text: impl Into<String>) -> Self {
        self.allowed.push(text.into());
        self
    }

    /// Every warning and error so far, the allowed ones included.
    pub fn lines(&self) -> Vec<String> {
        self.logs.lines()
    }

    /// The lines that were not allowed.
    pub fn unexpected(&self) -> Vec<String> {
        let is_allowed = |line: &String| self.allowed.iter().any(|text| line.contains(text));
        let lines = self.lines().into_iter();
        lines.filter(|line| !is_allowed(line)).collect()
    }
}

impl Drop for QuietLogs {
    fn drop(&mut self) {
        let unexpected = self.unexpected();
        if !std::thread::panicking() {
            assert!(
                unexpected.is_empty(),
                "unexpected log lines:\n{}",
                unexpected.join("\n")
            );
        }
    }
}

/// The variable that says which log lines a test shows besides, as `longshore_kit=trace`.
const SHOWN: &str = "LONGSHORE_TEST_LOGS";

#[expect(
    clippy::disallowed_methods,
    reason = "a developer asks for the log of one test"
)]
fn shown<S: Subscriber + for<'a> LookupSpan<'a>>() -> Option<impl Layer<S>> {
    let filter = Targets::from_str(&std::env::var(SHOWN).ok()?).unwrap_or_default();
    Some(tracing_subscriber::fmt::layer().with_filter(filter))
}

struct Collect {
    lines: Arc<Mutex<Vec<String>>>,
}

impl<S: Subscriber> Layer<S> for Collect {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = *event.metadata().level();
        let mut line = Line(format!("{level} {}:", event.metadata().target()));
        event.record(&mut line);
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(line.0);
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unexpected_warning_is_found_and_an_allowed_one_is_not() {
        let logs = quiet_logs().allow("disk is slow");
        tracing::warn!(n = 3, "disk is slow");
        tracing::info!("all is well");
        assert!(logs.unexpected().is_empty());
        tracing::error!("disk is gone");
        assert_eq!(logs.unexpected().len(), 1, "{:?}", logs.unexpected());
        let _logs = logs.allow("disk is gone");
    }
}
