//! Against a server that speaks as much of Azure's Blob service, and of its services for tokens, as is used.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::{Body, Bytes},
    response::Response,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, Method, Request, StatusCode, request::Parts};
use longshore_outbound::Permit;
use longshore_test::serve;
use sha2::{Digest, Sha256};

use super::{
    objects::{Objects, Words, response},
    *,
};

/// Of the account `acme`, as base64.
const KEY: &str = "c2VjcmV0IG9mIHRoZSBhY2NvdW50";
/// Stands for the requests for a token.
const TOKEN: &str = "token";
const NOBODY: &str = "http://127.0.0.1:1";

const WORDS: Words = Words {
    written: StatusCode::CREATED,
    no_object: "BlobNotFound",
    no_bucket: "ContainerNotFound",
    refusals: &[("closed", StatusCode::FORBIDDEN, "AuthorizationFailure")],
    message: "No.\nRequestId:1\nTime:2",
};

/// One account.
#[derive(Clone, Default)]
struct Account {
    blobs: Objects,
    /// What was asked, and by whom.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Account {
    async fn answer(self, request: Request<Body>) -> Response {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 2 << 20).await.unwrap();
        let path = head.uri.path();
        let token = match path {
            "/tenant/oauth2/v2.0/token" => Some(federated(&head, &body)),
            "/identity" => Some(of_machine(&head)),
            _ => None,
        };
        let asked = match &token {
            Some(_) => TOKEN.to_owned(),
            None => format!("{} {path} by {}", head.method, asker(&head)),
        };
        self.asked.lock().unwrap().push(asked);
        let (status, body) = match token {
            Some(token) => (StatusCode::OK, token),
            None => self.blobs.answer(&WORDS, &head.method, path, body),
        };
        response(&head.method, status, body)
    }
}

/// The answer to whoever shows the token of its service account.
fn federated(head: &Parts, body: &[u8]) -> Bytes {
    assert_eq!(head.method, Method::POST);
    let form = String::from_utf8(body.to_vec()).unwrap();
    for expected in [
        "client_id=client",
        "client_assertion=of-service-account",
        "scope=https%3A%2F%2Fstorage.azure.com%2F.default",
        "grant_type=client_credentials",
    ] {
        assert!(form.split('&').any(|pair| pair == expected), "{form}");
    }
    Bytes::from_static(br#"{"access_token": "federated", "expires_in": 3600}"#)
}

/// The answer to a machine that asks who it is.
fn of_machine(head: &Parts) -> Bytes {
    assert_eq!(head.headers["metadata"], "true");
    let query = head.uri.query().unwrap();
    assert!(
        query.contains("resource=https%3A%2F%2Fstorage.azure.com"),
        "{query}"
    );
    Bytes::from_static(br#"{"access_token": "of-machine", "expires_on": "32503680000"}"#)
}

/// By what a request shows that it may be made.
fn asker(head: &Parts) -> String {
    assert!(head.headers.contains_key("x-ms-version"));
    match head.headers.get("authorization") {
        Some(shown) if shown.as_bytes().starts_with(b"SharedKey") => {
            assert_eq!(shown, &signature(head), "{head:?}");
            "key".to_owned()
        }
        Some(shown) => shown.to_str().unwrap().to_owned(),
        None => head.uri.query().unwrap_or("nobody").to_owned(),
    }
}

/// What the documentation of Azure has for the header Authorization of a request without a query.
fn signature(head: &Parts) -> String {
    let Parts {
        headers, method, ..
    } = head;
    assert_eq!(head.uri.query(), None);
    let mut lines = vec![method.to_string()];
    lines.extend(["content-encoding", "content-language"].map(|name| value(headers, name)));
    let length = value(headers, "content-length");
    lines.push(length.strip_prefix("0").unwrap_or(&length).to_owned());
    let others = [
        "content-md5",
        "content-type",
        "date",
        "if-modified-since",
        "if-match",
        "if-none-match",
        "if-unmodified-since",
        "range",
    ];
    lines.extend(others.map(|name| value(headers, name)));
    let own = headers.keys().map(http::HeaderName::as_str);
    let mut own: Vec<&str> = own.filter(|name| name.starts_with("x-ms-")).collect();
    own.sort_unstable();
    lines.extend(
        own.iter()
            .map(|name| format!("{name}:{}", value(headers, name))),
    );
    lines.push(format!("/acme{}", head.uri.path()));
    let key = BASE64_STANDARD.decode(KEY).unwrap();
    let signature = hmac(&key, lines.join("\n").as_bytes());
    format!("SharedKey acme:{}", BASE64_STANDARD.encode(signature))
}

fn value(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name).map(|value| value.to_str().unwrap());
    value.unwrap_or_default().to_owned()
}

/// HMAC (RFC 2104) with SHA-256 and a key that is not longer than a block.
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let digest = |pad: u8, text: &[u8]| {
        let padded = block.map(|byte| byte ^ pad);
        Sha256::digest([&padded[..], text].concat()).to_vec()
    };
    digest(0x5c, &digest(0x36, text))
}

