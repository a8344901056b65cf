use longshore_core::Classify;
use longshore_proto::flyteidl2::core::{ContainerError, Literal};

use super::*;

const PREFIX: &str = "file:///x/a/1";

fn stored_in(root: &std::path::Path) -> StoredData {
    StoredData::new(Arc::new(Storage::local(root.to_owned(), 1000)))
}

async fn outcome(files: &[(&str, Vec<u8>)], prefix: &str, owed: Owed) -> Outcome {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("x/a/1");
    std::fs::create_dir_all(&directory).unwrap();
    for (name, bytes) in files {
        std::fs::write(directory.join(name), bytes).unwrap();
    }
    let data = stored_in(root.path());
    data.outcome(prefix, owed).await.unwrap()
}

fn document(kind: Kind, origin: execution_error::ErrorKind) -> Vec<u8> {
    let error = ContainerError {
        code: "Boom".to_owned(),
        message: "it broke".to_owned(),
        kind: kind.into(),
        origin: origin.into(),
    };
    ErrorDocument { error: Some(error) }.encode_to_vec()
}

#[tokio::test]
async fn an_error_document_says_more_than_the_exit_code() {
    let table = [
        (
            document(Kind::NonRecoverable, execution_error::ErrorKind::User),
            (ErrorKind::User, "Boom", false),
        ),
        (
            document(Kind::Recoverable, execution_error::ErrorKind::System),
            (ErrorKind::System, "Boom", true),
        ),
        (Vec::new(), (ErrorKind::System, "ErrorFileBadFormat", true)),
        (
            vec![7; 2000],
            (ErrorKind::System, "ErrorFileBadFormat", true),
        ),
    ];
    for (bytes, expected) in table {
        for owed in [Owed::Nothing, Owed::Outputs] {
            let found = outcome(&[(FILE_ERROR, bytes.clone())], PREFIX, owed).await;
            let Outcome::Failed {
                error,
                is_recoverable,
            } = found
            else {
                panic!("{found:?}");
            };
            assert_eq!((error.kind, error.code.as_str(), is_recoverable), expected);
        }
    }
}

#[tokio::test]
async fn only_declared_outputs_have_to_be_there() {
    let mut outputs = LiteralMap::default();
    assert_eq!(outcome(&[], PREFIX, Owed::Nothing).await, Outcome::Complete);
    let missing = outcome(&[], PREFIX, Owed::Outputs).await;
    assert!(
        matches!(missing, Outcome::Incomplete(why) if why.contains("there is no file:///x/a/1/outputs.pb"))
    );
    for _ in 0..2 {
        let files = [(FILE_OUTPUTS, outputs.encode_to_vec())];
        assert_eq!(
            outcome(&files, PREFIX, Owed::Outputs).await,
            Outcome::Complete
        );
        // An empty file is an empty map, and no failure.
        outputs.literals.insert("o0".to_owned(), Literal::default());
    }
    let garbage = outcome(&[(FILE_OUTPUTS, vec![255; 9])], PREFIX, Owed::Outputs).await;
    assert!(
        matches!(garbage, Outcome::Incomplete(why) if why.starts_with("expected a flyteidl2.core.LiteralMap"))
    );
    let large = outcome(&[(FILE_OUTPUTS, vec![0; 1001])], PREFIX, Owed::Outputs).await;
    assert!(matches!(large, Outcome::Incomplete(why) if why.contains("1001 bytes")));
}

#[tokio::test]
async fn a_store_that_is_not_configured_matters_only_to_tasks_with_outputs() {
    let prefix = "s3://bucket/a/1";
    assert_eq!(outcome(&[], prefix, Owed::Nothing).await, Outcome::Complete);
    let found = outcome(&[], prefix, Owed::Outputs).await;
    let expected = "expected a URL of a store that is configured (file://), found s3://bucket/a/1";
    assert_eq!(found, Outcome::Incomplete(expected.to_owned()));
}

#[tokio::test]
async fn an_error_of_an_earlier_launch_does_not_count() {
    let root = tempfile::tempdir().unwrap();
    let error = document(Kind::Recoverable, execution_error::ErrorKind::System);
    let at = |name: &str| root.path().join(name);
    std::fs::write(at(FILE_ERROR), error).unwrap();
    std::fs::write(at(FILE_OUTPUTS), []).unwrap();
    let data = stored_in(root.path());
    for (name, is_error) in [(FILE_ERROR, true), (FILE_OUTPUTS, false)] {
        let file = std::fs::File::options().write(true).open(at(name)).unwrap();
        let later = std::time::Duration::from_secs(2_000_000_000);
        file.set_modified(std::time::UNIX_EPOCH + later).unwrap();
        let found = data.outcome("file:///", Owed::Outputs).await.unwrap();
        assert_eq!(found != Outcome::Complete, is_error, "{name}: {found:?}");
        let earlier = later / 2;
        file.set_modified(std::time::UNIX_EPOCH + earlier).unwrap();
    }
}

#[tokio::test]
async fn directories_are_made_where_a_store_has_any() {
    let root = tempfile::tempdir().unwrap();
    let data = stored_in(root.path());
    let prefix = "file://data/a/1";
    assert!(data.has_directories(prefix));
    for _ in 0..2 {
        data.make_directory(prefix).await.unwrap();
        assert!(root.path().join("data/a/1").is_dir());
    }
    assert!(!data.has_directories("s3://data/a/1"));
    data.make_directory("s3://data/a/1").await.unwrap();
    let anywhere = StoredData::new(Arc::default());
    assert!(!anywhere.has_directories("file:///nowhere/a/1"));

    std::fs::write(root.path().join("file"), "").unwrap();
    let refused = data.make_directory("file://file/a").await.unwrap_err();
    let why = refused.why();
    assert!(
        why.starts_with("the directory file://file/a cannot be made: Not a directory"),
        "{why}"
    );
}

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
    let error = laptop.read(pipe.to_str().unwrap()).await.unwrap_err();
    assert!(
        error.to_string().contains(pipe.to_str().unwrap()),
        "{error}"
    );
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

#[test]
fn of_a_long_text_the_beginning_and_the_end_are_kept() {
    assert_eq!(excerpt("short", 8), "short");
    let long = format!("{}ö{}", "a".repeat(20), "z".repeat(20));
    let short = excerpt(&long, 8);
    assert_eq!(short, "aa\n… 34 bytes left out …\nzzzzzz");
    assert_eq!(excerpt(&"ö".repeat(9), 8), "ö\n… 10 bytes left out …\nööö");
}

mod s3;
