//! `docs/reference/conditions.md`: conditions, reasons, labels, annotations, finalizers and variables, from the constants of
//! `longshore-api` and their doc comments.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use longshore_api::podops::OperationLabel;

use super::{
    head, is_in_the_repository,
    markdown::{code, table},
};

/// Constants of a subsystem.
struct Group {
    title: &'static str,
    /// Sources in `longshore-api`.
    files: &'static [&'static str],
    /// What its keys are on where a comment does not say it.
    on: &'static str,
}

const PODOPS: &str = "podops.rs";

const GROUPS: [Group; 7] = [
    Group {
        title: "TaskActions",
        files: &["flyte.rs", "tasks.rs"],
        on: "TaskActions",
    },
    Group {
        title: "Operations on pods",
        files: &[PODOPS, "podops/rule.rs"],
        on: "pods",
    },
    Group {
        title: "ResourceConsist",
        files: &["podops/consist.rs"],
        on: "an employer",
    },
    Group {
        title: "Pods of Airflow's KubernetesExecutor",
        files: &["airflow.rs"],
        on: "pods of DAGs",
    },
    Group {
        title: "DAGs",
        files: &["dags.rs"],
        on: "objects of a run",
    },
    Group {
        title: "Flink",
        files: &["flink.rs"],
        on: "objects of a Flink cluster",
    },
    Group {
        title: "The process node",
        files: &["node.rs"],
        on: "the Node",
    },
];

/// What a constant is, in the order of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Condition,
    ConditionReason,
    EventReason,
    Label,
    Annotation,
    Finalizer,
    Variable,
}

impl Kind {
    fn title(self) -> &'static str {
        match self {
            Self::Condition => "Conditions",
            Self::ConditionReason => "Reasons of conditions",
            Self::EventReason => "Reasons of Events",
            Self::Label => "Labels",
            Self::Annotation => "Annotations",
            Self::Finalizer => "Finalizers",
            Self::Variable => "Environment variables of containers",
        }
    }

    /// How a comment begins that also says on what it is.
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Condition => &["Readiness gate and condition type", "Condition"],
            Self::ConditionReason => &["Reason, and phase in the history", "Reason"],
            Self::EventReason => &["Reason of an Event"],
            Self::Label => &["Label"],
            Self::Annotation => &["Annotation"],
            Self::Finalizer => &["Finalizer"],
            Self::Variable => &["Environment variable", "Variable"],
        }
    }
}

/// A constant: its name, its value as text, and its comment in one line.
#[derive(Debug)]
struct Constant {
    name: String,
    text: String,
    comment: String,
}

impl Constant {
    fn kind(&self) -> Option<Kind> {
        let name = self.name.as_str();
        let kinds = [
            ("CONDITION_", Kind::Condition),
            ("LABEL_", Kind::Label),
            ("OPERATION_PERMISSION_PREFIX", Kind::Label),
            ("ANNOTATION_", Kind::Annotation),
            ("FINALIZER_", Kind::Finalizer),
            ("PROTECTION_FINALIZER_PREFIX", Kind::Finalizer),
            ("ENV_", Kind::Variable),
        ];
        if name.starts_with("REASON_") {
            let is_of_event = self.comment.starts_with("Reason of an Event");
            return Some(if is_of_event {
                Kind::EventReason
            } else {
                Kind::ConditionReason
            });
        }
        let found = kinds.into_iter().find(|(start, _)| name.starts_with(start));
        found.map(|(_, kind)| kind)
    }
}

#[test]
fn the_reference_of_conditions_is_what_the_constants_say() {
    is_in_the_repository("docs/reference/conditions.md", &page());
}

#[test]
fn every_file_with_such_constants_is_in_the_reference() {
    let listed: Vec<&str> = GROUPS
        .iter()
        .flat_map(|group| group.files)
        .copied()
        .collect();
    let mut folders = vec![sources()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(sources()).unwrap().to_str().unwrap();
            let has_some = constants(name).iter().any(|it| it.kind().is_some());
            assert!(!has_some || listed.contains(&name), "{name} is not listed");
        }
    }
}

#[test]
fn the_comment_of_a_constant_is_split_into_what_it_is_on_and_what_it_means() {
    let known = BTreeMap::from([("TRUE".to_owned(), "true".to_owned())]);
    let constant = |comment: &str| Constant {
        name: "LABEL_A".to_owned(),
        text: "a".to_owned(),
        comment: comment.to_owned(),
    };
    for (comment, on, meaning) in [
        ("Label: the run.", "pods", "The run."),
        (
            "Label of a Node: [`TRUE`] if so.",
            "a Node",
            "`true` if so.",
        ),
        ("Label, by users: presence.", "pods, by users", "Presence."),
        ("Something: else.", "pods", "Something: else."),
    ] {
        let row = row(&constant(comment), Kind::Label, "pods", &known);
        assert_eq!(row, ["`a`", on, meaning], "{comment}");
    }
}