async fn started(account: &Account) -> String {
    let account = account.clone();
    let answer = move |request: Request<Body>| account.clone().answer(request);
    serve(Router::new().fallback(answer)).await
}

/// The storage of the account at this address.
fn at(url: &str, key: &str, environment: &[(&str, &str)]) -> Storage {
    let config = serde_json::json!({
        "type": "stow",
        "stow": {"kind": "azure", "config": {"account": "acme", "key": key, "endpoint": url}},
        "limits": {"maxDownloadMBs": 1},
    });
    let environment = environment.iter();
    let environment = environment.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Storage::new(&serde_json::from_value(config).unwrap(), environment).unwrap()
}

/// Writes, reads and looks for a blob. Returns by what each request showed that it may be made.
async fn use_up(account: &Account, storage: &Storage) -> Vec<String> {
    let url = "abfs://data/run one/a=b/outputs.pb";
    let written = Bytes::from_static(b"outputs");
    storage.write(url, written.clone()).await.unwrap();
    assert_eq!(storage.read(url).await.unwrap(), File::Read(written));
    assert!(storage.exists(url).await.unwrap());
    let mut asked = std::mem::take(&mut *account.asked.lock().unwrap());
    asked.retain(|asked| asked != TOKEN);
    let path = " /data/run%20one/a=b/outputs.pb by ";
    let shown = ["PUT", "GET", "HEAD"].into_iter().zip(&asked);
    let shown = shown.map(|(method, asked)| {
        let shown = asked
            .strip_prefix(method)
            .and_then(|it| it.strip_prefix(path));
        shown.unwrap_or_else(|| panic!("{asked}")).to_owned()
    });
    let shown: Vec<String> = shown.collect();
    assert_eq!(shown.len(), asked.len(), "{asked:?}");
    shown
}

#[tokio::test]
async fn requests_show_the_key_or_the_token_that_the_configuration_or_the_pod_has() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "of-service-account").unwrap();
    let account = Account::default();
    let url = started(&account).await;
    // As the webhook of workload identities writes it.
    let authority = format!("{url}/");
    let identity = format!("{url}/identity");
    let of_pod = [
        ("AZURE_CLIENT_ID", "client"),
        ("AZURE_TENANT_ID", "tenant"),
        ("AZURE_FEDERATED_TOKEN_FILE", token.to_str().unwrap()),
        ("AZURE_AUTHORITY_HOST", authority.as_str()),
    ];
    let of_pod_and_token = [&of_pod[..], &[("AZURE_STORAGE_TOKEN", "another")][..]].concat();
    let of_machine = [("IDENTITY_ENDPOINT", identity.as_str())];
    let of_machine_too = [("AZURE_MSI_ENDPOINT", identity.as_str())];
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);
    let table: [Row<'_>; 7] = [
        (KEY, &[], "key"),
        (KEY, &of_pod_and_token, "key"),
        ("", &[("AZURE_STORAGE_ACCOUNT_KEY", KEY)], "key"),
        (
            "",
            &[("AZURE_STORAGE_SAS_TOKEN", "?sv=2024-11-04&sig=a%2Bb")],
            "sv=2024-11-04&sig=a%2Bb",
        ),
        ("", &of_pod, "Bearer federated"),
        ("", &of_machine, "Bearer of-machine"),
        ("", &of_machine_too, "Bearer of-machine"),
    ];
    for (key, environment, expected) in table {
        let storage = at(&url, key, environment);
        let shown = use_up(&account, &storage).await;
        assert_eq!(shown, [expected; 3], "{environment:?}");
    }
}

#[tokio::test]
async fn the_address_of_the_configuration_counts_whatever_the_environment_names_for_azure() {
    let account = Account::default();
    let url = started(&account).await;
    for (name, value) in [
        ("AZURE_STORAGE_ENDPOINT", NOBODY),
        ("AZURE_STORAGE_USE_EMULATOR", "true"),
        ("AZURE_STORAGE_ACCOUNT_NAME", "other"),
        ("AZURE_CONTAINER_NAME", "other"),
    ] {
        let storage = at(&url, KEY, &[(name, value)]);
        assert_eq!(use_up(&account, &storage).await, ["key"; 3], "{name}");
    }
}

