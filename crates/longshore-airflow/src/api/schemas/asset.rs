//! Bodies about assets.

use super::*;
use crate::api::version::ApiVersion;

/// An asset.
pub const ASSET: Schema = lenient(
    "AssetResponse",
    &[
        required("name", ValueKind::Text),
        required("uri", ValueKind::Text),
        required("group", ValueKind::Text),
        optional("extra", MAP_OR_NULL),
    ],
);

/// What a task says about an asset of its inlets or outlets.
pub const ASSET_PROFILE: Schema = strict(
    "AssetProfile",
    &[
        optional("name", TEXT_OR_NULL),
        optional("uri", TEXT_OR_NULL),
        required("type", ValueKind::Text),
    ],
);

/// Answer of `/validate-inlets-and-outlets`.
pub const INACTIVE_ASSETS: Schema = lenient(
    "InactiveAssetsResponse",
    &[optional(
        "inactive_assets",
        ValueKind::List(&ValueKind::Object(&ASSET_PROFILE)),
    )],
);

/// Answer of `/asset-events/…`.
pub const ASSETS_EVENTS: Schema = lenient(
    "AssetEventsResponse",
    &[required(
        "asset_events",
        ValueKind::List(&ValueKind::Object(&ASSET_EVENT)),
    )],
);

/// An asset event.
pub const ASSET_EVENT: Schema = lenient(
    "AssetEventResponse",
    &[
        required("id", ValueKind::Integer),
        required("timestamp", ValueKind::Instant),
        optional("extra", MAP_OR_NULL),
        required("asset", ValueKind::Object(&ASSET)),
        required(
            "created_dagruns",
            ValueKind::List(&ValueKind::Object(&DAG_RUN_OF_EVENT)),
        ),
        optional("source_task_id", TEXT_OR_NULL),
        optional("source_dag_id", TEXT_OR_NULL),
        optional("source_run_id", TEXT_OR_NULL),
        optional("source_map_index", INTEGER_OR_NULL),
        optional("partition_key", TEXT_OR_NULL).with(Life::Since(ApiVersion::V2026_04_06)),
    ],
);

/// A run that an asset event made.
pub const DAG_RUN_OF_EVENT: Schema = strict(
    "DagRunAssetReference",
    &[
        required("run_id", ValueKind::Text),
        required("dag_id", ValueKind::Text),
        required("logical_date", INSTANT_OR_NULL),
        required("start_date", ValueKind::Instant),
        required("end_date", INSTANT_OR_NULL),
        required("state", ValueKind::Text),
        required("data_interval_start", INSTANT_OR_NULL),
        required("data_interval_end", INSTANT_OR_NULL),
        required("partition_key", TEXT_OR_NULL).with(Life::Since(ApiVersion::V2026_04_06)),
    ],
);
