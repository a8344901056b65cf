//! `core-sleep`: a task that waits. Nothing runs; the start is remembered, so that a restart does not begin again.

use std::time::Duration;

use jiff::Timestamp;
use longshore_proto::flyteidl2::core::{
    LiteralMap, SimpleType, TypedInterface, literal, literal_type, primitive, scalar,
};
use serde::{Deserialize, Serialize};

use crate::{
    context::TaskContext,
    phase::{Phase, PhaseInfo},
    plugin::BuildError,
    remote::{Call, RemotePlugin, Round, Step, StoredState},
    state::{STATE_VERSION, StateError},
};

/// The plugin of tasks that wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SleepPlugin;

/// What is remembered. The peer remembers nothing, and passes this over.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    #[serde(rename = "startedAt")]
    started_at: Timestamp,
}

impl RemotePlugin for SleepPlugin {
    fn id(&self) -> &'static str {
        "core-sleep"
    }

    fn task_types(&self) -> Vec<String> {
        vec!["core-sleep".to_owned()]
    }

    fn needs_inputs(&self, _: StoredState<'_>) -> bool {
        true
    }

    fn step(&self, context: &TaskContext, round: &Round<'_>) -> Result<Step, StateError> {
        let wanted = match duration(context) {
            Ok(wanted) => wanted,
            Err(problem) => {
                let error = BuildError::bad_specification(problem);
                return Ok(Step::quiet(error.into(), Vec::new()));
            }
        };
        let state = match read(round.state)? {
            Some(state) => state,
            None => State {
                started_at: round.now,
            },
        };
        let slept = round.now.duration_since(state.started_at);
        let left = wanted.saturating_sub(Duration::try_from(slept).unwrap_or_default());
        let phase = if left.is_zero() {
            Phase::Success
        } else {
            Phase::Running
        };
        let bytes = serde_json::to_vec(&state).unwrap_or_default();
        Ok(Step {
            again: (!left.is_zero()).then_some(left),
            ..Step::quiet(PhaseInfo::of(phase, ""), bytes)
        })
    }

    fn abort(&self, _: &TaskContext, _: StoredState<'_>) -> Result<Option<Call>, StateError> {
        Ok(None)
    }
}

fn read(state: StoredState<'_>) -> Result<Option<State>, StateError> {
    if state.bytes.is_empty() {
        return Ok(None);
    }
    if state.version != STATE_VERSION {
        return Err(StateError::Version(state.version));
    }
    serde_json::from_slice(state.bytes)
        .map(Some)
        .map_err(|error| StateError::Corrupt(error.to_string()))
}

/// The one input of the task.
fn duration(context: &TaskContext) -> Result<Duration, String> {
    let none = TypedInterface::default();
    let interface = context.template.interface.as_ref().unwrap_or(&none);
    let inputs = interface
        .inputs
        .as_ref()
        .map_or(&[][..], |map| &map.variables);
    let outputs = interface
        .outputs
        .as_ref()
        .map_or(&[][..], |map| &map.variables);
    let ([input], []) = (inputs, outputs) else {
        return Err(format!(
            "expected one input, a duration, and no outputs, found {} inputs and {} outputs",
            inputs.len(),
            outputs.len()
        ));
    };
    let name = &input.key;
    let kind = input
        .value
        .as_ref()
        .and_then(|variable| variable.r#type.as_ref());
    let is_duration = kind.is_some_and(|kind| {
        kind.r#type == Some(literal_type::Type::Simple(SimpleType::Duration.into()))
    });
    if !is_duration {
        return Err(format!(
            "expected the type of input {name:?} to be a duration"
        ));
    }
    let inputs = context.inputs.as_ref();
    let inputs = inputs.map_err(|why| format!("expected a duration as input {name:?}: {why}"))?;
    let value = inputs.as_ref().and_then(|inputs| of_literals(inputs, name));
    let value =
        value.ok_or_else(|| format!("expected a duration as input {name:?}, found none"))?;
    let seconds = u64::try_from(value.seconds);
    let nanos = u32::try_from(value.nanos);
    match (seconds, nanos) {
        (Ok(seconds), Ok(nanos)) => Ok(Duration::new(seconds, nanos)),
        _ => Err(format!(
            "expected input {name:?} not to be negative, found {value:?}"
        )),
    }
}

fn of_literals(inputs: &LiteralMap, name: &str) -> Option<prost_types::Duration> {
    let literal::Value::Scalar(scalar) = inputs.literals.get(name)?.value.as_ref()? else {
        return None;
    };
    let scalar::Value::Primitive(primitive) = scalar.value.as_ref()? else {
        return None;
    };
    match primitive.value.as_ref()? {
        primitive::Value::Duration(duration) => Some(*duration),
        primitive::Value::Integer(_)
        | primitive::Value::FloatValue(_)
        | primitive::Value::StringValue(_)
        | primitive::Value::Boolean(_)
        | primitive::Value::Datetime(_) => None,
    }
}

#[cfg(test)]
mod tests;
