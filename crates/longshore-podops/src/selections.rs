//! Which PodTransitionRules are about which pods.
//!
//! A namespace may have thousands of both. An event of one pod must not cost a look at each rule, and an event of one
//! rule not a look at each pod. Hence this index: it follows the caches of pods and rules under their locks, so that a
//! round never sees an object that is not in the index.
//!
//! A rule is found by one pair of labels that each pod which it selects has. Of several pairs, the one with the fewest
//! other rules is chosen: where all rules say `app=web` and each of them another `shard`, they are found by `shard`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use longshore_api::podops::{ANNOTATION_DETAIL_PREFIX, Detail};
use longshore_k8s::Selector;
use longshore_kit::{Parsed, cache::Follow};

use crate::{
    eviction::may_wait_until,
    lifecycle::RuleSays,
    model::{Labels, Pod},
    replicas::Workload,
    rule::{Rule, RuleKey},
};

/// The name of a pod or a rule, the key or the value of a label, or the uid of a workload. Names are shared.
type Name = Arc<str>;
type Names = BTreeSet<Name>;
type ByName = BTreeMap<Name, Names>;
/// The key and the value of a label.
type Pair = (String, String);

/// The index of all namespaces. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selections(Arc<Mutex<BTreeMap<String, Namespace>>>);

/// The index of one namespace. Objects that cannot be read are not in it.
#[derive(Debug, Default)]
struct Namespace {
    pods: BTreeMap<Name, PodEntry>,
    rules: BTreeMap<Name, RuleEntry>,
    /// By the keys of the labels by which rules are found.
    by_key: BTreeMap<Name, ByValue>,
    /// Rules that may select a pod whatever labels it has.
    by_any: Names,
    /// By pod: the rules whose status has it among their targets.
    targeted: ByName,
    /// By rule: the pods with an annotation that shows what the rule said.
    showing: ByName,
    /// By the uid of the workload that controls them: pods.
    owned: ByName,
    /// The pods that wait for their budgets or have reservations that have to be kept, and until when.
    waiting: BTreeMap<Name, Timestamp>,
    /// By rule: pods of which it says something else since it changed or was deleted, and that have not been requeued yet.
    news: ByName,
}

#[derive(Debug)]
struct PodEntry {
    pod: Arc<Pod>,
    /// The rules that select it.
    rules: Names,
}

#[derive(Debug)]
struct RuleEntry {
    rule: Arc<Rule>,
    found_by: FoundBy,
    /// The pods that it selects.
    pods: Names,
}

/// How a rule is found from the labels of a pod.
#[derive(Debug)]
enum FoundBy {
    /// A pod that it selects has one of these. None: it selects no pod.
    Pairs(Vec<Pair>),
    /// The rule may select any pod.
    Any,
}

/// Rules that are found by one key of labels, by its value.
#[derive(Debug, Default)]
struct ByValue {
    rules: ByName,
    pods: ByName,
}

impl Follow<Parsed<Pod>> for Selections {
    fn follow(&self, namespace: &str, name: &str, object: Option<&Arc<Parsed<Pod>>>) {
        let pod = object.and_then(|object| object.value()).cloned();
        self.change(namespace, |here| here.put_pod(name, pod));
    }
}

impl Follow<Parsed<Rule>> for Selections {
    fn follow(&self, namespace: &str, name: &str, object: Option<&Arc<Parsed<Rule>>>) {
        let rule = object.and_then(|object| object.value()).cloned();
        self.change(namespace, |here| here.put_rule(name, rule));
    }
}

impl Selections {
    /// What the rules that select a pod say of it, by the names of the rules.
    pub(crate) fn say(&self, pod: &Pod) -> Vec<RuleSays> {
        let rules = self.look(&pod.target.namespace, |here| {
            let selecting = here.selecting(&pod.labels).into_iter();
            selecting
                .map(|(_, entry)| Arc::clone(&entry.rule))
                .collect()
        });
        let rules: Vec<Arc<Rule>> = rules.unwrap_or_default();
        rules.iter().filter_map(|rule| rule.says_of(pod)).collect()
    }

