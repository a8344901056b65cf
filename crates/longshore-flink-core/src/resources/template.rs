//! Pod templates: how two become one, what the operator adds, and how a pod is made of one (spec 12.3).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{MAIN_CONTAINER, ResourceError};

/// How arrays of two templates are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayMerge {
    /// The first elements of both belong together, the second ones, and so on.
    ByIndex,
    /// Elements of one name belong together, where all elements of both arrays have names.
    ByName,
}

/// One template out of two: where both have a value, that of `over` counts. Objects are merged recursively, arrays as
/// asked for; what `over` has more is appended. Nulls do not count.
#[must_use]
pub fn merge(base: Option<&Value>, over: Option<&Value>, arrays: ArrayMerge) -> Option<Value> {
    let base = base.map(without_nulls).filter(|it| !it.is_null());
    let over = over.map(without_nulls).filter(|it| !it.is_null());
    match (base, over) {
        (Some(mut base), Some(over)) => {
            merge_into(&mut base, over, arrays);
            Some(base)
        }
        (base, over) => base.or(over),
    }
}

fn merge_into(base: &mut Value, over: Value, arrays: ArrayMerge) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (name, field) in over {
                match base.get_mut(&name) {
                    Some(present) => merge_into(present, field, arrays),
                    None => {
                        base.insert(name, field);
                    }
                }
            }
        }
        (Value::Array(base), Value::Array(over)) => merge_arrays(base, over, arrays),
        (base, over) => *base = over,
    }
}

fn merge_arrays(base: &mut Vec<Value>, over: Vec<Value>, arrays: ArrayMerge) {
    let by_name = arrays == ArrayMerge::ByName
        && base
            .iter()
            .chain(&over)
            .all(|element| name(element).is_some());
    for (at, element) in over.into_iter().enumerate() {
        let partner = if by_name {
            base.iter_mut().find(|it| name(it) == name(&element))
        } else {
            base.get_mut(at)
        };
        match partner {
            Some(present) => merge_into(present, element, arrays),
            None => base.push(element),
        }
    }
}

fn name(element: &Value) -> Option<&str> {
    element.get("name")?.as_str()
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .filter(|(_, field)| !field.is_null())
                .map(|(name, field)| (name.clone(), without_nulls(field)))
                .collect(),
        ),
        Value::Array(elements) => Value::Array(elements.iter().map(without_nulls).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Resources of the main container other than cores and memory, which go through Flink's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherResources {
    /// What is requested, by the names of resources.
    pub requests: BTreeMap<String, String>,
    /// What is the limit, by the names of resources.
    pub limits: BTreeMap<String, String>,
}

/// Adds resources to the main container of a template, which is made if it is not there.
///
/// # Errors
/// [`ResourceError::Template`] where the template has a field of another type than Kubernetes' own.
pub fn with_resources(
    template: Option<Value>,
    other: &OtherResources,
) -> Result<Option<Value>, ResourceError> {
    if other.requests.is_empty() && other.limits.is_empty() {
        return Ok(template);
    }
    let mut pod = TemplateParts::of(template)?;
    let main = pod.main()?;
    let mut resources = take_object(main, "resources", "the resources of the main container")?;
    let texts = |map: &BTreeMap<String, String>| {
        let entries = map.iter();
        entries
            .map(|(name, amount)| (name.clone(), json!(amount)))
            .collect::<Vec<_>>()
    };
    merge_texts(&mut resources, "requests", texts(&other.requests))?;
    merge_texts(&mut resources, "limits", texts(&other.limits))?;
    main.insert("resources".to_owned(), Value::Object(resources));
    Ok(Some(pod.finish()))
}

/// Adds a startup probe to the main container of a template, unless it has one: the JobManager counts as started when
/// its REST API answers, however long that takes.
///
/// # Errors
/// [`ResourceError::Template`] where the template has a field of another type than Kubernetes' own.
pub fn with_startup_probe(template: Option<Value>) -> Result<Value, ResourceError> {
    let mut pod = TemplateParts::of(template)?;
    pod.main()?.entry("startupProbe").or_insert_with(|| {
        json!({
            "failureThreshold": i32::MAX,
            "periodSeconds": 1,
            "httpGet": {"path": "/config", "port": "rest"},
        })
    });
    Ok(pod.finish())
}

/// A template that is being changed.
struct TemplateParts {
    template: Map<String, Value>,
    spec: Map<String, Value>,
    containers: Vec<Value>,
}

impl TemplateParts {
    fn of(template: Option<Value>) -> Result<Self, ResourceError> {
        let mut template = object(template.unwrap_or_default(), "the whole")?;
        let mut spec = take_object(&mut template, "spec", "spec")?;
        let containers = take_array(&mut spec, "containers", "spec.containers")?;
        Ok(Self {
            template,
            spec,
            containers,
        })
    }

