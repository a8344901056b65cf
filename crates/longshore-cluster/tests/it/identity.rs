//! Service accounts, their tokens, and certificates of clients: who a request is from.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use longshore_cluster::{Cluster, Limits, PodIdentity, ServeConfig, controllers};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    harness::{Api, CONFIG_MAPS, PODS, config_map, eventually, pod},
    judge::Judge,
    wire::{Served, read_to_end, served},
};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const WHO_AM_I: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// A cluster whose pods have accounts.
fn with_accounts(root_ca: Option<&str>) -> (Cluster, Api, DropGuard) {
    let builder = Cluster::builder().pod_identity(PodIdentity::ServiceAccounts);
    let cluster = builder.build();
    let shutdown = CancellationToken::new();
    tokio::spawn(controllers::run_service_accounts(
        cluster.client(),
        root_ca.map(str::to_owned),
        shutdown.clone(),
    ));
    let api = Api::new(&cluster);
    (cluster, api, shutdown.drop_guard())
}

/// Sends a request on a connection, which ends with it.
async fn send(
    mut stream: TlsStream<TcpStream>,
    method: &str,
    path: &str,
    token: &str,
    body: &Value,
) -> (u16, Value) {
    let body = body.to_string();
    let length = body.len();
    let authorization = match token {
        "" => String::new(),
        token => format!("authorization: Bearer {token}\r\n"),
    };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{authorization}\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    let answer = read_to_end(&mut stream).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, serde_json::from_str(body).unwrap())
}

/// Code and user of the bearer of a token.
async fn bearer(served: &Served, token: &str) -> (u16, Value) {
    let stream = served.connect().await;
    let (code, review) = send(stream, "POST", WHO_AM_I, token, &json!({})).await;
    (code, review["status"]["userInfo"].clone())
}

async fn token(api: &Api, account: &str, spec: Value) -> String {
    let path = format!("{ACCOUNTS}/{account}/token");
    let issued = api.make(&path, json!({"spec": spec})).await;
    issued["status"]["token"].as_str().unwrap().to_owned()
}

fn bound_to(pod: &Value) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]})
}

fn pod_of(name: &str, account: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["serviceAccountName"] = account.into();
    pod
}

#[tokio::test]
async fn every_namespace_has_an_account_and_the_certificate_of_the_authority() {
    let (_cluster, api, _running) = with_accounts(Some("PEM"));
    api.make("/api/v1/namespaces", json!({"metadata": {"name": "new"}}))
        .await;
    for namespace in ["default", "kube-system", "new"] {
        let path = format!("/api/v1/namespaces/{namespace}");
        let account = format!("{path}/serviceaccounts/default");
        let bundle = format!("{path}/configmaps/kube-root-ca.crt");
        eventually(&api, &account, |code, _| code == 200).await;
        eventually(&api, &bundle, |_, it| it["data"]["ca.crt"] == "PEM").await;
        // What is taken away or changed comes back.
        api.delete(&account, Value::Null).await;
        api.patch("merge", &bundle, json!({"data": {"ca.crt": "x", "b": "c"}}))
            .await;
        eventually(&api, &account, |code, _| code == 200).await;
        let is_as_before = |_: u16, it: &Value| it["data"] == json!({"ca.crt": "PEM"});
        eventually(&api, &bundle, is_as_before).await;
    }
}

#[tokio::test]
async fn a_pod_runs_as_an_account_that_exists_and_finds_its_token() {
    let (_cluster, api, _running) = with_accounts(None);
    api.make("/api/v1/namespaces", json!({"metadata": {"name": "new"}}))
        .await;
    // The account of a new namespace is waited for.
    let made = api.make("/api/v1/namespaces/new/pods", pod("p")).await;
    assert_eq!(made["spec"]["serviceAccountName"], "default");
    assert_eq!(made["spec"]["serviceAccount"], "default");
    let mount = &made["spec"]["containers"][0]["volumeMounts"][0];
    assert_eq!(
        mount["mountPath"],
        "/var/run/secrets/kubernetes.io/serviceaccount"
    );
    let volume = &made["spec"]["volumes"][0];
    assert_eq!(volume["name"], mount["name"]);
    let sources = volume["projected"]["sources"].as_array().unwrap();
    assert_eq!(sources.len(), 3);

    let (code, refused) = api.post(PODS, pod_of("p", "nobody")).await;
    assert_eq!(code, 403);
    let expected = "pods \"p\" is forbidden: error looking up service account default/nobody: \
                    serviceaccount \"nobody\" not found";
    assert_eq!(refused["message"], expected);

    api.make(
        ACCOUNTS,
        json!({"metadata": {"name": "quiet"}, "automountServiceAccountToken": false}),
    )
    .await;
    let made = api.make(PODS, pod_of("p", "quiet")).await;
    assert_eq!(made["spec"]["volumes"], Value::Null);
}