    /// The rules that select a pod, those whose status says that they did, and those that it has an annotation of, whether
    /// these rules still exist or not.
    pub(crate) fn rules_about(&self, pod: &Pod) -> Vec<RuleKey> {
        let namespace = &pod.target.namespace;
        let names = self.look(namespace, |here| {
            let targeted = here.targeted.get(pod.target.name.as_str());
            let mut names: Names = targeted.cloned().unwrap_or_default();
            if pod.is_controlled() {
                let selecting = here.selecting(&pod.labels).into_iter();
                names.extend(selecting.map(|(name, _)| Arc::clone(name)));
            }
            names
        });
        let mut names = names.unwrap_or_default();
        names.extend(shown(pod).map(Name::from));
        keys(namespace, names)
    }

    /// Whether a pod of the namespace waits for its budgets, or has reservations that have to be kept. Only then do changes
    /// of pods lead to a round of its evictions.
    pub(crate) fn is_any_waiting(&self, namespace: &str, now: Timestamp) -> bool {
        let is_any = self.look(namespace, |here| here.waiting.values().any(|it| now < *it));
        is_any.unwrap_or(false)
    }

    /// The rules whose selectors match these labels of a workload's pods.
    pub(crate) fn rules_matching(&self, namespace: &str, labels: &Labels) -> Vec<RuleKey> {
        let names = self.look(namespace, |here| {
            let selecting = here.selecting(labels).into_iter();
            selecting.map(|(name, _)| Arc::clone(name)).collect()
        });
        let names: Names = names.unwrap_or_default();
        keys(namespace, names)
    }

    /// The pods of which a rule says something else than the last time that this was asked, because it has changed or
    /// was deleted: also those that it does not select any more.
    pub(crate) fn take_news(&self, key: &RuleKey) -> Vec<Arc<Pod>> {
        self.change(&key.namespace, |here| {
            let names = here.news.remove(key.name.as_str()).unwrap_or_default();
            here.pods_named(&names)
        })
    }

    /// The pods that a round about a rule looks at, by name: those that it selects, those that show what it said, and
    /// those of these workloads.
    pub(crate) fn pods_of(&self, key: &RuleKey, workloads: &[Workload]) -> Vec<Arc<Pod>> {
        let pods = self.look(&key.namespace, |here| {
            let name = key.name.as_str();
            let selected = here.rules.get(name).map(|entry| &entry.pods);
            let showing = here.showing.get(name);
            let owned = workloads.iter();
            let owned = owned.filter_map(|workload| here.owned.get(workload.uid.as_str()));
            let names = selected.into_iter().chain(showing).chain(owned).flatten();
            let names: BTreeSet<&Name> = names.collect();
            here.pods_named(names)
        });
        pods.unwrap_or_default()
    }

    fn change<T>(&self, namespace: &str, change: impl FnOnce(&mut Namespace) -> T) -> T {
        let mut known = self.known();
        let here = known.entry(namespace.to_owned()).or_default();
        let changed = change(here);
        if here.is_empty() {
            known.remove(namespace);
        }
        changed
    }

