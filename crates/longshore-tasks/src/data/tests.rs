use std::{collections::BTreeMap, sync::Mutex};

use bytes::Bytes;
use http::{Method, StatusCode};
use longshore_proto::flyteidl2::core::{ContainerError, Literal};
use longshore_test::{Answer, Conduct, ForeignServer};

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
    assert_eq!(
        large,
        Outcome::Complete,
        "whatever the executor reads itself"
    );
}

#[tokio::test]
async fn inputs_that_are_of_no_use_say_why() {
    let root = tempfile::tempdir().unwrap();
    let data = stored_in(root.path());
    std::fs::write(root.path().join("large"), vec![0; 1001]).unwrap();
    std::fs::write(root.path().join("garbage"), [255; 9]).unwrap();
    for (url, expected) in [
        (
            "file:///large",
            "file:///large has 1001 bytes, and no more than 1000 are read",
        ),
        (
            "file:///garbage",
            "expected a flyteidl2.core.LiteralMap in file:///garbage: ",
        ),
        (
            "gs://b/k",
            "expected a URL of a store that is configured (file://), found gs://b/k",
        ),
    ] {
        let why = data.inputs(url).await.unwrap().unwrap_err();
        assert!(why.starts_with(expected), "{why}");
    }
    assert_eq!(data.inputs("file:///none").await.unwrap(), Ok(None));
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

/// Buckets that keep what is written.
async fn buckets() -> (ForeignServer, Storage) {
    let objects: Mutex<BTreeMap<String, Bytes>> = Mutex::default();
    let server = ForeignServer::start(move |received| {
        let mut objects = objects.lock().unwrap();
        let mut answer = Answer::new(StatusCode::NOT_FOUND, "application/xml", "<Error/>");
        if received.method == Method::PUT {
            objects.insert(received.path.clone(), received.body.clone());
            answer.status = StatusCode::OK;
        } else if let Some(object) = objects.get(&received.path) {
            answer = Answer::new(StatusCode::OK, "application/octet-stream", object.clone());
        }
        let headers = &mut answer.headers;
        headers.insert("etag", "\"x\"".parse().unwrap());
        let written = "Mon, 01 Jan 2024 00:00:00 GMT".parse().unwrap();
        headers.insert("last-modified", written);
        Conduct::Answers(answer)
    });
    let server = server.await.unwrap();
    let config = serde_json::json!({"type": "s3", "connection": {
        "endpoint": server.url(), "disable-ssl": true, "region": "us-east-1",
        "access-key": "id", "secret-key": "secret", "auth-type": "accesskey",
    }});
    let storage = Storage::new(&serde_json::from_value(config).unwrap(), []).unwrap();
    (server, storage)
}

#[tokio::test]
async fn outputs_and_errors_of_attempts_are_found_in_buckets() {
    let (_server, storage) = buckets().await;
    let storage = Arc::new(storage);
    let data = StoredData::new(Arc::clone(&storage));
    let prefix = "s3://data/out/a/1";
    let outcome = async |owed| data.outcome(prefix, owed).await.unwrap();
    assert_eq!(outcome(Owed::Nothing).await, Outcome::Complete);
    assert!(matches!(
        outcome(Owed::Outputs).await,
        Outcome::Incomplete(_)
    ));
    let url = format!("{prefix}/outputs.pb");
    storage.write(&url, Bytes::new()).await.unwrap();
    assert_eq!(outcome(Owed::Outputs).await, Outcome::Complete);
    assert_eq!(
        data.inputs(&url).await.unwrap(),
        Ok(Some(LiteralMap::default()))
    );
    storage.write(&url, "<html>".into()).await.unwrap();
    let why = data.inputs(&url).await.unwrap().unwrap_err();
    assert!(
        why.starts_with("expected a flyteidl2.core.LiteralMap in s3://data/"),
        "{why}"
    );
    let error = document(Kind::Recoverable, execution_error::ErrorKind::User);
    storage
        .write(&format!("{prefix}/error.pb"), error.into())
        .await
        .unwrap();
    assert!(matches!(
        outcome(Owed::Outputs).await,
        Outcome::Failed { .. }
    ));
}

#[test]
fn of_a_long_text_the_beginning_and_the_end_are_kept() {
    assert_eq!(excerpt("short", 8), "short");
    let long = format!("{}ö{}", "a".repeat(20), "z".repeat(20));
    let short = excerpt(&long, 8);
    assert_eq!(short, "aa\n… 34 bytes left out …\nzzzzzz");
    assert_eq!(excerpt(&"ö".repeat(9), 8), "ö\n… 10 bytes left out …\nööö");
}