#[tokio::test]
async fn the_bearer_of_a_token_is_the_account_of_the_pod() {
    let served = served(Cluster::in_memory(), Limits::default());
    let api = Api::new(&served.cluster);
    let account = api.make(ACCOUNTS, json!({"metadata": {"name": "a"}})).await;
    let mut pod = pod_of("p", "a");
    pod["spec"]["nodeName"] = "n1".into();
    let pod = api.make(PODS, pod).await;
    let token = token(&api, "a", json!({"boundObjectRef": bound_to(&pod)})).await;
    let (code, user) = bearer(&served, &token).await;
    assert_eq!(code, 201);
    assert_eq!(user["username"], "system:serviceaccount:default:a");
    assert_eq!(user["uid"], account["metadata"]["uid"]);
    assert_eq!(
        user["groups"],
        json!([
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated"
        ])
    );
    let extra = |key: &str| &user["extra"][format!("authentication.kubernetes.io/{key}")][0];
    assert_eq!(*extra("pod-name"), "p");
    assert_eq!(*extra("pod-uid"), pod["metadata"]["uid"]);
    assert_eq!(*extra("node-name"), "n1");
    let id = extra("credential-id").as_str().unwrap();
    assert!(id.starts_with("JTI="), "{id}");

    // Deletion of the pod, and then of the account, ends their tokens.
    let of_account = self::token(&api, "a", json!({})).await;
    api.delete(&format!("{PODS}/p"), json!({"gracePeriodSeconds": 0}))
        .await;
    assert_eq!(bearer(&served, &token).await.0, 401);
    assert_eq!(bearer(&served, &of_account).await.0, 201);
    api.delete(&format!("{ACCOUNTS}/a"), Value::Null).await;
    assert_eq!(bearer(&served, &of_account).await.0, 401);
    // A namesake is somebody else.
    api.make(ACCOUNTS, json!({"metadata": {"name": "a"}})).await;
    assert_eq!(bearer(&served, &of_account).await.0, 401);
}

#[tokio::test]
async fn tokens_of_other_clusters_and_for_others_are_refused() {
    let served_one = served(Cluster::in_memory(), Limits::default());
    let other = served(Cluster::in_memory(), Limits::default());
    let (here, there) = (Api::new(&served_one.cluster), Api::new(&other.cluster));
    for api in [&here, &there] {
        api.make(ACCOUNTS, json!({"metadata": {"name": "a"}})).await;
    }
    let good = token(&here, "a", json!({})).await;
    let for_others = token(&here, "a", json!({"audiences": ["vault"]})).await;
    let foreign = token(&there, "a", json!({})).await;
    let (head, _) = good.rsplit_once('.').unwrap();
    let (_, signature) = foreign.rsplit_once('.').unwrap();
    let forged = format!("{head}.{signature}");
    for (token, code) in [
        (&good, 201),
        (&for_others, 401),
        (&foreign, 401),
        (&forged, 401),
    ] {
        assert_eq!(bearer(&served_one, token).await.0, code);
    }
    let review = async |token: &str, audiences: Value| {
        let spec = json!({"spec": {"token": token, "audiences": audiences}});
        here.make(REVIEWS, spec).await["status"].clone()
    };
    let status = review(&for_others, json!(["vault", "x"])).await;
    assert_eq!(status["authenticated"], true);
    assert_eq!(status["audiences"], json!(["vault"]));
    let username = "system:serviceaccount:default:a";
    assert_eq!(status["user"]["username"], username);
    for (token, why) in [
        (
            for_others.as_str(),
            "[invalid bearer token, token audiences [\"vault\"] is invalid for the target audiences \
             [\"https://kubernetes.default.svc\"]]",
        ),
        (
            foreign.as_str(),
            "[invalid bearer token, invalid signature, no keys found]",
        ),
        ("garbage", "invalid bearer token"),
    ] {
        let status = review(token, Value::Null).await;
        assert_eq!(status, json!({"user": {}, "error": why}));
    }
    let (code, refused) = here.post(REVIEWS, json!({"spec": {}})).await;
    assert_eq!(code, 400, "{refused}");
    let admin = review(&served_one.file("token"), Value::Null).await;
    assert_eq!(admin["user"]["username"], "longshore-admin");
}