    /// The main container, at the end if it was not there.
    fn main(&mut self) -> Result<&mut Map<String, Value>, ResourceError> {
        let at = self
            .containers
            .iter()
            .position(|it| name(it) == Some(MAIN_CONTAINER));
        let at = at.unwrap_or_else(|| {
            self.containers.push(json!({"name": MAIN_CONTAINER}));
            self.containers.len() - 1
        });
        let container = self.containers.get_mut(at).and_then(Value::as_object_mut);
        container.ok_or_else(|| wrong_type("spec.containers", "a list of objects", &Value::Null))
    }

    fn finish(mut self) -> Value {
        self.spec
            .insert("containers".to_owned(), Value::Array(self.containers));
        self.template
            .insert("spec".to_owned(), Value::Object(self.spec));
        Value::Object(self.template)
    }
}

/// A pod that decorators work on: its main container is apart.
pub(super) struct PodParts {
    rest: Map<String, Value>,
    pub(super) metadata: Map<String, Value>,
    pub(super) spec: Map<String, Value>,
    pub(super) main: Map<String, Value>,
    others: Vec<Value>,
}

impl PodParts {
    pub(super) fn of(template: Option<&Value>) -> Result<Self, ResourceError> {
        let mut parts = TemplateParts::of(template.cloned())?;
        let is_main = |it: &Value| name(it) == Some(MAIN_CONTAINER);
        let main = parts.containers.iter().position(is_main);
        let main = main.map_or(Value::Null, |at| parts.containers.remove(at));
        Ok(Self {
            metadata: take_object(&mut parts.template, "metadata", "metadata")?,
            rest: parts.template,
            spec: parts.spec,
            main: object(main, "the main container")?,
            others: parts.containers,
        })
    }

    /// A text of the pod's spec.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        let text = self.spec.get(key)?.as_str()?;
        (!text.trim().is_empty()).then(|| text.to_owned())
    }

    /// Takes an object out of the main container.
    pub(super) fn take_main_object(
        &mut self,
        key: &'static str,
    ) -> Result<Map<String, Value>, ResourceError> {
        take_object(&mut self.main, key, key)
    }

    /// Adds a volume and mounts it into the main container.
    pub(super) fn mount(&mut self, volume: Value, path: &str) -> Result<(), ResourceError> {
        let mount = json!({"name": volume["name"], "mountPath": path});
        append(&mut self.spec, "volumes", [volume])?;
        append(&mut self.main, "volumeMounts", [mount])
    }

    /// The template, with the main container behind all others.
    pub(super) fn finish(mut self) -> Result<Value, ResourceError> {
        self.others.push(Value::Object(self.main));
        self.spec
            .insert("containers".to_owned(), Value::Array(self.others));
        self.rest
            .insert("metadata".to_owned(), Value::Object(self.metadata));
        self.rest
            .insert("spec".to_owned(), Value::Object(self.spec));
        Ok(Value::Object(self.rest))
    }
}

/// Appends elements to a list of an object.
pub(super) fn append(
    object: &mut Map<String, Value>,
    key: &'static str,
    elements: impl IntoIterator<Item = Value>,
) -> Result<(), ResourceError> {
    let mut array = take_array(object, key, key)?;
    array.extend(elements);
    if !array.is_empty() {
        object.insert(key.to_owned(), Value::Array(array));
    }
    Ok(())
}

/// Sets entries of a map within an object.
pub(super) fn merge_texts(
    object: &mut Map<String, Value>,
    key: &'static str,
    entries: impl IntoIterator<Item = (String, Value)>,
) -> Result<(), ResourceError> {
    let mut map = take_object(object, key, key)?;
    map.extend(entries);
    if !map.is_empty() {
        object.insert(key.to_owned(), Value::Object(map));
    }
    Ok(())
}

fn take_object(
    from: &mut Map<String, Value>,
    key: &str,
    field: &'static str,
) -> Result<Map<String, Value>, ResourceError> {
    object(from.remove(key).unwrap_or_default(), field)
}

/// An object; nothing is an empty one.
fn object(value: Value, field: &'static str) -> Result<Map<String, Value>, ResourceError> {
    match value {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(wrong_type(field, "an object", &value))
        }
    }
}

fn take_array(
    from: &mut Map<String, Value>,
    key: &str,
    field: &'static str,
) -> Result<Vec<Value>, ResourceError> {
    match from.remove(key).unwrap_or_default() {
        Value::Array(elements) => Ok(elements),
        Value::Null => Ok(Vec::new()),
        found @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            Err(wrong_type(field, "a list", &found))
        }
    }
}

