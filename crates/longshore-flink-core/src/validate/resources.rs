//! Rules about CPU and memory: 14 and 15.

use std::collections::BTreeMap;

use longshore_k8s::Quantity;

use super::{Invalid, Validity, is_blank};
use crate::{
    conf::{InvalidValue, MemorySize},
    spec::{QuantityText, ResourceRequirements, ResourceSpec},
};

const CPU: &str = "cpu";
const MEMORY: &str = "memory";

/// Rule 14: memory and ephemeral storage of upstream's own form.
pub(super) fn resource(component: &str, resource: Option<&ResourceSpec>) -> Validity {
    let Some(resource) = resource else {
        return Ok(());
    };
    let mut errors = String::new();
    if let Some(Err(error)) = resource.memory.as_deref().map(memory) {
        errors.push_str(&format!("{component} resource memory parse error: {error}"));
    }
    if let Some(Err(error)) = resource.ephemeral_storage.as_deref().map(quantity) {
        // Upstream puts nothing between the two.
        let what = "resource ephemeral storage parse error";
        errors.push_str(&format!("{component} {what}: {error}"));
    }
    if is_blank(Some(errors.as_str())) {
        Ok(())
    } else {
        Err(Invalid(errors))
    }
}

/// Rule 15: requests and limits of Kubernetes' form. All errors count.
pub(super) fn requirements(
    component: &str,
    requirements: Option<&ResourceRequirements>,
) -> Validity {
    let Some(requirements) = requirements else {
        return Ok(());
    };
    let sections = [
        ("requests", &requirements.requests),
        ("limits", &requirements.limits),
    ];
    let mut errors = Vec::new();
    for (section, quantities) in sections {
        for (resource, text) in quantities.iter().flatten() {
            let what = format!("{component} resource requirements {section} {resource}");
            errors.extend(amount(&what, resource, text.as_str()));
        }
    }
    for resource in [CPU, MEMORY] {
        let find = |section: &Option<_>| find(section.as_ref(), resource).cloned();
        let (request, limit) = (find(&requirements.requests), find(&requirements.limits));
        if let (Some(request), Some(limit)) = (request, limit)
            && is_above(resource, request.as_str(), limit.as_str())
        {
            errors.push(format!(
                "{component} resource requirements {resource} request ({}) must not exceed its limit ({})",
                request.as_str(),
                limit.as_str()
            ));
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Invalid(errors.join("; ")))
    }
}

fn find<'a>(
    section: Option<&'a BTreeMap<String, QuantityText>>,
    resource: &str,
) -> Option<&'a QuantityText> {
    section?.get(resource)
}

/// What is wrong with an amount.
fn amount(what: &str, resource: &str, text: &str) -> Option<String> {
    if resource == MEMORY {
        return match memory(text) {
            Err(error) => Some(format!("{what} parse error: {error}")),
            Ok(MemorySize::ZERO) => Some(format!("{what} must be positive: {text}")),
            Ok(_) => None,
        };
    }
    match quantity(text) {
        Err(error) => Some(format!("{what} parse error: {error}")),
        Ok(amount) if resource == CPU && !amount.is_positive() => {
            Some(format!("{what} must be positive: {text}"))
        }
        Ok(amount) if !amount.is_positive() && !amount.is_zero() => {
            Some(format!("{what} must not be negative: {text}"))
        }
        Ok(_) => None,
    }
}

/// Whether a request is above its limit. Amounts that cannot be read are reported already.
fn is_above(resource: &str, request: &str, limit: &str) -> bool {
    if resource == MEMORY {
        matches!((memory(request), memory(limit)), (Ok(request), Ok(limit)) if request > limit)
    } else {
        matches!((quantity(request), quantity(limit)), (Ok(request), Ok(limit)) if request > limit)
    }
}

fn quantity(text: &str) -> Result<Quantity, InvalidValue> {
    Quantity::parse(text)
        .ok_or_else(|| InvalidValue::new("a quantity such as `500m`, `2` or `1Gi`", text))
}

/// Memory of a spec (upstream: `ResourceConfigUtils.parseResourceMemoryString`): a size of Flink, where `2048m` is 2,048
/// MiB, else a quantity of Kubernetes in any letter case, with or without a `B` at its end.
fn memory(text: &str) -> Result<MemorySize, InvalidValue> {
    MemorySize::parse(text).or_else(|error| {
        let mut upper: String = text.split_whitespace().collect::<String>().to_uppercase();
        if upper.ends_with('B') {
            upper.pop();
        }
        if upper.ends_with('I') {
            upper.pop();
            upper.push('i');
        }
        let amount = Quantity::parse(&upper).ok_or_else(|| error.clone())?;
        // No amount of Flink is below zero.
        let bytes = u64::try_from(amount.rounded_up()).map_err(|_| error)?;
        Ok(MemorySize::of_bytes(bytes))
    })
}
