use longshore_proto::flyteidl2::core::{Identifier, TaskMetadata};

use super::*;
use crate::{context::TaskContext, fixtures::context};

fn template(link_types: &str) -> TaskTemplate {
    TaskTemplate {
        id: Some(Identifier {
            name: "train".to_owned(),
            version: "v1".to_owned(),
            ..Identifier::default()
        }),
        config: [
            (LINK_TYPE.to_owned(), link_types.to_owned()),
            ("port".to_owned(), "80".to_owned()),
        ]
        .into(),
        ..TaskTemplate::default()
    }
}

fn variables(context: &TaskContext) -> Variables {
    let mut variables = Variables::of_task(context);
    variables.pod("pod-1", "flyte");
    variables.container_id("containerd://abc");
    let at = |text: &str| text.parse().unwrap();
    variables.times(at("2026-01-01T00:00:00Z"), at("2026-01-01T00:00:01.2Z"));
    variables
}

fn uris(config: &LogConfig, template: TaskTemplate, editor: bool) -> Vec<String> {
    let context = context(template, 2);
    let links = config.links(&context.template, &variables(&context), "", editor);
    links.into_iter().map(|link| link.uri).collect()
}

#[test]
fn every_variable_has_its_value_whatever_its_case() {
    let context = context(template(""), 2);
    let mut variables = variables(&context);
    variables.set("logName", "rank-0");
    for (text, expected) in [
        (
            "{{ .podName }} {{.PODNAME}} {{$podname}}",
            "pod-1 pod-1 pod-1",
        ),
        ("{{.namespace}}", "flyte"),
        ("{{.containerID}}", "abc"),
        ("{{.podRFC3339StartTime}}", "2026-01-01T00:00:00Z"),
        ("{{.podRFC3339FinishTime}}", "2026-01-01T00:00:01Z"),
        (
            "{{.podUnixStartTime}} {{.podUnixFinishTime}}",
            "1767225600 1767225601",
        ),
        (
            "{{.taskID}} {{.taskVersion}} {{.taskRetryAttempt}}",
            "train v1 1",
        ),
        ("{{.nodeID}} {{.actionName}}", "a a"),
        ("{{.executionName}} {{.runName}}", "r r"),
        ("{{.executionProject}} {{.executionDomain}}", "p d"),
        ("{{.generatedName}} {{.logName}}", "r-a-1 rank-0"),
        // Empty, and unknown.
        (
            "{{.taskOrg}} {{.hostname}} {{.x}}",
            "{{.taskOrg}} {{.hostname}} {{.x}}",
        ),
    ] {
        assert_eq!(variables.fill(text), expected);
    }
}

#[test]
fn links_come_in_upstreams_order() {
    let link = |name: &str| LinkTemplate::json(name, format!("{name}://{{{{.podName}}}}"));
    let config = LogConfig {
        kubernetes: Some(link("k8s")),
        cloudwatch: Some(link("cloudwatch")),
        stackdriver: Some(link("stackdriver")),
        azure: vec![AzureTemplate {
            link: link("azure"),
            query: Some(String::new()),
        }],
        templates: vec![link("mine")],
        dynamic: [
            ("board".to_owned(), link("board")),
            ("other".to_owned(), link("other")),
        ]
        .into(),
    };
    let mut own = template("board,board");
    own.metadata = Some(TaskMetadata {
        log_links: vec![TaskLog {
            uri: "own://{{.runName}}".to_owned(),
            name: "Own".to_owned(),
            ..TaskLog::default()
        }],
        ..TaskMetadata::default()
    });
    let context = context(own, 2);
    let links = config.links(&context.template, &variables(&context), " x", false);
    let found: Vec<(&str, &str)> = links
        .iter()
        .map(|link| (link.name.as_str(), link.uri.split(':').next().unwrap()))
        .collect();
    assert_eq!(
        found,
        [
            ("Own x", "own"),
            ("k8s x", "k8s"),
            ("cloudwatch x", "cloudwatch"),
            ("stackdriver x", "stackdriver"),
            ("azure x", "azure"),
            ("mine x", "mine"),
            ("board x", "board"),
        ]
    );
    assert_eq!(links[0].uri, "own://r");
    assert_eq!(links[0].link_type(), LinkType::Dashboard);
    assert!(
        links
            .iter()
            .all(|link| link.ready || link.name == "azure x")
    );
}

#[test]
fn dynamic_links_are_for_tasks_that_ask_for_them_or_serve_an_editor() {
    let link = LinkTemplate::json("Editor", "http://x:{{.taskConfig.port}}".to_owned());
    let config = LogConfig {
        dynamic: [
            ("vscode".to_owned(), link.clone()),
            ("board".to_owned(), link),
        ]
        .into(),
        ..LogConfig::NONE
    };
    assert!(uris(&config, template(""), false).is_empty());
    assert_eq!(uris(&config, template(""), true), ["http://x:80"]);
    assert_eq!(
        uris(&config, template("vscode,board,unknown"), true).len(),
        2
    );
    let context = context(template("vscode"), 1);
    let links = config.links(&context.template, &variables(&context), "", false);
    assert_eq!(links[0].link_type(), LinkType::Ide);
}

#[test]
fn upstreams_default_is_its_own_dashboard() {
    assert_eq!(
        uris(&LogConfig::default(), template(""), false),
        ["http://localhost:30082/#!/log/flyte/pod-1/pod?namespace=flyte"]
    );
}