#[tokio::test]
async fn a_url_may_name_the_account_of_the_configuration_and_no_other_one() {
    let account = Account::default();
    let storage = at(&started(&account).await, KEY, &[]);
    let blob = Bytes::from_static(b"x");
    storage.write("abfs://data/x", blob.clone()).await.unwrap();
    for url in [
        "abfss://data/x",
        "abfs://data@acme.dfs.core.windows.net/x",
        "abfss://data@acme.blob.core.windows.net/x",
    ] {
        let found = storage.read(url).await.unwrap();
        assert_eq!(found, File::Read(blob.clone()), "{url}");
    }
    let n_asked = account.asked.lock().unwrap().len();
    for url in [
        "abfss://data@other.dfs.core.windows.net/x",
        "abfss://data@acme.dfs.example.com/x",
    ] {
        let refused = storage.read(url).await.unwrap_err().to_string();
        let expected = "expected a URL of a store that is configured (file://, abfs:// of account acme), found ";
        assert_eq!(refused, format!("{expected}{url}"));
    }
    assert_eq!(account.asked.lock().unwrap().len(), n_asked);
}

#[tokio::test]
async fn a_container_that_refuses_says_why_and_one_that_is_not_there_is_no_missing_file() {
    let account = Account::default();
    let storage = at(&started(&account).await, KEY, &[]);
    let missing = storage.read("abfs://data/x").await.unwrap();
    assert_eq!(missing, File::Missing);
    assert!(!storage.exists("abfs://data/x").await.unwrap());
    for (url, expected) in [
        (
            "abfs://closed/x",
            "abfs://closed/x cannot be read: its store refuses with AuthorizationFailure: No.",
        ),
        (
            "abfs://none/x",
            "abfs://none/x cannot be read: there is no such bucket",
        ),
    ] {
        let error = storage.read(url).await.unwrap_err();
        assert_eq!(error.why(), expected);
        assert!(error.is_refusal(), "{url}");
    }
    let large = Bytes::from(vec![0; (1 << 20) + 1]);
    storage.write("abfs://data/x", large).await.unwrap();
    let found = storage.read("abfs://data/x").await.unwrap();
    assert_eq!(found, File::TooLarge((1 << 20) + 1));
}

#[tokio::test]
async fn without_a_permit_neither_azure_nor_its_services_for_tokens_are_asked() {
    let account = Account::default();
    let url = started(&account).await;
    let identity = format!("{url}/identity");
    let of_machine = [("IDENTITY_ENDPOINT", identity.as_str())];
    let table: [(&str, &[(&str, &str)]); 2] = [(KEY, &[]), ("", &of_machine)];
    for (key, environment) in table {
        let storage = at(&url, key, environment).with_permit(Permit::new(|| false));
        storage.read("abfs://data/x").await.unwrap_err();
    }
    assert_eq!(*account.asked.lock().unwrap(), [""; 0]);
}

#[test]
fn a_table_says_which_containers_of_azure_a_namespace_may_name() {
    let yaml = r#"{type: stow, stow: {kind: azure, config: {account: acme}}, namespaces: {
        team-a: ["abfs://a/x"], team-b: ["abfss://b@acme.dfs.core.windows.net"]}}"#;
    let storage = Storage::of_cluster(&configured(yaml), []).unwrap();
    for (namespace, url, expected) in [
        ("team-a", "abfs://a/x/1", true),
        ("team-a", "abfss://a@acme.dfs.core.windows.net/x/1", true),
        ("team-a", "abfss://a@other.dfs.core.windows.net/x/1", false),
        ("team-a", "abfs://a/y", false),
        ("team-a", "abfs://ab/x", false),
        ("team-a", "s3://a/x/1", false),
        ("team-b", "abfs://b/x", true),
        ("team-b", "abfs://a/x", false),
    ] {
        let admitted = storage.admits(namespace, url);
        assert_eq!(admitted.is_ok(), expected, "{namespace} {url}");
    }
    let refused = storage.admits("team-a", "abfs://a/../b").unwrap_err();
    let expected = "no file can be at abfs://a/../b: ";
    assert!(refused.to_string().starts_with(expected), "{refused}");
}
