//! Against a server that speaks as much of S3 as is used.

use std::time::Duration;

use axum::{
    Router,
    body::{Body, Bytes},
    response::Response,
};
use futures::{StreamExt, stream};
use http::{Request, StatusCode};
use longshore_test::{Answer, Conduct, ForeignServer, Received, serve};

use super::{
    objects::{Objects, Words, response},
    *,
};

const WORDS: Words = Words {
    written: StatusCode::OK,
    no_object: "NoSuchKey",
    no_bucket: "NoSuchBucket",
    refusals: &[
        ("closed", StatusCode::FORBIDDEN, "AccessDenied"),
        ("broken", StatusCode::BAD_REQUEST, "BadDay"),
    ],
    message: "No.",
};

async fn storage(objects: Objects) -> Storage {
    storage_in(objects, &[]).await
}

/// The same with these variables of the environment.
async fn storage_in(objects: Objects, environment: &[(&str, &str)]) -> Storage {
    let answer = async move |request: Request<Body>| {
        let (head, body) = request.into_parts();
        let authorization = head.headers["authorization"].to_str().unwrap();
        assert!(authorization.contains("Credential=id/"), "{authorization}");
        let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let (status, body) = objects.answer(&WORDS, &head.method, head.uri.path(), body);
        response(&head.method, status, body)
    };
    let url = serve(Router::new().fallback(answer)).await;
    at(&url, environment)
}

/// The storage whose buckets are at this address.
fn at(url: &str, environment: &[(&str, &str)]) -> Storage {
    let config = serde_json::json!({
        "type": "stow",
        "stow": {"kind": "s3", "config": {
            "auth_type": "accesskey", "access_key_id": "id", "secret_key": "secret",
            "endpoint": url, "disable_ssl": true, "region": "us-east-1",
        }},
        "limits": {"maxDownloadMBs": 1},
    });
    let environment = environment.iter();
    let environment = environment.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Storage::new(&serde_json::from_value(config).unwrap(), environment).unwrap()
}

