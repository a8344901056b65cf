//! What API servers ask before they write a PodTransitionRule: upstream's defaults, and what must not be said. Pure.

use std::collections::BTreeSet;

use longshore_api::podops::{PodTransitionRuleSpec, RuleWebhook, TransitionRule};
use longshore_outbound::shown;
use serde::Deserialize;
use serde_json::{Value, json};

/// Seconds between questions about a task, upstream's.
const POLL_INTERVAL: i64 = 5;
/// Seconds until nobody asks about a task any more, upstream's.
const POLL_TIMEOUT: i64 = 60;

/// What makes a rule one that cannot be followed, in upstream's words.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Faults(Vec<String>);

/// Somebody whom a rule asks, whose address and certificates are to be read: who is asked about pods, and who about tasks.
#[derive(Debug, PartialEq, Eq)]
pub struct Target {
    path: String,
    /// Its address.
    pub url: String,
    /// Whom to trust there.
    pub ca_bundle: String,
}

impl Target {
    /// Its address cannot be asked.
    pub fn is_not_reached(&self, why: &str) -> String {
        let url = shown(&self.url);
        format!("{}.url: Invalid value: {url:?}: {why}", self.path)
    }

    /// Nobody can be trusted there.
    pub fn is_not_trusted(&self, why: &str) -> String {
        let bundle = &self.ca_bundle;
        format!("{}.caBundle: Invalid value: {bundle:?}: {why}", self.path)
    }
}

impl Faults {
    /// One more.
    pub fn add(&mut self, fault: String) {
        self.0.push(fault);
    }

    /// As Kubernetes writes several errors; `None` where there are none.
    pub fn text(self) -> Option<String> {
        let mut seen = BTreeSet::new();
        let mut faults = self.0;
        faults.retain(|fault| seen.insert(fault.clone()));
        match faults.as_slice() {
            [] => None,
            [fault] => Some(fault.clone()),
            faults => Some(format!("[{}]", faults.join(", "))),
        }
    }
}

/// The rule with upstream's defaults; `None` where nothing is missing.
pub fn with_defaults(object: &Value) -> Option<Value> {
    let mut defaulted = object.clone();
    let rules = defaulted.pointer_mut("/spec/rules")?.as_array_mut()?;
    for rule in rules {
        let webhook = rule.get_mut("webhook").and_then(Value::as_object_mut);
        let Some(webhook) = webhook else { continue };
        let policy = webhook.entry("failurePolicy").or_insert(Value::Null);
        or(policy, json!("Ignore"));
        let poll = webhook.get_mut("clientConfig");
        let poll = poll.and_then(|config| config.get_mut("poll"));
        if let Some(poll) = poll.and_then(Value::as_object_mut) {
            let interval = poll.entry("intervalSeconds").or_insert(Value::Null);
            or(interval, json!(POLL_INTERVAL));
            let timeout = poll.entry("timeoutSeconds").or_insert(Value::Null);
            or(timeout, json!(POLL_TIMEOUT));
        }
    }
    Some(defaulted).filter(|defaulted| defaulted != object)
}

fn or(value: &mut Value, default: Value) {
    if value.is_null() {
        *value = default;
    }
}

/// What is wrong with a rule, and whom it asks.
///
/// *Errors*: it does not have the shape of one; or what upstream says before it looks any further.
pub fn validate(object: &Value) -> Result<(Faults, Vec<Target>), Refused> {
    let spec = PodTransitionRuleSpec::deserialize(&object["spec"]).map_err(Refused::Shape)?;
    if spec.selector.is_none() {
        return Err(Refused::NoSelector);
    }
    let (mut faults, mut targets) = (Faults::default(), Vec::new());
    for rule in &spec.rules {
        if rule.name.is_empty() {
            return Err(Refused::NoName);
        }
        let path = format!("spec.rule.{}", rule.name);
        if let Some(webhook) = &rule.webhook {
            let webhook = RuleWebhook::deserialize(webhook).map_err(Refused::Shape)?;
            let config = webhook.client_config;
            let path = format!("{path}.clientConfig");
            if let Some(poll) = config.poll {
                targets.push(Target {
                    path: format!("{path}.poll"),
                    url: poll.url,
                    ca_bundle: poll.ca_bundle,
                });
            }
            targets.push(Target {
                path,
                url: config.url,
                ca_bundle: config.ca_bundle,
            });
        }
        for why in incomplete(rule) {
            faults.add(format!("{path}: Invalid value: \"null\": {why}"));
        }
    }
    Ok((faults, targets))
}

