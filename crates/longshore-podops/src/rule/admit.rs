//! What API servers ask before they write a PodTransitionRule: upstream's defaults, and what must not be said. Pure.

use std::collections::BTreeSet;

use longshore_api::podops::{
    AvailablePolicy, PodTransitionRuleSpec, RulePoll, RuleWebhook, TransitionRule,
};
use longshore_k8s::{int_or_percent, selector};
use longshore_outbound::shown;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    kind::RuleKind,
    task::{LONGEST_INTERVAL, LONGEST_TIMEOUT},
};

/// Seconds between questions about a task, upstream's.
const POLL_INTERVAL: i64 = 5;
/// Seconds after which the controller asks about a task no more, upstream's.
const POLL_TIMEOUT: i64 = 60;

/// The longest name of a PodTransitionRule: API servers take no longer name of an annotation.
pub(super) const LONGEST_NAME: usize = 63;

/// What makes a rule one that cannot be followed, in upstream's words.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Faults(Vec<String>);

/// A server that a rule asks, about pods or about tasks, whose address and certificates are to be read.
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

    /// The certificate authorities cannot be read.
    pub fn is_not_trusted(&self, why: &str) -> String {
        let bundle = &self.ca_bundle;
        format!("{}.caBundle: Invalid value: {bundle:?}: {why}", self.path)
    }
}

