//! MutatingWebhookConfigurations and ValidatingWebhookConfigurations: the defaults of their fields,
//! and which objects are refused. Pure.

use std::collections::BTreeSet;

use http::Uri;
use longshore_k8s::{
    names,
    selector::{Fault, faults},
};
use serde_json::{Value, json};

use crate::server::{error::Cause, meta, names::NameRule};

const MUTATING: &str = "MutatingWebhookConfiguration";

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: &[&str] = &["*", "Cluster", "Namespaced"];
const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];

/// Completes a configuration.
pub(crate) fn set_defaults(kind: &str, configuration: &mut Value) {
    for webhook in items(configuration, "webhooks") {
        let mut defaults = vec![
            ("failurePolicy", json!("Fail")),
            ("matchPolicy", json!("Equivalent")),
            ("namespaceSelector", json!({})),
            ("objectSelector", json!({})),
            ("timeoutSeconds", json!(10)),
        ];
        if kind == MUTATING {
            defaults.push(("reinvocationPolicy", json!("Never")));
        }
        let members = meta::members(webhook);
        for (key, value) in defaults {
            members.entry(key).or_insert(value);
        }
        if let Some(Value::Object(service)) = webhook.pointer_mut("/clientConfig/service") {
            service.entry("port").or_insert(json!(443));
        }
        for rule in items(webhook, "rules") {
            meta::members(rule).entry("scope").or_insert(json!("*"));
        }
    }
}

fn items<'a>(object: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    let list = object.get_mut(key).and_then(Value::as_array_mut);
    list.into_iter().flatten()
}

fn list<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    let list = object.get(key).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// What is wrong with a configuration.
pub(crate) fn violations(kind: &str, configuration: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut names = BTreeSet::new();
    for (index, webhook) in list(configuration, "webhooks").iter().enumerate() {
        let field = format!("webhooks[{index}]");
        webhook_violations(kind, &field, webhook, &mut causes);
        let name = meta::text(webhook, "/name");
        if !name.is_empty() && !names.insert(name) {
            causes.push(Cause::duplicate(&format!("{field}.name"), name));
        }
    }
    causes
}

fn webhook_violations(kind: &str, field: &str, webhook: &Value, causes: &mut Vec<Cause>) {
    let below = |name: &str| format!("{field}.{name}");
    causes.extend(name_violations(
        &below("name"),
        meta::text(webhook, "/name"),
    ));
    for (index, rule) in list(webhook, "rules").iter().enumerate() {
        causes.extend(rule_violations(&below(&format!("rules[{index}]")), rule));
    }
    let words: &[(&str, &[&str])] = &[
        ("failurePolicy", &["Fail", "Ignore"]),
        ("matchPolicy", &["Equivalent", "Exact"]),
        ("sideEffects", SIDE_EFFECTS),
        ("reinvocationPolicy", &["IfNeeded", "Never"]),
    ];
    for (name, known) in words {
        let found = meta::text(webhook, &format!("/{name}"));
        if *name == "sideEffects" && found.is_empty() {
            let why = format!("must specify one of {}", known.join(", "));
            causes.push(Cause::required(&below(name), &why));
        } else if !found.is_empty() && !known.contains(&found) {
            causes.push(Cause::unsupported(&below(name), found, known));
        }
    }
    if let Some(seconds) = webhook.get("timeoutSeconds").and_then(Value::as_i64)
        && !(1..=30).contains(&seconds)
    {
        let why = "the timeout value must be between 1 and 30 seconds";
        causes.push(Cause::invalid(
            &below("timeoutSeconds"),
            &seconds.into(),
            why,
        ));
    }
    for name in ["namespaceSelector", "objectSelector"] {
        causes.extend(selector_violations(&below(name), &webhook[name]));
    }
    causes.extend(client_violations(
        &below("clientConfig"),
        &webhook["clientConfig"],
    ));
    if !list(webhook, "matchConditions").is_empty() {
        let why = format!(
            "this server does not evaluate CEL: narrow the rules, the namespaceSelector or the objectSelector of {kind} \
             instead"
        );
        causes.push(Cause::forbidden(&below("matchConditions"), &why));
    }
    let versions = list(webhook, "admissionReviewVersions");
    causes.extend(version_violations(
        &below("admissionReviewVersions"),
        versions,
    ));
}