fn incomplete(rule: &TransitionRule) -> Vec<&'static str> {
    let mut missing = Vec::new();
    let check = rule.label_check.as_ref();
    if check.is_some_and(|check| check.requires.is_none()) {
        missing.push("nil label check required");
    }
    let policy = rule.available_policy.as_ref();
    if policy.is_some_and(|policy| {
        policy.min_available_value.is_none() && policy.max_unavailable_value.is_none()
    }) {
        missing.push("minAvailableValue and maxUnavailableValue must have at least one configured");
    }
    missing
}

/// Why a rule is refused at once, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It does not have the shape of its schema.
    #[error("PodTransitionRule does not have the shape of its schema: {0}")]
    Shape(serde_json::Error),
    /// It does not say which pods it is about.
    #[error("podtransitionrule selector cannot be nil")]
    NoSelector,
    /// One of its rules has no name.
    #[error("podtransitionrule rule name is required")]
    NoName,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(rules: Value) -> Value {
        json!({"spec": {"selector": {}, "rules": rules}})
    }

    #[test]
    fn what_is_missing_has_upstreams_default() {
        let cases = [
            (json!({"url": "x"}), json!({"url": "x"})),
            (
                json!({"poll": {"url": "y"}}),
                json!({"poll": {"url": "y", "intervalSeconds": 5, "timeoutSeconds": 60}}),
            ),
            (
                json!({"poll": {"intervalSeconds": 1, "timeoutSeconds": null}}),
                json!({"poll": {"intervalSeconds": 1, "timeoutSeconds": 60}}),
            ),
        ];
        for (config, expected) in cases {
            let rule = json!([{"name": "a", "webhook": {"clientConfig": config}, "new": 1}]);
            let defaulted = with_defaults(&object(rule)).unwrap();
            let rule = &defaulted["spec"]["rules"][0];
            assert_eq!(rule["webhook"]["clientConfig"], expected);
            assert_eq!(rule["webhook"]["failurePolicy"], "Ignore");
            assert_eq!(rule["new"], 1);
            assert_eq!(with_defaults(&defaulted), None);
        }
        assert_eq!(with_defaults(&object(json!([{"name": "a"}]))), None);
        assert_eq!(with_defaults(&json!({"spec": {}})), None);
    }

    #[test]
    fn what_cannot_be_followed_is_refused_in_upstreams_words() {
        let none = "minAvailableValue and maxUnavailableValue must have at least one configured";
        let requires = "spec.rule.a: Invalid value: \"null\": nil label check required";
        let policy = format!("spec.rule.b: Invalid value: \"null\": {none}");
        let cases = [
            (json!([{"name": "a", "labelCheck": {"requires": {}}}]), None),
            (
                json!([{"name": "a", "labelCheck": {}}]),
                Some(requires.to_owned()),
            ),
            (
                json!([{"name": "a", "labelCheck": {}}, {"name": "b", "availablePolicy": {}}]),
                Some(format!("[{requires}, {policy}]")),
            ),
            (
                json!([{"name": "b", "availablePolicy": {}}, {"name": "b", "availablePolicy": {}}]),
                Some(policy.clone()),
            ),
            (
                json!([{"name": "b", "availablePolicy": {"minAvailableValue": 1}}]),
                None,
            ),
            (
                json!([{"labelCheck": {}}]),
                Some("podtransitionrule rule name is required".to_owned()),
            ),
        ];
        for (rules, expected) in cases {
            let why = match validate(&object(rules.clone())) {
                Ok((faults, _)) => faults.text(),
                Err(refused) => Some(refused.to_string()),
            };
            assert_eq!(why, expected, "{rules}");
        }
        let refused = validate(&json!({"spec": {"rules": []}})).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "podtransitionrule selector cannot be nil"
        );
        let shapeless = validate(&object(json!([{"name": 1}])));
        assert!(matches!(shapeless, Err(Refused::Shape(_))), "{shapeless:?}");
    }

    #[test]
    fn whom_a_rule_asks_is_looked_at_by_its_place() {
        let config = json!({"url": "http://x", "caBundle": "y"});
        let rules = json!([{"name": "a", "webhook": {"clientConfig": config}}]);
        let (faults, targets) = validate(&object(rules)).unwrap();
        assert_eq!(faults.text(), None);
        assert_eq!(
            targets[0].is_not_reached("down"),
            "spec.rule.a.clientConfig.url: Invalid value: \"http://x\": down"
        );
        let hidden = Target {
            url: "ftp://ann:CANARY@x/?CANARY".to_owned(),
            path: "p".to_owned(),
            ca_bundle: String::new(),
        };
        assert_eq!(
            hidden.is_not_reached("no"),
            "p.url: Invalid value: \"ftp://x/?…\": no"
        );
        assert_eq!(
            targets[0].is_not_trusted("no"),
            "spec.rule.a.clientConfig.caBundle: Invalid value: \"y\": no"
        );
    }
}
