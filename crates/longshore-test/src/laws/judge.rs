//! Which laws one world broke, beside an undisturbed one.

use std::{collections::BTreeMap, fmt::Write};

use super::{
    Law, Violation,
    cases::Case,
    system::{Run, Scenario, Troubles},
};
use crate::faults::{FaultPlan, WatchFault};

/// The laws that one world broke.
pub(super) fn judge<S: Scenario>(
    scenario: &S,
    case: &Case,
    run: &Run,
    reference: &Run,
) -> Vec<Violation> {
    let mut found = run.broken.clone();
    if run.is_runaway {
        let detail = "so many effects in so little time that the world was stopped";
        found.push(Violation::of(Law::Quiet, detail));
    } else if !run.late_writes.is_empty() {
        let detail = format!("written at rest: {:?}", run.late_writes);
        found.push(Violation::of(Law::Quiet, detail));
    }
    if run.digest != reference.digest {
        found.push(Violation::of(case.law, difference(reference, run)));
    }
    found.extend(too_many_writes(scenario, case, run, reference));
    found.extend(too_much_of_anything(scenario, run, reference));
    found.extend(loud_logs(scenario, case, run));
    for violation in &mut found {
        violation.case = format!(
            "{} under {:?}\nreplay with laws::replay(&scenario, plan)",
            scenario.name(),
            case.plan
        );
        let _ = write!(violation.detail, "\nwhat happened:\n{}", run.log);
    }
    found
}

/// What a late watch made the controller write beyond the undisturbed world, or any watch made it create or delete.
///
/// Patches are excused where watches break: others may have written in between.
fn too_many_writes<S: Scenario>(
    scenario: &S,
    case: &Case,
    run: &Run,
    reference: &Run,
) -> Option<Violation> {
    // What is repeated because of another fault is no news of a watch.
    if !case.plan.at.is_empty() {
        return None;
    }
    let is_late = matches!(case.plan.watches.as_slice(), [WatchFault::Late { .. }]);
    let law = match case.plan.watches.as_slice() {
        [] => return None,
        _ if is_late => Law::ReadsOwnWrites,
        _ => Law::LevelTriggered,
    };
    let expected = writes(scenario, reference);
    let found = writes(scenario, run);
    let more: Vec<String> = found
        .iter()
        .filter(|(what, _)| is_late || !what.starts_with("patch "))
        .filter(|(what, n)| **n > expected.get(*what).copied().unwrap_or(0))
        .map(|(what, n)| format!("{what}: {n} times"))
        .collect();
    let detail = format!(
        "undisturbed: {expected:?}\nmore often here: {}",
        more.join(", ")
    );
    (!more.is_empty()).then(|| Violation::of(law, detail))
}

/// What was logged although all went well, or although the controller has an answer to each fault.
fn loud_logs<S: Scenario>(scenario: &S, case: &Case, run: &Run) -> Option<Violation> {
    let is_disturbed = case.plan != FaultPlan::none();
    let lines = run.warnings.iter().map(String::as_str);
    let lines = lines.filter(|line| !is_disturbed || line.starts_with("ERROR"));
    let loud: Vec<&str> = lines.filter(|line| !scenario.expects_log(line)).collect();
    (!loud.is_empty()).then(|| Violation::of(Law::LogsQuietly, loud.join("\n")))
}

/// What happened more often than the scenario's bounds say.
fn too_much_of_anything<S: Scenario>(
    scenario: &S,
    run: &Run,
    reference: &Run,
) -> Option<Violation> {
    let (n_starts, n_faults) = run.n_starts_and_faults;
    let undisturbed = all_effects(reference);
    let more: Vec<String> = all_effects(run)
        .into_iter()
        .filter_map(|(what, n)| {
            let troubles = Troubles {
                n_undisturbed: undisturbed.get(what).copied().unwrap_or(0),
                n_starts,
                n_faults,
            };
            let bound = scenario.bound(what, &troubles)?;
            (n > bound).then(|| format!("{what}: {n} times, at most {bound} with {troubles:?}"))
        })
        .collect();
    (!more.is_empty()).then(|| Violation::of(Law::Bounded, more.join(", ")))
}

fn all_effects(run: &Run) -> BTreeMap<&str, u32> {
    let mut counts = BTreeMap::new();
    for point in &run.points {
        *counts.entry(point.what.as_str()).or_default() += 1;
    }
    counts
}

/// The number of times that each write was made.
pub(super) fn writes<'r, S: Scenario>(scenario: &S, run: &'r Run) -> BTreeMap<&'r str, u32> {
    let mut counts = BTreeMap::new();
    for point in run
        .points
        .iter()
        .filter(|point| !scenario.is_uncounted(point))
    {
        *counts.entry(point.what.as_str()).or_default() += 1;
    }
    counts
}

/// Where two ends differ, line by line.
pub(super) fn difference(expected: &Run, found: &Run) -> String {
    let mut text = String::new();
    let mut expected_lines = expected.digest.lines();
    let mut found_lines = found.digest.lines();
    loop {
        match (expected_lines.next(), found_lines.next()) {
            (None, None) => break,
            (a, b) if a == b => {}
            (a, b) => {
                let _ = writeln!(text, "- {}\n+ {}", a.unwrap_or(""), b.unwrap_or(""));
            }
        }
    }
    if expected.points != found.points && text.is_empty() {
        let _ = writeln!(text, "- {:?}\n+ {:?}", expected.points, found.points);
    }
    text
}
