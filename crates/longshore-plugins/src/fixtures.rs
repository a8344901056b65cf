//! What the tests of this crate share.

use longshore_api::flyte::TaskActionSpec;
use longshore_proto::flyteidl2::core::TaskTemplate;
use prost::Message;
use serde_json::Value;

use crate::{Config, TaskContext};

/// Upstream's golden values.
pub(crate) fn vectors() -> Value {
    serde_json::from_str(include_str!("../testdata/vectors.json")).unwrap()
}

/// The TaskAction of a real run of the SDK.
pub(crate) fn sdk_action() -> Value {
    serde_saphyr::from_str(include_str!("../testdata/sdk-root-taskaction.yaml")).unwrap()
}

/// The first attempt of that action.
pub(crate) fn sdk_context(config: &Config) -> TaskContext {
    let action = sdk_action();
    let spec = TaskActionSpec::of(&action).unwrap();
    let template = TaskTemplate::decode(spec.task_template.as_slice()).unwrap();
    TaskContext::of(&action, &spec, template, 1, config).unwrap()
}