    fn look<T>(&self, namespace: &str, look: impl FnOnce(&Namespace) -> T) -> Option<T> {
        self.known().get(namespace).map(look)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Namespace>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Namespace {
    fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.rules.is_empty() && self.news.is_empty()
    }

    fn put_pod(&mut self, name: &str, pod: Option<Arc<Pod>>) {
        let before = self.pods.remove_entry(name);
        if let Some((name, before)) = &before {
            self.forget_pod(name, before);
        }
        let Some(pod) = pod else {
            return;
        };
        let name = before.map_or_else(|| Name::from(name), |(name, _)| name);
        let mut rules = Names::new();
        if pod.is_controlled() {
            let selecting = self.selecting(&pod.labels).into_iter();
            rules.extend(selecting.map(|(rule, _)| Arc::clone(rule)));
        }
        for rule in &rules {
            if let Some(entry) = self.rules.get_mut(rule) {
                entry.pods.insert(Arc::clone(&name));
            }
        }
        for (key, value) in &pod.labels {
            if let Some(by_value) = self.by_key.get_mut(key.as_str()) {
                add(&mut by_value.pods, value, &name);
            }
        }
        for rule in shown(&pod) {
            add(&mut self.showing, rule, &name);
        }
        if let Some(owner) = &pod.owner {
            add(&mut self.owned, owner, &name);
        }
        if let Some(until) = may_wait_until(&pod) {
            self.waiting.insert(Arc::clone(&name), until);
        }
        self.pods.insert(name, PodEntry { pod, rules });
    }

    fn forget_pod(&mut self, name: &Name, before: &PodEntry) {
        self.waiting.remove(name);
        for rule in &before.rules {
            if let Some(entry) = self.rules.get_mut(rule) {
                entry.pods.remove(name);
            }
        }
        for (key, value) in &before.pod.labels {
            if let Some(by_value) = self.by_key.get_mut(key.as_str()) {
                remove(&mut by_value.pods, value, name);
            }
        }
        for rule in shown(&before.pod) {
            remove(&mut self.showing, rule, name);
        }
        if let Some(owner) = &before.pod.owner {
            remove(&mut self.owned, owner, name);
        }
    }

    fn put_rule(&mut self, name: &str, rule: Option<Arc<Rule>>) {
        let before = self.rules.remove_entry(name);
        let (name, before) = match before {
            Some((name, before)) => (name, Some(before)),
            None => (Name::from(name), None),
        };
        let targets = before.as_ref().map(|before| Arc::clone(&before.rule));
        self.see_targets(&name, targets.as_deref(), rule.as_deref());
        let entry = match (before, rule) {
            // Most changes are of the status.
            (Some(before), Some(rule)) if before.rule.selector() == rule.selector() => {
                self.note_news(&name, before.news(&rule));
                Some(RuleEntry { rule, ..before })
            }
            (before, rule) => {
                if let Some(before) = before {
                    self.forget_rule(&name, before);
                }
                rule.map(|rule| self.find_pods(&name, rule))
            }
        };
        if let Some(entry) = entry {
            self.rules.insert(name, entry);
        }
    }

    /// Takes in which targets the status of a rule has.
    fn see_targets(&mut self, name: &Name, before: Option<&Rule>, after: Option<&Rule>) {
        let targets = |rule: Option<&'_ Rule>| -> BTreeSet<String> {
            let targets = rule.map(|rule| rule.status.targets.iter().cloned());
            targets.into_iter().flatten().collect()
        };
        let is_same = |before: &Rule| {
            after.is_some_and(|after| before.status.targets == after.status.targets)
        };
        if before.is_some_and(is_same) {
            return;
        }
        let (before, after) = (targets(before), targets(after));
        for pod in before.difference(&after) {
            remove(&mut self.targeted, pod, name);
        }
        for pod in after.difference(&before) {
            add(&mut self.targeted, pod, name);
        }
    }

    fn forget_rule(&mut self, name: &Name, before: RuleEntry) {
        match &before.found_by {
            FoundBy::Any => {
                self.by_any.remove(name);
            }
            FoundBy::Pairs(pairs) => {
                for (key, value) in pairs {
                    let Some(by_value) = self.by_key.get_mut(key.as_str()) else {
                        continue;
                    };
                    remove(&mut by_value.rules, value, name);
                    if by_value.rules.is_empty() {
                        self.by_key.remove(key.as_str());
                    }
                }
            }
        }
        for pod in &before.pods {
            if let Some(entry) = self.pods.get_mut(pod) {
                entry.rules.remove(name);
            }
        }
        self.note_news(name, before.pods);
    }

    fn note_news(&mut self, name: &Name, pods: Names) {
        if !pods.is_empty() {
            let news = self.news.entry(Arc::clone(name)).or_default();
            news.extend(pods);
        }
    }

    /// Finds the pods of a rule that is new, or has a new selector.
    fn find_pods(&mut self, name: &Name, rule: Arc<Rule>) -> RuleEntry {
        let found_by = match rule.selector() {
            Some(selector) => self.choose(selector),
            None => FoundBy::Pairs(Vec::new()),
        };
        let mut candidates = Names::new();
        match &found_by {
            FoundBy::Any => {
                self.by_any.insert(Arc::clone(name));
                candidates.extend(self.pods.keys().cloned());
            }
            FoundBy::Pairs(pairs) => {
                for (key, value) in pairs {
                    let by_value = self.by_key.entry(Name::from(key.as_str()));
                    let by_value = by_value.or_insert_with(|| ByValue::of(&self.pods, key));
                    add(&mut by_value.rules, value, name);
                    let pods = by_value.pods.get(value.as_str());
                    candidates.extend(pods.into_iter().flatten().cloned());
                }
            }
        }
        let mut pods = Names::new();
        for pod in candidates {
            if let Some(entry) = self.pods.get_mut(&pod)
                && rule.selects(&entry.pod)
            {
                entry.rules.insert(Arc::clone(name));
                pods.insert(pod);
            }
        }
        self.note_news(name, pods.clone());
        RuleEntry {
            rule,
            found_by,
            pods,
        }
    }