impl Faults {
    /// Adds a fault.
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

/// What is wrong with the name of a new rule.
pub fn name_fault(object: &Value) -> Option<String> {
    let name = object["metadata"]["name"].as_str()?;
    let found = name.len();
    (found > LONGEST_NAME).then(|| {
        format!(
            "metadata.name: Invalid value: {name:?}: expected at most {LONGEST_NAME} characters, found {found}: an \
             annotation of this name shows on pods what the rule says"
        )
    })
}

/// What is wrong with a rule, and which servers it asks.
///
/// # Errors
/// The object does not have the shape of a PodTransitionRule, or upstream refuses it before the other checks.
pub fn validate(object: &Value) -> Result<(Faults, Vec<Target>), Refused> {
    let spec = PodTransitionRuleSpec::deserialize(&object["spec"]).map_err(Refused::Shape)?;
    let Some(selector) = &spec.selector else {
        return Err(Refused::NoSelector);
    };
    let (mut faults, mut targets) = (Faults::default(), Vec::new());
    faults
        .0
        .extend(selector::faults_at("spec.selector", selector));
    let mut names = BTreeSet::new();
    for rule in &spec.rules {
        if rule.name.is_empty() {
            return Err(Refused::NoName);
        }
        let path = format!("spec.rule.{}", rule.name);
        if !names.insert(&rule.name) {
            let name = &rule.name;
            faults.add(format!(
                "{path}.name: Duplicate value: {name:?}: expected a name of its own for each rule"
            ));
        }
        if let Some(webhook) = &rule.webhook {
            let webhook = RuleWebhook::deserialize(webhook).map_err(Refused::Shape)?;
            let config = webhook.client_config;
            let path = format!("{path}.clientConfig");
            if let Some(poll) = config.poll {
                faults.0.extend(impossible(&format!("{path}.poll"), &poll));
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
        faults.0.extend(never_met(&path, rule));
    }
    Ok((faults, targets))
}

/// Times of a poll that end before the controller can ask, or never.
fn impossible(path: &str, poll: &RulePoll) -> Vec<String> {
    let times = [
        (
            "intervalSeconds",
            poll.interval_seconds,
            0..=LONGEST_INTERVAL,
        ),
        ("timeoutSeconds", poll.timeout_seconds, 1..=LONGEST_TIMEOUT),
    ];
    let wrong = times.into_iter().filter_map(|(field, seconds, possible)| {
        let seconds = seconds.filter(|seconds| !possible.contains(seconds))?;
        let (least, most) = possible.into_inner();
        Some(format!(
            "{path}.{field}: Invalid value: {seconds}: expected {least} to {most} seconds"
        ))
    });
    wrong.collect()
}

/// What no pod can ever meet, or what cannot be read.
fn never_met(path: &str, rule: &TransitionRule) -> Vec<String> {
    let mut faults = Vec::new();
    if let Some(AvailablePolicy {
        max_unavailable_value,
        min_available_value,
    }) = &rule.available_policy
    {
        let amounts = [
            ("maxUnavailableValue", max_unavailable_value),
            ("minAvailableValue", min_available_value),
        ];
        for (field, amount) in amounts {
            if let Some(found) = amount
                .as_ref()
                .filter(|amount| !int_or_percent::is_admitted(amount))
            {
                faults.push(format!(
                    "{path}.availablePolicy.{field}: Invalid value: {found}: expected a number of pods or a \
                     percentage as \"50%\", not below 0"
                ));
            }
        }
    }
    let check = rule.label_check.as_ref();
    if let Some(requires) = check.and_then(|check| check.requires.as_ref()) {
        let path = format!("{path}.labelCheck.requires");
        faults.extend(selector::faults_at(&path, requires));
    }
    let filter = rule.filter.as_ref();
    if let Some(selector) = filter.and_then(|filter| filter.label_selector.as_ref()) {
        let path = format!("{path}.filter.labelSelector");
        faults.extend(selector::faults_at(&path, selector));
    }
    faults
}

fn incomplete(rule: &TransitionRule) -> Vec<String> {
    let mut missing = Vec::new();
    let kinds: Vec<&str> = RuleKind::all_of(rule).map(RuleKind::as_str).collect();
    if kinds.len() != 1 {
        let expected = RuleKind::ALL.map(RuleKind::as_str).join(", ");
        let found = match kinds.as_slice() {
            [] => "none of them".to_owned(),
            kinds => kinds.join(", "),
        };
        missing.push(format!("expected exactly one of {expected}, found {found}"));
    }
    let check = rule.label_check.as_ref();
    if check.is_some_and(|check| check.requires.is_none()) {
        missing.push("nil label check required".to_owned());
    }
    let policy = rule.available_policy.as_ref();
    if policy.is_some_and(|policy| {
        policy.min_available_value.is_none() && policy.max_unavailable_value.is_none()
    }) {
        let why = "minAvailableValue and maxUnavailableValue must have at least one configured";
        missing.push(why.to_owned());
    }
    missing
}

/// Why a rule is refused at once, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The PodTransitionRule does not have the shape of its schema.
    #[error("PodTransitionRule does not have the shape of its schema: {0}")]
    Shape(serde_json::Error),
    /// The PodTransitionRule has no selector.
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
                json!([{"name": "b", "availablePolicy": {}}]),
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

    /// What is said of these rules.
    fn said_of(rules: Value) -> String {
        let (faults, _) = validate(&object(rules)).unwrap();
        faults.text().unwrap_or_default()
    }

    #[test]
    fn two_rules_of_one_name_are_refused() {
        let check = json!({"requires": {}});
        let twice = json!([
            {"name": "a", "labelCheck": check},
            {"name": "b", "labelCheck": check},
            {"name": "a", "stage": "PostCheck", "labelCheck": check},
        ]);
        assert_eq!(
            said_of(twice),
            "spec.rule.a.name: Duplicate value: \"a\": expected a name of its own for each rule"
        );
        let different =
            json!([{"name": "a", "labelCheck": check}, {"name": "b", "labelCheck": check}]);
        assert_eq!(said_of(different), "");
    }

    #[test]
    fn a_rule_has_exactly_one_kind() {
        let (policy, check) = (json!({"maxUnavailableValue": 1}), json!({"requires": {}}));
        let expected = |found: &str| {
            format!(
                "spec.rule.a: Invalid value: \"null\": expected exactly one of availablePolicy, labelCheck, webhook, \
                 found {found}"
            )
        };
        for (rule, expected) in [
            (json!({"name": "a", "labelCheck": check}), String::new()),
            (json!({"name": "a"}), expected("none of them")),
            (
                json!({"name": "a", "availablePolicy": policy, "labelCheck": check}),
                expected("availablePolicy, labelCheck"),
            ),
            (
                json!({"name": "a", "labelCheck": check, "webhook": {"clientConfig": {}}}),
                expected("labelCheck, webhook"),
            ),
        ] {
            assert_eq!(said_of(json!([rule])), expected, "{rule}");
        }
    }

    #[test]
    fn a_rule_that_can_never_be_met_is_refused_by_its_field() {
        let policy = |field: &str, value: Value| {
            let rule = json!([{"name": "a", "availablePolicy": {field: value}}]);
            said_of(rule)
        };
        for field in ["maxUnavailableValue", "minAvailableValue"] {
            for value in [json!("50"), json!("abc"), json!(-1), json!("-10%")] {
                assert_eq!(
                    policy(field, value.clone()),
                    format!(
                        "spec.rule.a.availablePolicy.{field}: Invalid value: {value}: expected a number of pods or a \
                         percentage as \"50%\", not below 0"
                    )
                );
            }
            for value in [json!(0), json!("50%")] {
                assert_eq!(policy(field, value), "");
            }
        }
        let unknown = json!({"matchExpressions": [{"key": "a", "operator": "Is"}]});
        let operator = "matchExpressions[0].operator: Invalid value: \"Is\": expected one of In, NotIn, Exists, DoesNotExist";
        assert_eq!(
            said_of(json!([{"name": "a", "labelCheck": {"requires": unknown}}])),
            format!("spec.rule.a.labelCheck.requires.{operator}")
        );
        let filtered = json!([
            {"name": "a", "labelCheck": {"requires": {}}, "filter": {"labelSelector": unknown}},
        ]);
        assert_eq!(
            said_of(filtered),
            format!("spec.rule.a.filter.labelSelector.{operator}")
        );
        let (faults, _) = validate(&json!({"spec": {"selector": unknown}})).unwrap();
        assert_eq!(
            faults.text().unwrap_or_default(),
            format!("spec.selector.{operator}")
        );
    }

    #[test]
    fn a_poll_takes_a_possible_time() {
        let poll = |interval: i64, timeout: i64| {
            let poll = json!({"intervalSeconds": interval, "timeoutSeconds": timeout});
            said_of(json!([{"name": "a", "webhook": {"clientConfig": {"poll": poll}}}]))
        };
        for (interval, timeout) in [(0, 1), (5, 60), (86_400, 2_592_000)] {
            assert_eq!(poll(interval, timeout), "");
        }
        let place = "spec.rule.a.clientConfig.poll";
        assert_eq!(
            poll(-1, -2),
            format!(
                "[{place}.intervalSeconds: Invalid value: -1: expected 0 to 86400 seconds, {place}.timeoutSeconds: \
                 Invalid value: -2: expected 1 to 2592000 seconds]"
            )
        );
        for timeout in [0, 2_592_001, 300_000_000_000, 4_000_000_000_000, i64::MAX] {
            assert_eq!(
                poll(5, timeout),
                format!(
                    "{place}.timeoutSeconds: Invalid value: {timeout}: expected 1 to 2592000 seconds"
                )
            );
        }
        assert_eq!(
            poll(i64::MAX, 60),
            format!(
                "{place}.intervalSeconds: Invalid value: {}: expected 0 to 86400 seconds",
                i64::MAX
            )
        );
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
