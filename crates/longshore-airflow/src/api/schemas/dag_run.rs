//! Bodies about DAGs and their runs.

use super::*;
use crate::api::{
    version::ApiVersion,
    words::{DagRunState, DagRunType},
};

/// A run.
pub const DAG_RUN: Schema = strict(
    "DagRun",
    &[
        required("dag_id", ValueKind::Text),
        required("run_id", ValueKind::Text),
        required("logical_date", INSTANT_OR_NULL),
        required("data_interval_start", INSTANT_OR_NULL),
        required("data_interval_end", INSTANT_OR_NULL),
        required("run_after", ValueKind::Instant),
        required("start_date", INSTANT_OR_NULL)
            .with(Life::NotNullBefore(ApiVersion::V2026_04_06, "run_after")),
        required("end_date", INSTANT_OR_NULL),
        optional("clear_number", ValueKind::Integer),
        required("run_type", ValueKind::Words(DagRunType::WORDS)),
        required("state", ValueKind::Words(DagRunState::WORDS)),
        optional("conf", MAP_OR_NULL),
        optional("triggering_user_name", TEXT_OR_NULL),
        required(
            "consumed_asset_events",
            ValueKind::List(&ValueKind::Object(&ASSET_EVENT_REFERENCE)),
        ),
        required("partition_key", TEXT_OR_NULL).with(Life::Since(ApiVersion::V2026_04_06)),
        optional("partition_date", INSTANT_OR_NULL).with(Life::Since(ApiVersion::V2026_06_30)),
        optional("note", TEXT_OR_NULL).with(Life::Since(ApiVersion::V2026_04_06)),
        optional("team_name", TEXT_OR_NULL).with(Life::Since(ApiVersion::V2026_06_30)),
    ],
);

/// An asset event that a run consumed.
pub const ASSET_EVENT_REFERENCE: Schema = strict(
    "AssetEventDagRunReference",
    &[
        required("asset", ValueKind::Object(&ASSET_REFERENCE)),
        required("extra", ValueKind::Map),
        required("source_task_id", TEXT_OR_NULL),
        required("source_dag_id", TEXT_OR_NULL),
        required("source_run_id", TEXT_OR_NULL),
        required("source_map_index", INTEGER_OR_NULL),
        required(
            "source_aliases",
            ValueKind::List(&ValueKind::Object(&ASSET_ALIAS_REFERENCE)),
        ),
        required("timestamp", ValueKind::Instant),
        optional("partition_key", TEXT_OR_NULL).with(Life::Since(ApiVersion::V2026_06_30)),
    ],
);

/// The asset of such an event.
pub const ASSET_REFERENCE: Schema = strict(
    "AssetReferenceAssetEventDagRun",
    &[
        required("name", ValueKind::Text),
        required("uri", ValueKind::Text),
        required("extra", ValueKind::Map),
    ],
);

/// The alias of such an event.
pub const ASSET_ALIAS_REFERENCE: Schema = strict(
    "AssetAliasReferenceAssetEventDagRun",
    &[required("name", ValueKind::Text)],
);

/// Makes a run.
pub const TRIGGER: Schema = strict(
    "TriggerDAGRunPayload",
    &[
        optional("logical_date", INSTANT_OR_NULL),
        optional("run_after", INSTANT_OR_NULL),
        optional("conf", ValueKind::Map),
        optional("reset_dag_run", ValueKind::Boolean),
        optional("partition_key", TEXT_OR_NULL),
        optional("note", TEXT_OR_NULL),
    ],
);

/// Answer of `/dag-runs/…/state`.
pub const DAG_RUN_STATE: Schema = lenient(
    "DagRunStateResponse",
    &[required("state", ValueKind::Words(DagRunState::WORDS))],
);

/// Answer of `/dags/…`.
pub const DAG: Schema = lenient(
    "DagResponse",
    &[
        required("dag_id", ValueKind::Text),
        required("is_paused", ValueKind::Boolean),
        required("bundle_name", TEXT_OR_NULL),
        required("bundle_version", TEXT_OR_NULL),
        required("relative_fileloc", TEXT_OR_NULL),
        required("owners", TEXT_OR_NULL),
        required("tags", TEXTS),
        required("next_dagrun", INSTANT_OR_NULL),
    ],
);
