//! The index says what a look at all pods and rules says.

use longshore_api::podops::{CONTROLLED, LABEL_CONTROL, detail_annotation};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// What becomes of a pod or a rule of this number; `None`: it is gone.
#[derive(Clone, Debug)]
enum Change {
    Pod(u8, Option<Value>),
    Rule(u8, Option<Value>),
}

/// Everything, as it came.
#[derive(Debug, Default)]
struct World {
    selections: Selections,
    pods: BTreeMap<String, Arc<Parsed<Pod>>>,
    rules: BTreeMap<String, Arc<Parsed<Rule>>>,
}

fn name(n: u8) -> String {
    format!("n{n}")
}

fn key(n: u8) -> RuleKey {
    RuleKey {
        namespace: "default".to_owned(),
        name: name(n),
    }
}

impl World {
    fn change(&mut self, change: &Change) {
        match change {
            Change::Pod(n, object) => {
                let object = object.clone().map(|mut pod| {
                    pod["metadata"]["name"] = json!(name(*n));
                    Arc::new(serde_json::from_value::<Parsed<Pod>>(pod).unwrap())
                });
                self.selections
                    .follow("default", &name(*n), object.as_ref());
                match object {
                    Some(object) => self.pods.insert(name(*n), object),
                    None => self.pods.remove(&name(*n)),
                };
            }
            Change::Rule(n, object) => {
                let said = self.said_by(*n);
                let object = object.clone().map(|mut rule| {
                    rule["metadata"]["name"] = json!(name(*n));
                    Arc::new(serde_json::from_value::<Parsed<Rule>>(rule).unwrap())
                });
                self.selections
                    .follow("default", &name(*n), object.as_ref());
                match object {
                    Some(object) => self.rules.insert(name(*n), object),
                    None => self.rules.remove(&name(*n)),
                };
                let news = self.selections.take_news(&key(*n));
                let news: BTreeSet<&str> =
                    news.iter().map(|pod| pod.target.name.as_str()).collect();
                for (pod, says) in self.said_by(*n) {
                    let is_known = said.get(&pod) == Some(&says) || news.contains(pod.as_str());
                    assert!(is_known, "{pod} is not woken for {says:?}: {change:?}");
                }
            }
        }
    }

    /// What a rule says of each pod.
    fn said_by(&self, n: u8) -> BTreeMap<String, Option<RuleSays>> {
        let rule = self.rules.get(&name(n)).and_then(|rule| rule.value());
        let says = |pod: &Arc<Pod>| {
            let says = rule.and_then(|rule| rule.says_of(pod));
            (pod.target.name.clone(), says)
        };
        self.pods().map(says).collect()
    }

    fn rules(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.rules.values().filter_map(|rule| rule.value())
    }

    fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.values().filter_map(|pod| pod.value())
    }

    fn check(&self) {
        for pod in self.pods() {
            let says: Vec<RuleSays> = self.rules().filter_map(|rule| rule.says_of(pod)).collect();
            assert_eq!(self.selections.say(pod), says, "of {pod:?}");
            let about = self
                .rules()
                .filter(|rule| rule.selects(pod) || rule.status.targets.contains(&pod.target.name));
            let about = about.map(|rule| rule.target.name.as_str());
            // Also rules that do not exist: what they have left is removed.
            let about: BTreeSet<&str> = about.chain(shown(pod)).collect();
            let found = self.selections.rules_about(pod);
            let found: Vec<&str> = found.iter().map(|key| key.name.as_str()).collect();
            assert_eq!(
                found,
                about.into_iter().collect::<Vec<_>>(),
                "about {pod:?}"
            );
        }
        let workload = Workload {
            uid: "w0".to_owned(),
            replicas: 1,
            labels: Labels::new(),
        };
        for n in 0..4 {
            let key = key(n);
            let rule = self.rules.get(&key.name).and_then(|rule| rule.value());
            let detail = detail_annotation(&key.name);
            let looked_at = self.pods().filter(|pod| {
                rule.is_some_and(|rule| rule.selects(pod))
                    || pod.annotations.contains_key(&detail)
                    || pod.owner.as_deref() == Some("w0")
            });
            let looked_at: Vec<&Arc<Pod>> = looked_at.collect();
            let found = self
                .selections
                .pods_of(&key, std::slice::from_ref(&workload));
            assert_eq!(found.iter().collect::<Vec<_>>(), looked_at, "for {rule:?}");
        }
    }
}