fn wrong_type(field: &'static str, expected: &'static str, found: &Value) -> ResourceError {
    ResourceError::Template {
        field,
        expected,
        found: found.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(base: Value, over: Value, arrays: ArrayMerge) -> Value {
        merge(Some(&base), Some(&over), arrays).unwrap()
    }

    #[test]
    fn the_right_template_wins_and_arrays_are_merged_by_index() {
        let base = json!({
            "metadata": {"labels": {"a": "1", "b": "1"}, "name": "x"},
            "spec": {
                "priority": 1,
                "containers": [
                    {"name": "one", "args": ["a", "b"], "env": [{"name": "A", "value": "1"}]},
                    {"name": "two", "image": "i"},
                ],
            },
            "unknown": {"field": true},
        });
        let over = json!({
            "metadata": {"labels": {"b": "2"}, "name": null},
            "spec": {
                "priority": 2,
                "containers": [
                    {"name": "three", "args": ["c"], "env": [{"name": "B"}, {"name": "C"}]},
                ],
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
        });
        let expected = json!({
            "metadata": {"labels": {"a": "1", "b": "2"}, "name": "x"},
            "spec": {
                "priority": 2,
                "containers": [
                    {"name": "three", "args": ["c", "b"], "env": [{"name": "B", "value": "1"}, {"name": "C"}]},
                    {"name": "two", "image": "i"},
                ],
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
            "unknown": {"field": true},
        });
        assert_eq!(merged(base, over, ArrayMerge::ByIndex), expected);
    }

    #[test]
    fn arrays_are_merged_by_name_where_all_elements_have_one() {
        let base = json!({"named": [{"name": "a", "x": 1}, {"name": "b"}], "others": [{"y": 1}, {"y": 2}]});
        let over =
            json!({"named": [{"name": "c"}, {"name": "a", "z": 2}], "others": [{"name": "q"}]});
        assert_eq!(
            merged(base.clone(), over.clone(), ArrayMerge::ByName),
            json!({
                "named": [{"name": "a", "x": 1, "z": 2}, {"name": "b"}, {"name": "c"}],
                "others": [{"y": 1, "name": "q"}, {"y": 2}],
            })
        );
        assert_eq!(
            merged(base, over, ArrayMerge::ByIndex)["named"],
            json!([{"name": "c", "x": 1}, {"name": "a", "z": 2}])
        );
    }

    #[test]
    fn one_template_alone_is_taken_without_its_nulls() {
        let one = json!({"spec": {"a": null, "volumes": [{"name": "v", "secret": null}]}});
        let expected = json!({"spec": {"volumes": [{"name": "v"}]}});
        assert_eq!(
            merge(Some(&one), None, ArrayMerge::ByIndex),
            Some(expected.clone())
        );
        assert_eq!(
            merge(Some(&Value::Null), Some(&one), ArrayMerge::ByIndex),
            Some(expected)
        );
        assert_eq!(merge(None, Some(&Value::Null), ArrayMerge::ByIndex), None);
    }

    #[test]
    fn a_startup_probe_is_added_once() {
        let probe = json!({
            "failureThreshold": 2_147_483_647,
            "periodSeconds": 1,
            "httpGet": {"path": "/config", "port": "rest"},
        });
        let main = json!({"name": MAIN_CONTAINER, "startupProbe": probe});
        let alone = with_startup_probe(None).unwrap();
        assert_eq!(alone, json!({"spec": {"containers": [main]}}));
        assert_eq!(with_startup_probe(Some(alone.clone())).unwrap(), alone);

        let other = json!({"spec": {"containers": [{"name": "other"}]}});
        assert_eq!(
            with_startup_probe(Some(other)).unwrap(),
            json!({"spec": {"containers": [{"name": "other"}, main]}})
        );
        let own = json!({"spec": {"containers": [{"name": MAIN_CONTAINER, "startupProbe": {}}]}});
        assert_eq!(with_startup_probe(Some(own.clone())).unwrap(), own);
    }

    #[test]
    fn other_resources_go_to_the_main_container() {
        let other = OtherResources {
            requests: BTreeMap::from([("ephemeral-storage".to_owned(), "1Gi".to_owned())]),
            limits: BTreeMap::from([("nvidia.com/gpu".to_owned(), "1".to_owned())]),
        };
        let template = json!({
            "spec": {"containers": [
                {"name": MAIN_CONTAINER, "resources": {"requests": {"ephemeral-storage": "2Gi", "x": "1"}}},
            ]},
        });
        let resources = json!({
            "requests": {"ephemeral-storage": "1Gi", "x": "1"},
            "limits": {"nvidia.com/gpu": "1"},
        });
        assert_eq!(
            with_resources(Some(template), &other).unwrap(),
            Some(
                json!({"spec": {"containers": [{"name": MAIN_CONTAINER, "resources": resources}]}})
            )
        );
        assert_eq!(
            with_resources(None, &OtherResources::default()).unwrap(),
            None
        );
    }

    #[test]
    fn a_template_of_another_shape_is_refused() {
        for (template, message) in [
            (
                json!([1]),
                "expected the whole of the pod template to be an object, found [1]; correct the template",
            ),
            (
                json!({"spec": "x"}),
                "expected spec of the pod template to be an object, found \"x\"; correct the template",
            ),
            (
                json!({"spec": {"containers": {}}}),
                "expected spec.containers of the pod template to be a list, found {}; correct the template",
            ),
        ] {
            let error = with_startup_probe(Some(template)).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