#[tokio::test]
async fn requests_for_tokens_are_judged_as_upstream_judges_them() {
    let api = Api::new(&Cluster::in_memory());
    api.make(ACCOUNTS, json!({"metadata": {"name": "a"}})).await;
    let pod = api.make(PODS, pod_of("p", "other")).await;
    let mine = api.make(PODS, pod_of("mine", "a")).await;
    let mut reborn = bound_to(&mine);
    reborn["uid"] = "x".into();
    let path = format!("{ACCOUNTS}/a/token");
    for (body, code, message) in [
        (
            json!({"spec": {"expirationSeconds": 599}}),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 599: \
             may not specify a duration less than 10 minutes",
        ),
        (
            json!({"spec": {"expirationSeconds": 4_294_967_297_i64}}),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: \
             4294967297: may not specify a duration larger than 2^32 seconds",
        ),
        (
            json!({"spec": {"boundObjectRef": bound_to(&pod)}}),
            400,
            "cannot bind token for serviceaccount \"a\" to pod running with different serviceaccount name.",
        ),
        (
            json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "none"}}}),
            404,
            "pods \"none\" not found",
        ),
        (
            json!({"spec": {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "c"}}}),
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
        (
            json!({"spec": {"boundObjectRef": reborn}}),
            409,
            "Operation cannot be fulfilled on Pod \"mine\": the UID in the bound object reference (x) does not match \
             the UID in record. The object might have been deleted and then recreated",
        ),
        (
            json!({"metadata": {"name": "b"}}),
            422,
            "TokenRequest.authentication.k8s.io \"a\" is invalid: metadata.name: Invalid value: \"b\": must match \
             the service account name if specified",
        ),
    ] {
        let (found, refused) = api.post(&path, body).await;
        assert_eq!(refused["message"], message);
        assert_eq!(found, code, "{message}");
    }
    let (code, refused) = api.post(&format!("{ACCOUNTS}/none/token"), json!({})).await;
    assert_eq!(code, 404);
    assert_eq!(refused["message"], "serviceaccounts \"none\" not found");
    assert_eq!(api.get(&path).await.0, 405);
}