fn name_violations(field: &str, name: &str) -> Vec<Cause> {
    if name.is_empty() {
        return vec![Cause::required(field, "")];
    }
    let complaints = NameRule::Subdomain.violations(name);
    if !complaints.is_empty() {
        return vec![Cause::invalid(field, &name.into(), &complaints.join(","))];
    }
    if name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        return vec![Cause::invalid(field, &name.into(), why)];
    }
    Vec::new()
}

fn version_violations(field: &str, versions: &[Value]) -> Vec<Cause> {
    const KNOWN: &str = "v1, v1beta1";
    if versions.is_empty() {
        let why = format!("must specify one of {KNOWN}");
        return vec![Cause::required(field, &why)];
    }
    let mut causes = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        if versions[..index].contains(version) {
            let field = format!("{field}[{index}]");
            causes.push(Cause::invalid(&field, version, "duplicate version"));
        }
    }
    let has = |version: &str| versions.iter().any(|it| it == version);
    if !has("v1") {
        let found = Value::from(versions.to_vec());
        let why = match has("v1beta1") {
            true => "this server speaks v1 only: the webhook must take it".to_owned(),
            false => format!("must include at least one of {KNOWN}"),
        };
        causes.push(Cause::invalid(field, &found, &why));
    }
    causes
}

fn rule_violations(field: &str, rule: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (name, others) in [
        ("operations", "operations"),
        ("apiGroups", "API groups"),
        ("apiVersions", "API versions"),
    ] {
        let field = format!("{field}.{name}");
        let entries = list(rule, name);
        if entries.is_empty() {
            causes.push(Cause::required(&field, ""));
        }
        if entries.len() > 1 && entries.iter().any(|it| it == "*") {
            let why = format!("if '*' is present, must not specify other {others}");
            causes.push(Cause::invalid(&field, &entries.into(), &why));
        }
        for (index, entry) in entries.iter().enumerate() {
            let field = format!("{field}[{index}]");
            let text = entry.as_str().unwrap_or("");
            match name {
                "operations" if !OPERATIONS.contains(&text) => {
                    causes.push(Cause::unsupported(&field, text, OPERATIONS));
                }
                "apiVersions" if text.is_empty() => causes.push(Cause::required(&field, "")),
                _ => {}
            }
        }
    }
    causes.extend(resource_violations(
        &format!("{field}.resources"),
        list(rule, "resources"),
    ));
    let scope = meta::text(rule, "/scope");
    if !scope.is_empty() && !SCOPES.contains(&scope) {
        causes.push(Cause::unsupported(&format!("{field}.scope"), scope, SCOPES));
    }
    causes
}

fn resource_violations(field: &str, entries: &[Value]) -> Vec<Cause> {
    if entries.is_empty() {
        return vec![Cause::required(field, "")];
    }
    let mut causes = Vec::new();
    let has = |entry: &str| entries.iter().any(|it| it == entry);
    for (index, entry) in entries.iter().enumerate() {
        let (field, text) = (format!("{field}[{index}]"), entry.as_str().unwrap_or(""));
        let (plural, subresource) = text.split_once('/').unwrap_or((text, ""));
        let refuse = |why: String| Cause::invalid(&field, entry, &why);
        if text.is_empty() {
            causes.push(Cause::required(&field, ""));
        } else if subresource == "*" && plural != "*" && has("*/*") {
            let why = "if '*/*' is present, must not specify other resources".to_owned();
            causes.push(refuse(why));
        } else if !subresource.is_empty() && subresource != "*" && has(&format!("{plural}/*")) {
            let why = format!("if '{plural}/*' is present, must not specify {text}");
            causes.push(refuse(why));
        } else if !subresource.is_empty() && plural != "*" && has(&format!("*/{subresource}")) {
            let why = format!("if '*/{subresource}' is present, must not specify {text}");
            causes.push(refuse(why));
        }
    }
    if entries.len() > 1 && has("*/*") {
        let why = "if '*/*' is present, must not specify other resources";
        causes.push(Cause::invalid(field, &entries.into(), why));
    }
    let n_whole = entries
        .iter()
        .filter(|it| it.as_str().is_some_and(|it| !it.contains('/')));
    if has("*") && n_whole.count() > 1 {
        let why = "if '*' is present, must not specify other resources without subresources";
        causes.push(Cause::invalid(field, &entries.into(), why));
    }
    causes
}

fn client_violations(field: &str, config: &Value) -> Vec<Cause> {
    let url = config.get("url").and_then(Value::as_str);
    match (url, config.get("service")) {
        (Some(url), None) => url_violations(&format!("{field}.url"), url),
        (None, Some(service)) => service_violations(&format!("{field}.service"), service),
        (None, None) | (Some(_), Some(_)) => {
            let why = "exactly one of url or service is required";
            vec![Cause::required(field, why)]
        }
    }
}

