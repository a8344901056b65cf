//! What is written about employers, by table; and the laws, over generated ones.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use longshore_api::podops::{ANNOTATION_AVAILABLE_CONDITIONS, FINALIZER_CLEAN};
use longshore_core::{Action, Never, Next, Plan, Resource, Seen, UnknownCause};
use longshore_test::laws::{Decider, Read, all_reads, check_decider};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{holder, lifecycle_finalizer};

const RESYNC: Duration = Duration::from_secs(300);

fn employer(finalizers: &[&str], is_wanted: bool) -> Employer {
    let labels = if is_wanted {
        json!({"kusionstack.io/control": "true"})
    } else {
        json!({})
    };
    let object = json!({"metadata": {
        "namespace": "default", "name": "web", "uid": "e", "resourceVersion": "3",
        "labels": labels, "finalizers": finalizers,
    }});
    Employer::of(SERVICE, &object)
}

/// What is said of a pod, in letters: `s` selected, `r` ready, `f` has the finalizer, `e` expects it, `x` its annotation
/// makes no sense, `d` goes, `n` has no address yet.
fn employee(name: &str, said: &str, is_wanted: bool) -> Employee {
    let is = |letter: char| said.contains(letter);
    let finalizer = lifecycle_finalizer("web");
    let mut pod = json!({"metadata": {
        "namespace": "default", "name": name, "uid": format!("u-{name}"), "resourceVersion": "7",
        "finalizers": if is('f') { json!([finalizer]) } else { json!([]) },
    }});
    let expected = json!({"expectedFinalizers": {holder("Service", "default", "web"): finalizer}});
    if is('e') {
        pod["metadata"]["annotations"] =
            json!({ANNOTATION_AVAILABLE_CONDITIONS: expected.to_string()});
    }
    if is('x') {
        pod["metadata"]["annotations"] = json!({ANNOTATION_AVAILABLE_CONDITIONS: "x"});
    }
    if is('d') {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let is_ready = is('r') && !is('d');
    Employee {
        target: longshore_kit::cache::reference(Resource::POD, &pod),
        is_selected: is('s'),
        id: (!is('n')).then(|| name.to_owned()),
        entry: (is('s') && is_ready && is_wanted).then(|| json!("up")),
        readiness: if is_ready {
            Readiness::Ready
        } else {
            Readiness::NotReady
        },
        pod,
    }
}

fn entries(ids: &[&str]) -> Entries {
    let pair = |id: &&str| ((*id).to_owned(), json!("up"));
    ids.iter().map(pair).collect()
}

fn observed(employer: Employer, employees: &[(&str, &str)], current: &[&str]) -> Observed {
    let is_wanted = employer.is_wanted;
    let employees = employees.iter();
    let employees = employees.map(|(name, said)| employee(name, said, is_wanted));
    Observed {
        employer: Seen::Present(employer),
        employees: Seen::Present(employees.collect()),
        expected: Entries::new(),
        current_employer: Seen::Present(Entries::new()),
        current_employees: Seen::Present(entries(current)),
        failure: None,
        resync: RESYNC,
    }
}

/// A plan in words.
fn told(plan: &ConsistPlan) -> Vec<String> {
    let tell = |action: &Action<Never, Change>| match action {
        Action::EnsureFinalizer { .. } => "hold".to_owned(),
        Action::RemoveFinalizer { .. } => "let go".to_owned(),
        Action::Announce(said) => format!("say {}", said.reason),
        Action::Call(Change { part, changes }) => {
            let ids = |entries: &Entries| entries.keys().cloned().collect::<Vec<_>>().join(",");
            let [create, update, delete] =
                [&changes.create, &changes.update, &changes.delete].map(ids);
            format!("{part:?} +{create} ~{update} -{delete}")
        }
        Action::Patch(patch) => {
            let metadata = &patch.patch["metadata"];
            let finalizers = metadata["finalizers"].as_array();
            let finalizers = finalizers.map(|it| if it.is_empty() { " free" } else { " protect" });
            let conditions = &metadata["annotations"][ANNOTATION_AVAILABLE_CONDITIONS];
            let expects = conditions
                .as_str()
                .map(|text| match text.contains("default") {
                    true => " expect",
                    false => " forget",
                });
            let [finalizers, expects] = [finalizers, expects].map(Option::unwrap_or_default);
            format!("{}{expects}{finalizers}", patch.target.name)
        }
        Action::Persist(never) => match *never {},
        Action::Create(_) | Action::Delete(_) | Action::Ask(_) | Action::Used(_) => {
            panic!("{action:?}")
        }
    };
    plan.actions.iter().map(tell).collect()
}

fn check(employer: Employer, employees: &[(&str, &str)], current: &[&str], expected: &[&str]) {
    let plan = decide(&observed(employer, employees, current));
    assert_eq!(told(&plan), expected, "{employees:?} {current:?}");
}

#[test]
fn an_employer_is_held_before_anything_else_is_done() {
    let first = ["hold", "say EnsureEmployerCleanFinalizerSucceed"];
    check(employer(&["other"], true), &[("a", "sr")], &[], &first);
    check(employer(&[], false), &[("a", "sr")], &["a"], &[]);
}

#[test]
fn the_earlier_form_of_its_finalizer_becomes_todays() {
    let before = "resource-consist.kusionstack.io/clean-web";
    let plan = decide(&observed(employer(&["x", before], true), &[], &[]));
    let Action::Patch(patch) = &plan.actions[0] else {
        panic!("{plan:?}");
    };
    let expected = json!({"metadata": {
        "resourceVersion": "3", "finalizers": ["x", FINALIZER_CLEAN],
    }});
    assert_eq!(patch.patch, expected);
}

#[test]
fn a_pod_is_protected_after_it_is_in_the_table_and_freed_after_it_has_left_it() {
    let held = || employer(&[FINALIZER_CLEAN], true);
    // It comes: first it is expected, then in the table, then protected.
    check(held(), &[("a", "s")], &[], &["a expect"]);
    check(
        held(),
        &[("a", "sr")],
        &[],
        &["a expect", "Employees +a ~ -"],
    );
    let comes = ["Employees +a ~ -", "a protect"];
    check(held(), &[("a", "sre")], &[], &comes);
    check(held(), &[("a", "sre")], &["a"], &["a protect"]);
    check(held(), &[("a", "sref")], &["a"], &[]);
    // It is about to be operated on, or goes.
    for said in ["sef", "srefd"] {
        check(
            held(),
            &[("a", said)],
            &["a"],
            &["Employees + ~ -a", "a free"],
        );
        check(held(), &[("a", said)], &[], &["a free"]);
    }
    check(held(), &[("a", "se")], &["a"], &["Employees + ~ -a"]);
    // The pod belongs to another employer now: its expectation is removed at once, its traffic first.
    let left = ["a forget", "Employees + ~ -a"];
    check(held(), &[("a", "refn")], &["a"], &left);
    check(
        held(),
        &[("a", "rfn")],
        &["a"],
        &["Employees + ~ -a", "a free"],
    );
    check(held(), &[("a", "rfn")], &[], &["a free"]);
    // Pods that need no change of the table are written before the table is changed.
    let two = ["b protect", "Employees +a ~ -", "a protect"];
    check(held(), &[("a", "sre"), ("b", "sre")], &["b"], &two);
}

#[test]
fn what_differs_is_updated() {
    let mut seen = observed(employer(&[FINALIZER_CLEAN], true), &[("a", "sref")], &[]);
    seen.current_employees = Seen::Present([("a".to_owned(), json!("down"))].into());
    seen.expected = entries(&["listener"]);
    let plan = decide(&seen);
    assert_eq!(told(&plan), ["Employer +listener ~ -", "Employees + ~a -"]);
    assert_eq!(plan.next, Next::After(Duration::from_secs(1)));
}

#[test]
fn an_employer_that_goes_takes_everything_back_and_then_its_finalizer() {
    let goes = || employer(&[FINALIZER_CLEAN], false);
    let first = ["a forget", "b forget", "Employees + ~ -a,b"];
    check(goes(), &[("a", "sref"), ("b", "se")], &["a", "b"], &first);
    let second = ["Employees + ~ -a", "a free"];
    check(goes(), &[("a", "srf")], &["a"], &second);
    check(goes(), &[("a", "srf")], &[], &["a free"]);
    let last = ["say CleanEmployerCleanFinalizerSucceed", "let go"];
    check(goes(), &[("a", "sr")], &[], &last);
    let mut seen = observed(goes(), &[], &[]);
    seen.current_employer = Seen::Present(entries(&["listener"]));
    assert_eq!(told(&decide(&seen)), ["Employer + ~ -listener"]);
}

#[test]
fn what_fails_is_said() {
    let held = || employer(&[FINALIZER_CLEAN], true);
    let complaint = ["say EnsureExpectedFinalizerFailed"];
    check(held(), &[("a", "sx")], &[], &complaint);
    let mut seen = observed(held(), &[("a", "sre")], &[]);
    seen.failure = Some(Failure {
        part: Part::Employees,
        why: "full".to_owned(),
    });
    let again = ["say SyncEmployeesFailed", "Employees +a ~ -", "a protect"];
    assert_eq!(told(&decide(&seen)), again);
    seen.current_employees = Seen::unknown(UnknownCause::Unreachable, "down");
    assert_eq!(told(&decide(&seen)), ["say GetCurrentEmployeesFailed"]);
    seen.current_employer = Seen::unknown(UnknownCause::Unreachable, "down");
    assert_eq!(told(&decide(&seen)), ["say GetCurrentEmployerFailed"]);
}

#[test]
fn at_rest_a_table_is_looked_at_now_and_then() {
    let plan = decide(&observed(
        employer(&[FINALIZER_CLEAN], true),
        &[("a", "sref")],
        &["a"],
    ));
    assert_eq!(plan, Plan::after(RESYNC));
}

#[derive(Debug)]
struct OfEmployers;

longshore_test::reads! {
    Observed {
        employer, employees, expected, current_employer, current_employees, failure, resync,
    }
}

impl Decider for OfEmployers {
    type Observed = Observed;
    type Status = Never;
    type Effect = Change;
    type Question = Never;

    fn decide(&self, observed: &Observed) -> ConsistPlan {
        decide(observed)
    }

    /// Two things to say, both parts of the table, and a batch of pods before and after it.
    fn max_actions(&self) -> usize {
        2 + 2 + 2 * 16
    }

    fn reads(&self, observed: &Observed) -> Result<Vec<Read<Observed>>, String> {
        all_reads(observed)
    }

    fn is_allowed_blind(&self, action: &Action<Never, Change>) -> bool {
        matches!(action, Action::Announce(_))
    }
}

fn worlds() -> impl Strategy<Value = Observed> {
    let said = prop::collection::vec(
        prop::sample::select(vec!["s", "r", "f", "e", "x", "d", "n"]),
        0..6,
    );
    let said = said.prop_map(|letters| letters.concat());
    let pods = prop::collection::btree_map("[a-z]", said, 0..24);
    let current = prop::collection::btree_map("[a-z]", prop::bool::ANY, 0..12);
    let finalizer = prop::sample::select(vec![
        "",
        FINALIZER_CLEAN,
        FINALIZER_CLEAN,
        "resource-consist.kusionstack.io/clean-web",
    ]);
    let listeners = (any::<bool>(), any::<bool>());
    (pods, current, finalizer, any::<bool>(), listeners).prop_map(
        |(pods, current, finalizer, is_wanted, (expected, there))| {
            let pods: Vec<(&str, &str)> = pods
                .iter()
                .map(|(name, said)| (name.as_str(), said.as_str()))
                .collect();
            let mut seen = observed(employer(&[finalizer], is_wanted), &pods, &[]);
            let current = current.into_iter();
            let current = current.map(|(id, is_up)| (id, json!(if is_up { "up" } else { "down" })));
            seen.current_employees = Seen::Present(current.collect());
            let listener = |is: bool| {
                if is {
                    entries(&["listener"])
                } else {
                    Entries::new()
                }
            };
            seen.expected = listener(expected && is_wanted);
            seen.current_employer = Seen::Present(listener(there));
            seen
        },
    )
}

#[test]
fn decisions_about_employers_keep_the_laws() {
    let broken = check_decider(&OfEmployers, &worlds(), 256);
    assert!(broken.is_empty(), "{broken:#?}");
}

/// What is wrong with a plan as far as traffic is concerned, at any point at which it may end.
fn broken(seen: &Observed) -> Result<(), String> {
    let plan = decide(seen);
    let mut table = seen.current_employees.present().cloned().unwrap();
    let employees = seen.employees.present().unwrap();
    let ours = lifecycle_finalizer("web");
    for (at, action) in plan.actions.iter().enumerate() {
        match action {
            Action::Call(Change {
                part: Part::Employees,
                changes,
            }) => changes.apply(&mut table),
            Action::Patch(patch) if patch.target.resource == Resource::POD => {
                let finalizers = patch.patch["metadata"]["finalizers"].as_array();
                let Some(finalizers) = finalizers else {
                    continue;
                };
                let of = |it: &&Employee| it.target == patch.target;
                let employee = employees
                    .iter()
                    .find(of)
                    .ok_or("a pod without an employee")?;
                let id = employee.id.clone().unwrap_or_default();
                let is_there = table.get(&id) == Some(&json!("up"));
                if finalizers.contains(&json!(ours)) != is_there {
                    return Err(format!(
                        "action {at}: {patch:?} while the table has {table:?}"
                    ));
                }
            }
            Action::RemoveFinalizer { .. } => {
                let mut finalizers = employees
                    .iter()
                    .flat_map(|it| it.pod.metadata.finalizers.iter().flatten());
                if !table.is_empty() || finalizers.any(|it| *it == ours) {
                    return Err(format!("let go, with {table:?}"));
                }
            }
            Action::Persist(never) => match *never {},
            Action::Create(_)
            | Action::Delete(_)
            | Action::Announce(_)
            | Action::EnsureFinalizer { .. }
            | Action::Patch(_)
            | Action::Ask(_)
            | Action::Used(_)
            | Action::Call(_) => {}
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn wherever_a_plan_ends_who_has_traffic_is_protected_and_who_lost_protection_has_none(seen in worlds()) {
        prop_assert_eq!(broken(&seen), Ok(()));
    }

    /// What was planned, done: soon nothing is left to be done.
    #[test]
    fn a_few_rounds_bring_everything_to_rest(seen in worlds()) {
        let mut seen = seen;
        for _ in 0..8 {
            seen = done(&seen);
        }
        let plan = decide(&seen);
        let left = plan.actions.iter().filter(|it| !matches!(it, Action::Announce(_)));
        prop_assert_eq!(left.count(), 0, "{:?}", plan);
    }
}

/// The world after a plan.
fn done(seen: &Observed) -> Observed {
    let mut next = seen.clone();
    let plan = decide(seen);
    let (Seen::Present(mut employer), Seen::Present(mut employees)) =
        (next.employer, next.employees)
    else {
        panic!("seen");
    };
    for action in plan.actions {
        match action {
            Action::EnsureFinalizer { finalizer, .. } => {
                employer.finalizers.push(finalizer.to_owned());
            }
            Action::RemoveFinalizer { finalizer, .. } => {
                employer.finalizers.retain(|it| it != finalizer);
            }
            Action::Call(Change { part, changes }) => {
                let entries = match part {
                    Part::Employer => &mut next.current_employer,
                    Part::Employees => &mut next.current_employees,
                };
                if let Seen::Present(entries) = entries {
                    changes.apply(entries);
                }
            }
            Action::Patch(patch) if patch.target.resource == SERVICE => {
                let finalizers = patch.patch["metadata"]["finalizers"].clone();
                employer.finalizers = serde_json::from_value(finalizers).unwrap();
            }
            Action::Patch(patch) => {
                let mut of = employees.iter_mut();
                let of = of.find(|it| it.target == patch.target).unwrap();
                merge(&mut of.pod, &patch.patch["metadata"]);
            }
            Action::Persist(never) => match never {},
            Action::Create(_) | Action::Delete(_) | Action::Announce(_) | Action::Used(_) => {}
            Action::Ask(never) => match never {},
        }
    }
    next.employer = Seen::Present(employer);
    next.employees = Seen::Present(employees);
    next
}

fn merge(pod: &mut Pod, metadata: &Value) {
    if let Some(finalizers) = metadata["finalizers"].as_array() {
        let finalizers = finalizers.iter().map(|it| it.as_str().unwrap().to_owned());
        pod.metadata.finalizers = Some(finalizers.collect());
    }
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(key.clone(), value.as_str().unwrap().to_owned());
    }
}
