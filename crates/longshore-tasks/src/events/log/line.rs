//! A line of the event log.

use jiff::Timestamp;
use longshore_proto::flyteidl2::core::CatalogCacheStatus;
use serde::{Deserialize, Serialize};

use crate::events::ActionEvent;

/// An event of the log: one change of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoggedEvent {
    /// When it changed, by the second.
    pub updated_at: Timestamp,
    /// When that was told.
    pub reported_at: Timestamp,
    /// Of the run.
    pub project: String,
    /// Of the run.
    pub domain: String,
    /// The run.
    pub run: String,
    /// The action in it.
    pub action: String,
    /// From 1.
    pub attempt: u32,
    /// What it changed to, as `RUNNING`.
    pub phase: String,
    /// Orders changes within a phase.
    pub version: u32,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<LoggedError>,
    /// As `CACHE_HIT`; empty where nothing is cached.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cache_status: String,
    /// The directory of the attempt's outputs, as a URL.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output_prefix: String,
    /// Where it runs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// What happened on the way, oldest first.
    #[serde(alias = "happenings", default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<LoggedReason>,
    /// What can be looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LoggedLink>,
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedError {
    /// As `OOMKilled`.
    pub code: String,
    /// `USER`, `SYSTEM`, or empty where it is not known.
    pub kind: String,
    /// For people.
    pub message: String,
}

/// Something that happened on the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoggedReason {
    /// When.
    pub occurred_at: Timestamp,
    /// For people.
    pub reason: String,
}

/// Something that can be looked at: a log, a dashboard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedLink {
    /// As `Kubernetes Logs`.
    pub name: String,
    /// Where it is.
    pub uri: String,
}

impl LoggedEvent {
    /// The line of an event.
    pub(super) fn of(event: &ActionEvent) -> Self {
        let phase = event.phase.as_str_name();
        let cache = CatalogCacheStatus::try_from(event.cache_status);
        let cache = cache
            .ok()
            .filter(|it| *it != CatalogCacheStatus::CacheDisabled);
        let error = event.error.as_ref().map(|error| LoggedError {
            code: error.code.clone(),
            kind: error.kind.as_str().to_owned(),
            message: error.message.clone(),
        });
        let reasons = event.reasons.iter().map(|it| LoggedReason {
            occurred_at: it.occurred_at,
            reason: it.reason.clone(),
        });
        let links = event.logs.iter().map(|it| LoggedLink {
            name: it.name.clone(),
            uri: it.uri.clone(),
        });
        Self {
            updated_at: event.updated_at,
            reported_at: event.reported_at,
            project: event.project.clone(),
            domain: event.domain.clone(),
            run: event.run.clone(),
            action: event.action.clone(),
            attempt: event.attempt,
            phase: phase.trim_start_matches("ACTION_PHASE_").to_owned(),
            version: event.version,
            error,
            cache_status: cache.map_or("", |it| it.as_str_name()).to_owned(),
            output_prefix: event.output_prefix.clone(),
            cluster: event.cluster.clone(),
            reasons: reasons.collect(),
            links: links.collect(),
        }
    }
}