fn page() -> String {
    let mut page = head(
        "Conditions, reasons, labels, annotations and finalizers",
        "What Longshore writes on objects of Kubernetes, and what it reads there. The column `On` names other programs \
         that write a key. An Event has `longshore.dev/` and the role as its `reportingController`, for example \
         `longshore.dev/tasks`.\n\n\
         Objects of Kubernetes itself have the conditions and reasons of Kubernetes: the process node writes those of a \
         kubelet, and the embedded cluster those of kube-scheduler and kube-controller-manager.",
    );
    for group in &GROUPS {
        page += &format!("\n## {}\n", group.title);
        let constants: Vec<Constant> = group
            .files
            .iter()
            .flat_map(|file| constants(file))
            .collect();
        let texts = constants.iter();
        let texts: BTreeMap<String, String> = texts
            .map(|constant| (constant.name.clone(), constant.text.clone()))
            .collect();
        let mut rows: BTreeMap<Kind, Vec<[String; 3]>> = BTreeMap::new();
        for constant in &constants {
            if let Some(kind) = constant.kind() {
                let on = match kind {
                    Kind::Variable => "containers of tasks",
                    Kind::Condition
                    | Kind::ConditionReason
                    | Kind::EventReason
                    | Kind::Label
                    | Kind::Annotation
                    | Kind::Finalizer => group.on,
                };
                let row = row(constant, kind, on, &texts);
                rows.entry(kind).or_default().push(row);
            }
        }
        if group.files.contains(&PODOPS) {
            rows.entry(Kind::Label)
                .or_default()
                .extend(operation_labels());
        }
        for (kind, rows) in rows {
            let rows = table([singular(kind), "On", "Meaning"], rows);
            page += &format!("\n### {}: {}\n\n{rows}", group.title, kind.title());
        }
    }
    page
}

fn singular(kind: Kind) -> &'static str {
    match kind {
        Kind::Condition => "Condition",
        Kind::ConditionReason | Kind::EventReason => "Reason",
        Kind::Label => "Label",
        Kind::Annotation => "Annotation",
        Kind::Finalizer => "Finalizer",
        Kind::Variable => "Variable",
    }
}

/// Its text, on what it is, and what it means. `texts` are those of the constants that its comment may name.
fn row(constant: &Constant, kind: Kind, on: &str, texts: &BTreeMap<String, String>) -> [String; 3] {
    let split = constant.comment.split_once(": ").and_then(|(head, rest)| {
        let mut words = kind.words().iter();
        let of = words.find_map(|words| head.strip_prefix(words))?;
        Some((of, rest))
    });
    let (of, meaning) = split.unwrap_or(("", constant.comment.as_str()));
    let of = of.trim_start();
    let on = match of.strip_prefix("of ").or_else(|| of.strip_prefix("about ")) {
        Some(object) => object.to_owned(),
        None => match of.strip_prefix("in ") {
            Some(place) => place.to_owned(),
            None => format!("{on}{of}"),
        },
    };
    let mut text = constant.text.clone();
    if constant.name.ends_with("_PREFIX") || constant.name.ends_with("_BEFORE") {
        text.push('…');
    }
    let meaning = sentence(&resolved(meaning, texts));
    [code(&text), resolved(&on, texts), meaning]
}

/// With the texts of constants in place of links to them.
fn resolved(comment: &str, texts: &BTreeMap<String, String>) -> String {
    let mut resolved = String::new();
    let mut rest = comment;
    while let Some((before, link)) = rest.split_once("[`") {
        let Some((name, after)) = link.split_once("`]") else {
            break;
        };
        let text = texts.get(name).map_or(name, String::as_str);
        resolved += &format!("{before}`{text}`");
        rest = after;
    }
    resolved + rest
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string());
    format!("{}{}", first.unwrap_or_default(), chars.as_str())
}

/// The labels of one operation, with the comments of their variants.
fn operation_labels() -> Vec<[String; 3]> {
    let source = source(PODOPS);
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let rows = OperationLabel::ALL.map(|label| {
        let variant = format!("{label:?},");
        let at = lines.iter().position(|line| *line == variant).unwrap();
        let comment = lines[at - 1].trim_start_matches("/// ");
        [
            code(&format!("{}/ID", label.prefix())),
            "pods, for the operation `ID`".to_owned(),
            comment.to_owned(),
        ]
    });
    rows.into()
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../longshore-api/src")
}

fn source(file: &str) -> String {
    fs::read_to_string(sources().join(file)).unwrap()
}

/// The constants of a source, but those of several lines.
fn constants(file: &str) -> Vec<Constant> {
    let source = source(file);
    let mut constants = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in source.lines() {
        if let Some(words) = line.strip_prefix("/// ") {
            comment.push(words);
            continue;
        }
        let constant = line.strip_prefix("pub const ").and_then(|constant| {
            let (name, typed) = constant.split_once(": ")?;
            let (_, value) = typed.split_once(" = ")?;
            Some(Constant {
                name: name.to_owned(),
                text: value.strip_suffix(';')?.trim_matches('"').to_owned(),
                comment: comment.join(" "),
            })
        });
        constants.extend(constant);
        comment.clear();
    }
    constants
}