fn pods() -> impl Strategy<Value = Value> {
    let shard = prop::option::of(0..3_u8);
    let shows = prop::option::of(0..4_u8);
    let owner = prop::option::of(0..2_u8);
    let about = (any::<bool>(), any::<bool>(), shard, shows, owner);
    about.prop_map(|(takes_part, is_web, shard, shows, owner)| {
        let app = if is_web { "web" } else { "db" };
        let mut pod = json!({"metadata": {"namespace": "default", "labels": {"app": app}}});
        let metadata = &mut pod["metadata"];
        if takes_part {
            metadata["labels"][LABEL_CONTROL] = json!(CONTROLLED);
        }
        if let Some(shard) = shard {
            metadata["labels"]["shard"] = json!(shard.to_string());
        }
        if let Some(rule) = shows {
            metadata["annotations"] = json!({detail_annotation(&name(rule)): "{}"});
        }
        if let Some(owner) = owner {
            metadata["ownerReferences"] = json!([{"uid": format!("w{owner}"), "controller": true}]);
        }
        pod
    })
}

fn rules() -> impl Strategy<Value = Value> {
    let shard = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "shard", "operator": operator, "values": values}]});
    let selector = prop::sample::select(vec![
        json!({"matchLabels": {"app": "web"}}),
        json!({"matchLabels": {"app": "web", "shard": "1"}}),
        json!({"matchLabels": {"app": "db", "shard": "1"}}),
        shard("In", json!(["0", "2"])),
        shard("In", json!([])),
        shard("NotIn", json!(["0"])),
        shard("Exists", Value::Null),
        shard("DoesNotExist", Value::Null),
        shard("Unheard", Value::Null),
        json!({}),
        Value::Null,
    ]);
    let targets = prop::collection::btree_set(0..6_u8, 0..4);
    let details = prop::collection::btree_map(0..6_u8, any::<bool>(), 0..4);
    let status = (targets, details, 1..3_i64);
    let is_readable = prop::bool::weighted(0.8);
    let about = (selector, status, prop::bool::weighted(0.2), is_readable);
    about.prop_map(|(selector, status, is_deleting, is_readable)| {
        let (targets, details, generation) = status;
        let details = details.into_iter();
        let details: Vec<Value> = details
            .map(|(pod, passed)| json!({"name": name(pod), "stage": "PreCheck", "passed": passed}))
            .collect();
        let targets: Vec<String> = targets.into_iter().map(name).collect();
        let mut rule = json!({
            "metadata": {"namespace": "default", "generation": 2},
            "spec": {"selector": selector},
            "status": {"targets": targets, "details": details, "observedGeneration": generation},
        });
        if is_deleting {
            rule["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        if !is_readable {
            rule["status"] = json!("none");
        }
        rule
    })
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let of_pod = (0..6_u8, prop::option::weighted(0.8, pods()));
    let of_rule = (0..4_u8, prop::option::weighted(0.8, rules()));
    let change = prop_oneof![
        of_pod.prop_map(|(n, pod)| Change::Pod(n, pod)),
        of_rule.prop_map(|(n, rule)| Change::Rule(n, rule)),
    ];
    prop::collection::vec(change, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_index_agrees_with_a_look_at_everything(changes in changes()) {
        let mut world = World::default();
        for change in &changes {
            world.change(change);
            world.check();
        }
        for n in 0..6 {
            world.change(&Change::Pod(n, None));
            world.change(&Change::Rule(n, None));
        }
        prop_assert!(world.selections.known().is_empty(), "{:?}", world.selections);
    }
}

#[test]
fn rules_that_share_a_pair_of_labels_are_found_by_another_one() {
    let mut world = World::default();
    for n in 0..100 {
        let selector = json!({"matchLabels": {"app": "web", "shard": n.to_string()}});
        let rule = json!({"metadata": {"namespace": "default"}, "spec": {"selector": selector}});
        world.change(&Change::Rule(n, Some(rule)));
    }
    let known = world.selections.known();
    let here = &known["default"];
    let by_app = here.by_key.get("app");
    let n_by_app: usize =
        by_app.map_or(0, |by_value| by_value.rules.values().map(Names::len).sum());
    assert!(n_by_app <= 1, "{n_by_app} rules are found by app");
    assert_eq!(here.rules.len(), 100);
}

#[test]
fn a_rule_is_about_the_pods_that_have_its_annotation_after_it_has_let_them_go() {
    let mut world = World::default();
    let rule = json!({
        "metadata": {"namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    });
    world.change(&Change::Rule(0, Some(rule)));
    for n in 0..20 {
        let pod = json!({"metadata": {
            "namespace": "default",
            "labels": {"app": "db", LABEL_CONTROL: CONTROLLED},
            "annotations": {detail_annotation(&name(0)): "{}"},
        }});
        world.change(&Change::Pod(n, Some(pod)));
    }
    world.check();
    for pod in world.pods() {
        assert_eq!(world.selections.rules_about(pod), [key(0)]);
    }
    assert_eq!(world.selections.pods_of(&key(0), &[]).len(), 20);
    world.change(&Change::Rule(0, None));
    for pod in world.pods() {
        assert_eq!(world.selections.rules_about(pod), [key(0)], "it is gone");
    }
}
