//! Serialized DAGs, version 3 of the format: what Airflow's parser makes of a DAG file.
//!
//! [`Document::read`] reads one into values with types, and [`Document::to_json`] writes the same JSON again: members that
//! are not known here survive, and so does whether a member was there. So a field for something that can be left out is
//! an `Option`; [`Document::settings`] says what holds for a task. A document that cannot be read is an [`Unreadable`],
//! which names the member.
//!
//! Types and members: `dag`, `operator` (a task), `settings` (what any task may say), `group`, `timetable`, `asset`,
//! `params`, `xcom` (what mapped tasks map over), `value` (any value of Python), `time`, `relativedelta`,
//! `words`. How they are read and
//! written: `record`. `check` looks at references, `hash` at versions, `relevance` at what instances of mapped tasks
//! depend on.
//!
//! Source: spec sections 5.2, 5.3 and 8; upstream's `airflow.serialization` and its JSON schema.

mod asset;
mod check;
mod dag;
mod error;
mod group;
mod hash;
mod operator;
mod params;
mod record;
mod relativedelta;
mod relevance;
mod settings;
mod time;
mod timetable;
mod value;
mod words;
mod xcom;

pub use asset::{Asset, AssetAlias, AssetGroup, AssetRef, OneAsset};
pub use dag::{Bounds, Dag, DagDependency, DagSettings, Document, EdgeInfo, Tasks};
pub(crate) use error::shortened;
pub use error::{Problem, Unreadable};
pub use group::{Child, TaskGroup};
pub use hash::DagHash;
pub use operator::{Operator, StartTriggerArgs};
pub use params::{Param, Params};
pub use relativedelta::Relativedelta;
pub use relevance::{Instance, Relevant};
pub use settings::{ClientDefaults, Settings, SettingsAndMore};
pub use time::{Moment, RunImmediately, Seconds, Step, Zone};
pub(crate) use time::{microseconds, since_1970};
pub use timetable::{
    AssetOrTime, AssetTriggered, CronDataInterval, CronTrigger, DeltaDataInterval, DeltaTrigger,
    EventDate, Events, MultipleCronTrigger, NoFields, Timetable,
};
pub use value::Var;
pub use words::{Backoff, TriggerRule, WeightRule};
pub use xcom::{ExpandInput, ManyRef, MapRef, Over, PlainRef, XcomRef};

#[cfg(test)]
mod tests;
