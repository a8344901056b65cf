//! `docs/reference/states.md`: the states of task instances, runs, TaskActions and operations on pods, drawn from their
//! tables of transitions. Tests beside each table hold it and the code together, in both directions.

use std::{collections::BTreeMap, fmt::Debug};

use longshore_dags::scheduler::transitions as of_dags;
use longshore_podops::standing::transitions as of_podops;
use longshore_tasks::transitions as of_actions;
use serde::Serialize;

use super::{head, is_in_the_repository};

/// An edge as the page draws it: from, to and why. `None` is where something does not exist yet, or any more.
type Edge = (Option<String>, Option<String>, String);

#[test]
fn the_reference_of_states_is_what_the_tables_of_transitions_say() {
    is_in_the_repository("docs/reference/states.md", &page());
}

#[test]
fn causes_between_the_same_states_share_an_arrow() {
    let edge = |from: Option<&str>, to: Option<&str>, why: &str| {
        let state = |name: &str| name.to_owned();
        (from.map(state), to.map(state), why.to_owned())
    };
    let drawn = diagram(&[
        edge(None, Some("A"), "begun"),
        edge(Some("A"), Some("B"), "first"),
        edge(Some("A"), Some("B"), "second"),
        edge(Some("B"), None, "ended"),
    ]);
    let expected = "```mermaid\nstateDiagram-v2\n    [*] --> A: begun\n    A --> B: first, second\n    \
                    B --> [*]: ended\n```\n";
    assert_eq!(drawn, expected);
    assert_eq!(words(&of_podops::Cause::RulesPassed), "rules passed");
}

fn page() -> String {
    let mut page = head(
        "States and transitions",
        "An arrow is a change of state, with its causes. No other change happens.",
    );
    let tasks = of_dags::TRANSITIONS.iter().map(|(from, to, why)| {
        // The state of a task that has not been scheduled is null: Airflow shows it as `none`.
        let name = |state: &Option<_>| state.as_ref().map_or("none".to_owned(), name);
        (Some(name(from)), Some(name(to)), words(why))
    });
    let runs = of_dags::RUN_TRANSITIONS.iter();
    let runs = runs.map(|(from, to, why)| (Some(name(from)), Some(name(to)), words(why)));
    let actions = of_actions::TRANSITIONS.iter();
    let actions =
        actions.map(|(from, to, why)| (from.as_ref().map(name), Some(name(to)), words(why)));
    let operations = of_podops::TRANSITIONS.iter().map(|(from, to, why)| {
        let name = |phase: &Option<_>| phase.as_ref().map(name);
        (name(from), name(to), words(why))
    });
    let groups: [(&str, &str, Vec<Edge>); 4] = [
        (
            "Task instances",
            "The state of a task in a run of a DAG.",
            tasks.collect(),
        ),
        ("Runs", "The state of a run of a DAG.", runs.collect()),
        (
            "TaskActions",
            "The phase of a TaskAction, as `status.phaseHistory` and the newest condition have it. From \
             `RetryableFailure`, which the executor of Flyte writes, Longshore goes on after a takeover.",
            actions.collect(),
        ),
        (
            "Operations on pods",
            "The phase of an operation on a pod that takes part in PodOpsLifecycle, as `longshore pods` shows it. \
             A pod that is removed takes its other operations along, whatever their phases are.",
            operations.collect(),
        ),
    ];
    for (title, about, edges) in groups {
        page += &format!("\n## {title}\n\n{about}\n\n{}", diagram(&edges));
    }
    page
}

/// A state diagram of Mermaid, with one arrow from a state to another.
fn diagram(edges: &[Edge]) -> String {
    let end = |state: &Option<String>| state.clone().unwrap_or_else(|| "[*]".to_owned());
    let mut arrows: Vec<(String, String)> = Vec::new();
    let mut causes: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for (from, to, why) in edges {
        let arrow = (end(from), end(to));
        if !arrows.contains(&arrow) {
            arrows.push(arrow.clone());
        }
        causes.entry(arrow).or_default().push(why);
    }
    let mut drawn = "```mermaid\nstateDiagram-v2\n".to_owned();
    for arrow in arrows {
        let causes = causes.remove(&arrow).unwrap_or_default().join(", ");
        let (from, to) = arrow;
        drawn += &format!("    {from} --> {to}: {causes}\n");
    }
    drawn + "```\n"
}

/// The name of a state, as it is on the wire.
fn name(state: &impl Serialize) -> String {
    let name = serde_json::to_value(state).unwrap();
    name.as_str().unwrap().to_owned()
}

/// `rules passed` for `RulesPassed`.
fn words(cause: &impl Debug) -> String {
    let mut words = String::new();
    for char in format!("{cause:?}").chars() {
        if char.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(char.to_lowercase());
    }
    words
}