    /// The requirement of a selector by which the fewest rules are found already.
    fn choose(&self, selector: &Selector) -> FoundBy {
        let requirements = selector.requirements().iter();
        let requirements = requirements.filter_map(|requirement| {
            let values = requirement.needed_values()?.iter();
            let pair = |value: &String| (requirement.key().to_owned(), value.clone());
            Some(values.map(pair).collect())
        });
        let n_rules =
            |pairs: &Vec<Pair>| -> usize { pairs.iter().map(|it| self.n_rules(it)).sum() };
        let chosen = requirements.min_by_key(n_rules);
        chosen.map_or(FoundBy::Any, FoundBy::Pairs)
    }

    fn n_rules(&self, (key, value): &Pair) -> usize {
        let by_value = self.by_key.get(key.as_str());
        let rules = by_value.and_then(|by_value| by_value.rules.get(value.as_str()));
        rules.map_or(0, Names::len)
    }

    /// The rules whose selectors match these labels, by name.
    fn selecting<'a>(&'a self, labels: &Labels) -> Vec<(&'a Name, &'a RuleEntry)> {
        let mut candidates: BTreeSet<&Name> = self.by_any.iter().collect();
        for (key, value) in labels {
            let by_value = self.by_key.get(key.as_str());
            let rules = by_value.and_then(|by_value| by_value.rules.get(value.as_str()));
            candidates.extend(rules.into_iter().flatten());
        }
        let rules = candidates.into_iter();
        let rules = rules.filter_map(|name| Some((name, self.rules.get(name)?)));
        rules
            .filter(|(_, entry)| entry.rule.matches(labels))
            .collect()
    }

    fn pods_named<'a>(&self, names: impl IntoIterator<Item = &'a Name>) -> Vec<Arc<Pod>> {
        let entries = names.into_iter().filter_map(|name| self.pods.get(name));
        entries.map(|entry| Arc::clone(&entry.pod)).collect()
    }
}

impl RuleEntry {
    /// The pods of which this version of the rule, which selects the same, says something else.
    fn news(&self, after: &Rule) -> Names {
        let version = |rule: &Rule| {
            let generations = (rule.generation, rule.status.observed_generation);
            (rule.is_deleting, generations)
        };
        if version(&self.rule) != version(after) {
            return self.pods.clone();
        }
        let (said, says) = (details(&self.rule), details(after));
        let is_news = |pod: &&Name| {
            let pod: &str = pod;
            said.get(pod) != says.get(pod)
        };
        self.pods.iter().filter(is_news).cloned().collect()
    }
}

impl ByValue {
    /// The pods that have a label with this key, and no rule yet.
    fn of(pods: &BTreeMap<Name, PodEntry>, key: &str) -> Self {
        let mut by_value = Self::default();
        for (name, entry) in pods {
            if let Some(value) = entry.pod.labels.get(key) {
                add(&mut by_value.pods, value, name);
            }
        }
        by_value
    }
}

/// What the status of a rule says of each pod. Of several, the first counts.
fn details(rule: &Rule) -> BTreeMap<&str, &Detail> {
    let details = rule.status.details.iter().rev();
    details
        .map(|detail| (detail.name.as_str(), detail))
        .collect()
}

fn add(names: &mut ByName, key: &str, name: &Name) {
    if let Some(names) = names.get_mut(key) {
        names.insert(Arc::clone(name));
    } else {
        names.insert(Name::from(key), Names::from([Arc::clone(name)]));
    }
}

fn remove(names: &mut ByName, key: &str, name: &Name) {
    let Some(of_key) = names.get_mut(key) else {
        return;
    };
    of_key.remove(name);
    if of_key.is_empty() {
        names.remove(key);
    }
}

/// The rules of which a pod shows what they said.
fn shown(pod: &Pod) -> impl Iterator<Item = &str> {
    let keys = pod.annotations.keys();
    keys.filter_map(|key| {
        key.strip_prefix(ANNOTATION_DETAIL_PREFIX)?
            .strip_prefix('/')
    })
}

fn keys(namespace: &str, names: Names) -> Vec<RuleKey> {
    let key = |name: Name| RuleKey {
        namespace: namespace.to_owned(),
        name: name.as_ref().to_owned(),
    };
    names.into_iter().map(key).collect()
}

#[cfg(test)]
mod tests;
