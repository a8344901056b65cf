//! What the tests of this crate share.

use longshore_api::flyte::{
    LABEL_COMPLETED_TIME, LABEL_TERMINAL_STATUS_RECORDED, LABEL_TERMINATION_STATUS, TaskActionSpec,
};
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

/// The first attempt of that action, whose pod was built before the action got the labels of its end.
pub(crate) fn sdk_context(config: &Config) -> TaskContext {
    let mut action = sdk_action();
    let labels = action["metadata"]["labels"].as_object_mut().unwrap();
    for label in [
        LABEL_COMPLETED_TIME,
        LABEL_TERMINAL_STATUS_RECORDED,
        LABEL_TERMINATION_STATUS,
    ] {
        assert!(labels.remove(label).is_some(), "{label}");
    }
    let spec = TaskActionSpec::of(&action).unwrap();
    let template = TaskTemplate::decode(spec.task_template.as_slice()).unwrap();
    TaskContext::of(&action, &spec, template, 1, config).unwrap()
}

/// An attempt of a made-up action `r-a` with this template.
pub(crate) fn context(template: TaskTemplate, attempt: u32) -> TaskContext {
    let action = serde_json::json!({
        "metadata": {"namespace": "flyte", "name": "r-a", "uid": "u"},
        "spec": {
            "runName": "r", "project": "p", "domain": "d", "actionName": "a",
            "taskType": template.r#type, "inputUri": "s3://b/in", "runOutputBase": "s3://b/out",
        },
    });
    let spec = TaskActionSpec::of(&action).unwrap();
    TaskContext::of(&action, &spec, template, attempt, &Config::default()).unwrap()
}