#[tokio::test]
async fn the_answer_to_a_request_for_a_token_says_what_was_issued() {
    let now: Timestamp = "2026-01-01T00:00:00.5Z".parse().unwrap();
    let cluster = Cluster::builder().clock(Arc::new(move || now)).build();
    let api = Api::new(&cluster);
    api.make(ACCOUNTS, json!({"metadata": {"name": "a"}})).await;
    let pod = api.make(PODS, pod_of("p", "a")).await;
    let path = format!("{ACCOUNTS}/a/token");
    // As clients in Go send it.
    let asked = json!({"spec": {"audiences": null, "expirationSeconds": 3607, "boundObjectRef": bound_to(&pod)},
        "status": {"token": "", "expirationTimestamp": null}});
    let issued = api.make(&path, asked).await;
    assert_eq!(issued["kind"], "TokenRequest");
    assert_eq!(issued["apiVersion"], "authentication.k8s.io/v1");
    let metadata =
        json!({"name": "a", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(issued["metadata"], metadata);
    assert_eq!(
        issued["spec"]["audiences"],
        json!(["https://kubernetes.default.svc"])
    );
    assert_eq!(
        issued["status"]["expirationTimestamp"],
        "2026-01-01T01:00:07Z"
    );
    // The token of a volume works longer than it says.
    let claims = claims(issued["status"]["token"].as_str().unwrap());
    let issued_at = claims["iat"].as_i64().unwrap();
    assert_eq!(claims["exp"], issued_at + 365 * 24 * 3600);
    assert_eq!(claims["kubernetes.io"]["warnafter"], issued_at + 3607);
    assert_eq!(claims["kubernetes.io"]["pod"]["name"], "p");
    let plain = claims_of(&api, json!({"expirationSeconds": 3607})).await;
    assert_eq!(plain["exp"], issued_at + 3607);
    assert_eq!(plain["sub"], "system:serviceaccount:default:a");
}

async fn claims_of(api: &Api, spec: Value) -> Value {
    claims(&token(api, "a", spec).await)
}

fn claims(token: &str) -> Value {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
    let payload = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

#[tokio::test]
async fn a_token_is_good_after_a_restart_of_the_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("cluster");
    let open = || served(Cluster::open(&place).unwrap(), Limits::default());
    let before = open();
    let api = Api::new(&before.cluster);
    api.make(ACCOUNTS, json!({"metadata": {"name": "a"}})).await;
    let token = token(&api, "a", json!({})).await;
    drop(api);
    let Served {
        cluster, serving, ..
    } = before;
    serving.stop(Duration::from_secs(1)).await;
    cluster.close();
    drop(cluster);
    let after = open();
    assert_eq!(bearer(&after, &token).await.0, 201);
    // Not the directory of the kubeconfig keeps this key, which is another one in each run of this test.
    assert!(!after.directory.path().join("api/sa.key").exists());
}

#[tokio::test]
async fn a_cluster_in_memory_keeps_its_key_where_it_keeps_its_token() {
    let directory = tempfile::tempdir().unwrap();
    let mut keys = Vec::new();
    for _ in 0..2 {
        let cluster = Cluster::in_memory();
        let config = ServeConfig::new(directory.path());
        let listening = cluster.listen(config).unwrap();
        let authority = std::fs::read_to_string(directory.path().join("ca.crt")).unwrap();
        assert_eq!(listening.certificate_authority(), authority);
        let (code, set) = Api::new(&cluster).get("/openid/v1/jwks").await;
        assert_eq!(code, 200);
        keys.push(set["keys"][0].clone());
    }
    assert_eq!(keys[0], keys[1]);
    assert_eq!(keys[0]["kty"], "EC");
}

/// A certificate for a client, signed by the key of an authority.
pub(crate) fn certificate(
    authority_key: &str,
) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let mut authority = CertificateParams::default();
    authority
        .distinguished_name
        .push(DnType::CommonName, "longshore-ca");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let issuer = Issuer::new(authority, KeyPair::from_pem(authority_key).unwrap());
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "jane");
    params
        .distinguished_name
        .push(DnType::OrganizationName, "developers");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    (certificate.der().clone(), key)
}

#[tokio::test]
async fn a_certificate_of_the_cluster_names_a_user_and_others_need_a_token() {
    let served = served(Cluster::in_memory(), Limits::default());
    let ours = served.file("ca.key");
    let theirs = KeyPair::generate().unwrap().serialize_pem();
    let admin = served.file("token");
    for (authority, token, code, user) in [
        (&ours, "", 201, "jane"),
        (&theirs, "", 401, ""),
        (&theirs, admin.as_str(), 201, "longshore-admin"),
    ] {
        let stream = served.connect_as(Some(certificate(authority))).await;
        let (found, review) = send(stream, "POST", WHO_AM_I, token, &json!({})).await;
        assert_eq!(found, code, "{review}");
        let info = &review["status"]["userInfo"];
        assert_eq!(info["username"].as_str().unwrap_or_default(), user);
        if user == "jane" {
            let groups = json!(["developers", "system:authenticated"]);
            assert_eq!(info["groups"], groups);
        }
    }
}

#[tokio::test]
async fn webhooks_are_told_who_sends_a_request() {
    let served = served(Cluster::in_memory(), Limits::default());
    let judge = Judge::start();
    let api = Api::new(&served.cluster);
    let webhook = json!({
        "name": "one.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": format!("{}/allow", judge.url()), "caBundle": judge.ca_bundle()},
        "rules": [{
            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
        }],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let registration = json!({"metadata": {"name": "one"}, "webhooks": [webhook]});
    api.make(path, registration).await;
    api.make(ACCOUNTS, json!({"metadata": {"name": "a"}})).await;
    let token = token(&api, "a", json!({})).await;
    let (_, user) = bearer(&served, &token).await;
    let stream = served.connect().await;
    let (code, made) = send(stream, "POST", CONFIG_MAPS, &token, &config_map("m", "v")).await;
    assert_eq!(code, 201, "{made}");
    let asked = judge.asked("/allow");
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0]["userInfo"], user);
    assert_eq!(user["username"], "system:serviceaccount:default:a");
}
