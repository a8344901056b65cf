use super::*;
use crate::git::remote::Transport;

fn parse(json: &str) -> Result<Vec<BundleConfig>, ConfigError> {
    BundleConfig::parse_list(json, AllowedRemotes::HttpsAndSsh)
}

/// A configuration of one bundle with these arguments.
fn with(class: &str, kwargs: &str) -> Result<BundleConfig, ConfigError> {
    let json = format!(r#"[{{"name": "b", "classpath": "{class}", "kwargs": {kwargs}}}]"#);
    parse(&json).map(|mut bundles| bundles.remove(0))
}

#[test]
fn both_classes_are_read() {
    let bundles = parse(&format!(
        r#"[{{"name": "dags-folder", "classpath": "{LOCAL_CLASS}", "kwargs": {{}}}},
            {{"name": "team", "classpath": "{GIT_CLASS}", "team_name": "t", "future": 1, "kwargs":
              {{"tracking_ref": "main", "subdir": "x//y/", "git_conn_id": "c", "refresh_interval": 60,
                "repo_url": "https://example.org/a.git", "sparse_dirs": ["x", "z"], "submodules": true,
                "prune_dotgit_folder": null}}}}]"#
    ))
    .unwrap();
    assert_eq!(bundles[0].source, Source::Local { path: None });
    assert_eq!(bundles[1].name.as_str(), "team");
    assert_eq!(bundles[1].team.as_deref(), Some("t"));
    assert_eq!(bundles[1].refresh_interval, Some(Duration::from_secs(60)));
    let Source::Git(git) = &bundles[1].source else {
        panic!("{bundles:?}");
    };
    assert_eq!(git.tracking_ref.as_str(), "main");
    assert_eq!(git.subdir.as_ref().map(FolderPath::as_str), Some("x/y"));
    let sparse: Vec<_> = git.sparse_dirs.iter().map(FolderPath::as_str).collect();
    assert_eq!(sparse, ["x", "z"]);
    assert_eq!(git.connection.as_deref(), Some("c"));
    let transport = git.remote.as_ref().map(Remote::transport);
    assert_eq!(transport, Some(Transport::Https));
    assert!(git.has_submodules && git.is_dotgit_pruned);
}

/// Checks that a refusal says this.
fn says(found: Result<BundleConfig, ConfigError>, expected: &str) {
    let said = found.expect_err(expected).to_string();
    assert!(said.contains(expected), "{said}\n{expected}");
}

#[test]
fn a_wrong_argument_is_named() {
    let reference = "bundle `b`: expected `tracking_ref` to be the name of a branch or tag, or a commit, found \"\"";
    says(with(GIT_CLASS, "{}"), reference);
    for (argument, expected) in [
        (r#""tracking_ref": "--x""#, "found \"--x\""),
        (r#""tracking_ref": "a..b""#, "found \"a..b\""),
        (
            r#""tracking_ref": 1"#,
            "expected `tracking_ref` to be a text, found 1",
        ),
        (
            r#""subdir": "a/../..""#,
            "expected `subdir` to be a folder in the repository",
        ),
        (r#""subdir": "/etc""#, "found \"/etc\""),
        (r#""subdir": "a/.GIT""#, "found \"a/.GIT\""),
        (
            r#""sparse_dirs": "a""#,
            "to be a list of texts, found \"a\"",
        ),
        (r#""sparse_dirs": ["a", "../b"]"#, "found \"../b\""),
        (
            r#""trackingref": 1"#,
            "`trackingref`; did you mean `tracking_ref`?",
        ),
        (r#""branch": 1"#, "bundle `b`: unknown argument `branch`"),
        (
            r#""refresh_interval": -1"#,
            "a whole number of seconds, found -1",
        ),
        (r#""repo_url": "/srv/a""#, "allowed in standalone mode only"),
    ] {
        // A later value of a key counts.
        let kwargs = format!(r#"{{"tracking_ref": "main", {argument}}}"#);
        says(with(GIT_CLASS, &kwargs), expected);
    }
    let path = r#"{"paht": "/x"}"#;
    says(with(LOCAL_CLASS, path), "`paht`; did you mean `path`?");
    let class = "airflow.providers.amazon.S3DagBundle";
    says(with(class, "{}"), &format!("found `{class}`"));
}

#[test]
fn a_wrong_list_is_refused() {
    let named = |name: &str| {
        format!(r#"[{{"name": "{name}", "classpath": "{LOCAL_CLASS}", "kwargs": {{}}}}]"#)
    };
    for (json, expected) in [
        (
            r#"{"name": "a"}"#.to_owned(),
            "to be a JSON list of objects",
        ),
        (r#"[{"name": "a"}]"#.to_owned(), "missing field `classpath`"),
        (named("example_dags"), "is reserved"),
        (named(""), "1 to 250 characters"),
    ] {
        let said = parse(&json).expect_err(expected).to_string();
        assert!(said.contains(expected), "{said}\n{expected}");
    }
    let item = format!(r#"{{"name": "a", "classpath": "{LOCAL_CLASS}", "kwargs": {{}}}}"#);
    let twice = parse(&format!("[{item}, {item}]"));
    assert_eq!(twice, Err(ConfigError::Twice("a".to_owned())));
}

#[test]
fn names_are_one_component_each() {
    for (name, expected) in [
        ("dags-folder", "dags-folder"),
        ("a_b.c", "a_b.c"),
        ("..", "%2E."),
        ("_locks", "%5Flocks"),
        ("a/../b", "a%2F..%2Fb"),
        ("ä", "%C3%A4"),
        ("a%2Fb", "a%252Fb"),
    ] {
        assert_eq!(BundleName::new(name).unwrap().to_component(), expected);
    }
}
