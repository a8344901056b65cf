use longshore_core::Classify;

use super::*;

#[test]
fn a_url_at_which_nothing_can_be_is_refused_before_anybody_waits_for_it() {
    let of_cluster = |yaml: &str| Storage::of_cluster(&configured(yaml), []).unwrap();
    let files = of_cluster("{files-root: /srv}");
    let buckets = of_cluster("{type: s3, connection: {auth-type: iam}}");
    for (storage, url) in [
        (&files, "file:relative"),
        (&files, "file:/srv/x"),
        (&files, "file:///a/../b"),
        (&Storage::default(), "file:///a/../b"),
        (&buckets, "file:relative"),
        (&buckets, "s3://data/a/../b"),
        (&buckets, "s3://data/a//b"),
    ] {
        let refused = storage.admits("any", url).unwrap_err();
        assert_eq!(refused.class(), longshore_core::Class::Invalid, "{url}");
        let begin = format!("no file can be at {url}: ");
        assert!(refused.to_string().starts_with(&begin), "{refused}");
    }
    for (storage, url) in [
        (&files, "file://host/path"),
        (&files, "file:///a%20b/..c"),
        (&files, "/a//b"),
        // The task itself looks for these.
        (&files, "s3://data/a//b"),
        (&buckets, "file:///a/../b"),
        (&buckets, "s3://data/a b/c%2F"),
    ] {
        storage.admits("any", url).unwrap();
    }
}

fn configured(yaml: &str) -> StorageConfig {
    serde_saphyr::from_str(yaml).unwrap()
}

#[tokio::test]
async fn in_a_cluster_no_file_of_the_machine_is_read_but_those_below_a_configured_directory() {
    let folder = tempfile::tempdir().unwrap();
    let (root, secret) = (folder.path().join("root"), folder.path().join("secret"));
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("inputs.pb"), "i").unwrap();
    std::fs::write(&secret, "s").unwrap();
    std::os::unix::fs::symlink(&secret, root.join("link")).unwrap();
    let of_cluster = |yaml: &str| Storage::of_cluster(&configured(yaml), []).unwrap();
    let refuses = of_cluster("{}");
    for url in [secret.to_str().unwrap(), "file:///etc/passwd"] {
        let refused = refuses.read(url).await.unwrap_err();
        assert!(
            matches!(refused, DataError::Unsupported { .. }),
            "{url}: {refused}"
        );
        assert!(refuses.write(url, "x".into()).await.is_err(), "{url}");
    }
    for yaml in [
        format!("{{files-root: {}}}", root.display()),
        format!(
            "{{type: stow, stow: {{kind: local, config: {{path: {}}}}}}}",
            root.display()
        ),
    ] {
        let storage = of_cluster(&yaml);
        let read = storage.read("file:///inputs.pb").await.unwrap();
        assert_eq!(read, File::Read("i".into()));
        for url in ["file:///../secret", "file://link", "a/../../secret"] {
            assert!(storage.read(url).await.is_err(), "{url}");
            assert!(storage.written_at(url).await.is_err(), "{url}");
        }
        for url in ["file:///../secret", "file:///../new/x"] {
            assert!(storage.write(url, "x".into()).await.is_err(), "{url}");
        }
        assert!(storage.make_directory("file:///../new").await.is_err());
    }
    assert_eq!(std::fs::read(&secret).unwrap(), b"s");
    assert!(!folder.path().join("new").exists());
    // Whoever runs the program on a laptop reads their own files.
    let laptop = Storage::new(&configured("{}"), []).unwrap();
    let read = laptop.read(secret.to_str().unwrap()).await.unwrap();
    assert_eq!(read, File::Read("s".into()));
    // A read of a pipe would hold its thread for ever.
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let url = pipe.to_str().unwrap();
    for refused in [
        laptop.read(url).await.map(drop),
        laptop.write(url, "x".into()).await,
    ] {
        let error = refused.unwrap_err();
        assert!(error.to_string().contains(url), "{error}");
    }
}

#[test]
fn a_table_says_what_the_actions_of_a_namespace_may_name() {
    let yaml = r#"{type: s3, connection: {auth-type: iam}, namespaces: {
        team-a: ["s3://a", "s3://shared/a/"], team-b: [], "*": ["s3://shared/all"]}}"#;
    let storage = Storage::of_cluster(&configured(yaml), []).unwrap();
    for (namespace, url, expected) in [
        ("team-a", "s3://a/x/y", true),
        ("team-a", "s3://a", true),
        ("team-a", "s3://ab/x", false),
        ("team-a", "s3://shared/a/x", true),
        ("team-a", "s3://shared/ab", false),
        ("team-a", "s3://shared/a/../b", false),
        ("team-a", "s3://shared/all/x", false),
        ("team-a", "gs://a/x", false),
        ("team-a", "file:///a", false),
        ("team-b", "s3://a/x", false),
        ("team-c", "s3://shared/all/x", true),
        ("team-c", "s3://a/x", false),
    ] {
        let admitted = storage.admits(namespace, url);
        assert_eq!(admitted.is_ok(), expected, "{namespace} {url}");
    }
    let refused = storage
        .admits("team-b", "s3://a/x")
        .unwrap_err()
        .to_string();
    let expected =
        "expected a URL that actions of namespace team-b may name (none), found s3://a/x";
    assert_eq!(refused, expected);
    let open = Storage::of_cluster(&configured("{}"), []).unwrap();
    assert!(open.admits("team-b", "s3://a/x").is_ok());
}

mod azure;
mod objects;
mod s3;