fn url_violations(field: &str, url: &str) -> Vec<Cause> {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut causes = Vec::new();
    let mut refuse = |value: &str, why: &str| {
        causes.push(Cause::invalid(field, &value.into(), why));
    };
    let (url, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (whole, query) = url.split_once('?').unwrap_or((url, ""));
    let (scheme, rest) = whole.split_once("://").unwrap_or(("", whole));
    let authority = match whole.contains("://") {
        true => rest.split('/').next().unwrap_or(""),
        false => "",
    };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if scheme != "https" {
        refuse(
            scheme,
            &format!("'https' is the only allowed URL scheme{FORM}"),
        );
    }
    if host.is_empty() {
        refuse(host, &format!("host must be specified{FORM}"));
    }
    if !user.is_empty() {
        refuse(user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        refuse(fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        refuse(query, "query parameters are not permitted in the URL");
    }
    if causes.is_empty() && whole.parse::<Uri>().is_err() {
        let why = format!("url must be a valid URL: {whole:?}{FORM}");
        causes.push(Cause::required(field, &why));
    }
    causes
}

fn service_violations(field: &str, service: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for name in ["name", "namespace"] {
        if meta::text(service, &format!("/{name}")).is_empty() {
            causes.push(Cause::required(&format!("{field}.{name}"), ""));
        }
    }
    if let Some(port) = service.get("port").and_then(Value::as_i64)
        && !(1..=65535).contains(&port)
    {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        causes.push(Cause::invalid(&format!("{field}.port"), &port.into(), why));
    }
    causes.extend(path_violations(
        &format!("{field}.path"),
        meta::text(service, "/path"),
    ));
    causes
}

/// A path is one of names, with a slash at its end or none.
fn path_violations(field: &str, path: &str) -> Vec<Cause> {
    if path.is_empty() || path == "/" {
        return Vec::new();
    }
    let refuse = |why: &str| Cause::invalid(field, &path.into(), why);
    let mut causes = Vec::new();
    if !path.starts_with('/') {
        causes.push(refuse("must start with a '/'"));
    }
    // As upstream, which takes the first character for the slash.
    let rest: String = path.chars().skip(1).collect();
    let segments = rest.strip_suffix('/').unwrap_or(&rest).split('/');
    for (index, segment) in segments.enumerate() {
        if segment.is_empty() {
            causes.push(refuse(&format!("segment[{index}] may not be empty")));
            continue;
        }
        let complaints = NameRule::Subdomain.violations(segment);
        causes.extend(
            complaints
                .iter()
                .map(|why| refuse(&format!("segment[{index}]: {why}"))),
        );
    }
    causes
}

/// What is wrong with a label selector at a field; nothing when there is none.
pub(crate) fn selector_violations(field: &str, selector: &Value) -> Vec<Cause> {
    let faults = faults(selector).into_iter();
    faults
        .flat_map(|fault| fault_causes(field, fault))
        .collect()
}

fn fault_causes(field: &str, fault: Fault) -> Vec<Cause> {
    let place = |at: usize, name: &str| format!("{field}.matchExpressions[{at}].{name}");
    let invalid = |field: String, value: String, violations: Vec<String>| {
        let value = Value::from(value);
        let causes = violations.iter();
        let causes = causes.map(|why| Cause::invalid(&field, &value, why));
        causes.collect()
    };
    match fault {
        // Objects of another shape are refused before this.
        Fault::Shape(_) => Vec::new(),
        Fault::Label { key, value } => {
            meta::label_violations(&format!("{field}.matchLabels"), &key, &value.into())
        }
        Fault::Key { at, key } => {
            let violations = names::key_violations(&key);
            invalid(place(at, "key"), key, violations)
        }
        Fault::Operator { at, operator } => {
            let why = "not a valid selector operator".to_owned();
            invalid(place(at, "operator"), operator, vec![why])
        }
        Fault::ValuesMissing { at, .. } => {
            let why = "must be specified when `operator` is 'In' or 'NotIn'";
            vec![Cause::required(&place(at, "values"), why)]
        }
        Fault::ValuesForbidden { at, .. } => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            vec![Cause::forbidden(&place(at, "values"), why)]
        }
        Fault::Value { at, n, value } => {
            let violations = names::label_value_violations(&value);
            invalid(place(at, &format!("values[{n}]")), value, violations)
        }
    }
}