#[tokio::test]
async fn what_is_written_to_a_bucket_is_read_from_it() {
    let storage = storage(Objects::default()).await;
    let url = "s3://data/run one/a=b/outputs.pb";
    assert_eq!(storage.read(url).await.unwrap(), File::Missing);
    assert!(!storage.exists(url).await.unwrap());
    storage.write(url, Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(
        storage.read(url).await.unwrap(),
        File::Read(Bytes::from_static(b"x"))
    );
    assert!(storage.exists(url).await.unwrap());
    let large = Bytes::from(vec![0; (1 << 20) + 1]);
    storage
        .write(url, large[..1 << 20].to_vec().into())
        .await
        .unwrap();
    assert!(matches!(storage.read(url).await.unwrap(), File::Read(_)));
}

#[tokio::test]
async fn the_address_of_the_configuration_counts_whatever_the_environment_names() {
    for name in ["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"] {
        let storage = storage_in(Objects::default(), &[(name, "http://127.0.0.1:1")]).await;
        let found = storage.read("s3://data/outputs.pb").await;
        assert_eq!(found.unwrap(), File::Missing, "{name}");
    }
}

#[tokio::test]
async fn a_file_beyond_the_limit_is_not_read() {
    let objects = Objects::default();
    let large = Bytes::from(vec![0; (1 << 20) + 1]);
    objects.put("/data/outputs.pb", large);
    let found = storage(objects).await.read("s3://data/outputs.pb").await;
    assert_eq!(found.unwrap(), File::TooLarge((1 << 20) + 1));
}

#[tokio::test]
async fn a_bucket_that_refuses_says_why_and_one_that_is_not_there_is_no_missing_file() {
    let storage = storage(Objects::default()).await;
    for (url, expected) in [
        (
            "s3://closed/x",
            "s3://closed/x cannot be read: its store refuses with AccessDenied: No.",
        ),
        (
            "s3://none/x",
            "s3://none/x cannot be read: there is no such bucket",
        ),
        ("s3://broken/x", "s3://broken/x cannot be read"),
        (
            "gs://data/x",
            "expected a URL of a store that is configured (file://, s3://), found gs://data/x",
        ),
    ] {
        let error = storage.read(url).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let broken = storage.read("s3://broken/x").await.unwrap_err();
    assert_eq!(
        broken.why(),
        "s3://broken/x cannot be read: BadDay: No.",
        "what is at the bottom, without counts and times"
    );
    let error = storage
        .write("s3://closed/x", Bytes::new())
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("cannot be written: its store refuses"),
        "{error}"
    );
}

#[tokio::test]
async fn a_store_that_is_not_reached_is_named() {
    // A server without TLS; one that is not there; a name that no DNS has, because a part of it is too long.
    let plain = serve(Router::new()).await.replace("http://", "https://");
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let nameless = format!("http://{}.invalid:9000", "n".repeat(64));
    for url in [plain, closed, nameless] {
        let storage = at(&url, &[]);
        let url = url.trim_end_matches('/');
        let begin = format!("s3://data/x cannot be read: the request to {url} failed: ");
        let error = storage.read("s3://data/x").await.unwrap_err();
        let why = error.why();
        assert!(why.starts_with(&begin) && why.len() > begin.len(), "{why}");
        assert!(!why.contains("secret"), "{why}");
        assert_eq!(error.class(), longshore_core::Class::Retry);
    }
}

/// A store that does this with each request.
async fn misbehaving(
    conduct: impl Fn(&Received) -> Conduct + Send + Sync + 'static,
) -> (ForeignServer, Storage) {
    let server = ForeignServer::start(conduct).await.unwrap();
    let storage = at(&server.url(), &[]);
    (server, storage)
}

#[tokio::test(start_paused = true)]
async fn a_store_that_drips_or_is_silent_is_given_up_in_time() {
    let drips = misbehaving(|_| {
        let slow = object(vec![0; 1000]);
        Conduct::Drips(slow, Duration::from_secs(1))
    });
    let is_silent = misbehaving(|_| Conduct::hangs());
    let (_slow, drips) = drips.await;
    let (_silent, is_silent) = is_silent.await;
    let url = "s3://data/x";
    for failed in [
        drips.read(url).await.map(drop),
        is_silent.read(url).await.map(drop),
        is_silent.exists(url).await.map(drop),
        is_silent.write(url, Bytes::new()).await,
    ] {
        let error = failed.unwrap_err().to_string();
        assert!(error.contains("s3://data/x cannot be"), "{error}");
    }
}

#[tokio::test]
async fn a_store_that_redirects_for_ever_answers_too_much_or_something_else_is_no_missing_file() {
    let (server, redirects) = misbehaving(|received| {
        let mut answer = Answer::new(StatusCode::TEMPORARY_REDIRECT, "text/plain", Bytes::new());
        let location = received.path.parse().unwrap();
        answer.headers.insert("location", location);
        Conduct::Answers(answer)
    })
    .await;
    redirects.read("s3://data/x").await.unwrap_err();
    let n_asked = server.n_received();
    assert!(n_asked <= 20, "{n_asked}");

    let (_server, large) = misbehaving(|_| Conduct::Answers(object(vec![0; 16 << 20]))).await;
    let found = large.read("s3://data/x").await.unwrap();
    assert_eq!(found, File::TooLarge(16 << 20));

    let (_server, other) =
        misbehaving(|_| Conduct::Answers(Answer::new(StatusCode::OK, "text/html", "<html>"))).await;
    let found = other.read("s3://data/x").await.unwrap();
    assert_eq!(
        found,
        File::Read("<html>".into()),
        "which is for the reader to refuse"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_cut_off_is_no_file_and_is_asked_for_again() {
    let whole = Bytes::from_static(b"inputs");
    let size = whole.len();
    let begin = whole.slice(..size - 1);
    let cut = async move || {
        let pieces = [Ok(begin.clone()), Err(std::io::Error::other("cut"))];
        let pieces = stream::iter(pieces).then(async move |piece| {
            tokio::time::sleep(Duration::from_millis(1)).await;
            piece
        });
        Response::builder()
            .header("etag", "\"x\"")
            .header("last-modified", "Mon, 01 Jan 2024 00:00:00 GMT")
            .header("content-length", size)
            .body(Body::from_stream(pieces))
            .unwrap()
    };
    let cut = at(&serve(Router::new().fallback(cut)).await, &[]);
    let mut part = object(whole[..2].to_vec());
    part.status = StatusCode::PARTIAL_CONTENT;
    let range = format!("bytes 0-1/{size}").parse().unwrap();
    part.headers.insert("content-range", range);
    let (_server, part) = misbehaving(move |_| Conduct::Answers(part.clone())).await;
    for (storage, expected) in [
        (
            part,
            format!("its store answered with a part of it only (bytes 0-1/{size})"),
        ),
        (
            cut,
            format!(
                "the answer of its store is cut off after {} of {size} bytes",
                size - 1
            ),
        ),
    ] {
        let error = storage.read("s3://data/x").await.unwrap_err();
        assert_eq!(
            error.why(),
            format!("s3://data/x cannot be read: {expected}")
        );
        assert_eq!(error.class(), longshore_core::Class::Retry);
    }
}

fn object(body: Vec<u8>) -> Answer {
    let mut answer = Answer::new(StatusCode::OK, "application/octet-stream", body);
    let headers = &mut answer.headers;
    headers.insert("etag", "\"x\"".parse().unwrap());
    let written = "Mon, 01 Jan 2024 00:00:00 GMT".parse().unwrap();
    headers.insert("last-modified", written);
    answer
}
