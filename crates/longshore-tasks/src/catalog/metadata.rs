//! What is noted with cached outputs: where they come from.

use jiff::Timestamp;
use longshore_plugins::TaskContext;
use longshore_proto::flyteidl2::cacheservice::KeyMapMetadata;

use super::{Metadata, to_proto};

/// Where the outputs of an attempt come from, in upstream's words.
pub fn metadata(context: &TaskContext, now: Timestamp) -> Metadata {
    let id = context.template.id.clone();
    let version = id.as_ref().map_or("", |id| &id.version).to_owned();
    let values = [
        ("task-version", version),
        ("execution-name", context.run_name.clone()),
        ("exec-project", context.project.clone()),
        ("exec-domain", context.domain.clone()),
        ("exec-node", context.action_name.clone()),
        (
            "exec-attempt",
            context.attempt.saturating_sub(1).to_string(),
        ),
        // Runs have no organisation of their own.
        ("exec-org", String::new()),
    ];
    Metadata {
        source_identifier: id,
        key_map: Some(KeyMapMetadata {
            values: values.map(|(key, value)| (key.to_owned(), value)).into(),
        }),
        created_at: Some(to_proto(now)),
        last_updated_at: None,
    }
}
