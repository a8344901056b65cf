//! The field `custom` of a template, which only its plugin reads.

use longshore_proto::{JsonError, flyteidl2::core::TaskTemplate, from_json};

use crate::{plugin::BuildError, proto_json::to_json};

/// The `custom` of a template as the message that its plugin expects.
pub(crate) fn read<M>(template: &TaskTemplate) -> Result<M, BuildError>
where
    M: prost::Message + prost::Name + Default,
{
    let name = M::full_name();
    let custom = template.custom.as_ref().ok_or_else(|| {
        BuildError::bad_specification(format!(
            "expected a {name} in the template's custom, found none"
        ))
    })?;
    from_json(&to_json(custom)).map_err(|error| {
        let why = match &error {
            JsonError::NoMessage { source, .. } | JsonError::NoJson { source, .. } => {
                source.to_string()
            }
            JsonError::Unknown(_) => error.to_string(),
        };
        BuildError::bad_specification(format!("expected a {name} in the template's custom: {why}"))
    })
}

/// That versions of a task type exist, and which.
pub(crate) fn unsupported_version(template: &TaskTemplate) -> BuildError {
    BuildError::bad_specification(format!(
        "expected version 0 or 1 of task type {:?}, found {}",
        template.r#type, template.task_type_version
    ))
}
