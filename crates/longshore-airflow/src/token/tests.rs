use serde_json::Value;

use super::*;

const SECRET: &str = "5f0d9c1e7b3a48d2a6c4e8f01b2d3c4f5f0d9c1e7b3a48d2a6c4e8f01b2d3c4f";
const NOW: i64 = 1_795_221_955;
const TASK: &str = "01a1fb91-1df8-7778-b405-15c59206e630";
const ID: [u8; 16] = [0xd5; 16];

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn task() -> Uuid {
    TASK.parse().unwrap()
}

fn tokens(rules: TokenRules) -> Tokens {
    Tokens::new(SigningKey::secret(SECRET, None).unwrap(), rules)
}

fn issued(tokens: &Tokens, scope: TokenScope) -> String {
    tokens
        .issue(task(), scope, DEFAULT_VALIDITY, at(NOW), ID)
        .unwrap()
}

fn parts(token: &str) -> (Value, Value) {
    let mut parts = token.split('.').map(|part| {
        let decoded = BASE64_URL_SAFE_NO_PAD.decode(part).unwrap();
        serde_json::from_slice(&decoded).unwrap_or_default()
    });
    (parts.next().unwrap(), parts.next().unwrap())
}

#[test]
fn the_token_of_a_workload_says_what_that_of_upstream_says() {
    let recorded: Value = serde_json::from_str(include_str!(
        "../../testdata/execution-api/workload-token-decoded.json"
    ))
    .unwrap();
    let token = issued(&tokens(TokenRules::default()), TokenScope::Workload);
    let (header, mut claims) = parts(&token);
    assert_eq!(header, recorded["header"]);
    assert_eq!(claims["jti"], "d5d5d5d5d5d5d5d5d5d5d5d5d5d5d5d5");
    claims["jti"] = recorded["claims"]["jti"].clone();
    assert_eq!(claims, recorded["claims"]);
}

#[test]
fn tokens_that_others_signed_are_verified() {
    let vectors: Vec<Value> =
        serde_json::from_str(include_str!("../../testdata/token/signed.json")).unwrap();
    assert_eq!(vectors.len(), 6);
    for vector in vectors {
        let algorithm = Algorithm::parse(vector["alg"].as_str().unwrap());
        let key = match vector["secret"].as_str() {
            Some(secret) => SigningKey::secret(secret, algorithm).unwrap(),
            None => {
                let pem = vector["pem"].as_str().unwrap();
                let named = SigningKey::private(pem, algorithm, Some("k")).unwrap();
                assert_eq!(named.id(), "k");
                SigningKey::private(pem, algorithm, None).unwrap()
            }
        };
        assert_eq!(
            key.id(),
            vector["thumbprint"].as_str().unwrap_or("not-used")
        );
        let tokens = Tokens::new(key, TokenRules::default());
        let token = vector["token"].as_str().unwrap();
        let claims = tokens.verify(token, at(NOW)).unwrap();
        assert_eq!((claims.sub, claims.scope), (task(), TokenScope::Workload));
        // A changed signature, and a changed claim.
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let (header, payload) = signed.split_once('.').unwrap();
        let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
        bytes[0] ^= 1;
        let forged = format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(bytes));
        assert_eq!(tokens.verify(&forged, at(NOW)), Err(TokenError::Forged));
        let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).unwrap();
        let payload = String::from_utf8(payload)
            .unwrap()
            .replace("workload", "execution");
        let payload = BASE64_URL_SAFE_NO_PAD.encode(payload);
        let forged = format!("{header}.{payload}.{signature}");
        assert_eq!(tokens.verify(&forged, at(NOW)), Err(TokenError::Forged));
        // And what such a key signs, it verifies.
        let own = issued(&tokens, TokenScope::Execution);
        assert_eq!(
            tokens.verify(&own, at(NOW)).unwrap().scope,
            TokenScope::Execution
        );
    }
}

#[test]
fn a_token_is_good_for_its_time_and_the_leeway() {
    let tokens = tokens(TokenRules::default());
    let token = issued(&tokens, TokenScope::Execution);
    for (second, expected) in [
        (NOW - 11, Err(TokenError::NotYetValid { from: at(NOW) })),
        (NOW - 10, Ok(())),
        (NOW + 609, Ok(())),
        (NOW + 610, Err(TokenError::Expired { at: at(NOW + 600) })),
    ] {
        let found = tokens.verify(&token, at(second)).map(|_| ());
        assert_eq!(found, expected, "at {second}");
    }
}

#[test]
fn a_token_is_for_its_audience_and_from_its_issuer() {
    let rules = |audiences: &[&str], issuer: Option<&str>| TokenRules {
        audiences: audiences.iter().map(|it| (*it).to_owned()).collect(),
        issuer: issuer.map(str::to_owned),
        leeway: DEFAULT_LEEWAY,
    };
    let (a, b) = (rules(&["a"], None), rules(&["b", "a"], None));
    let found = |it: &str| vec![it.to_owned()];
    let issuer = |found: &str| TokenError::Issuer {
        found: found.to_owned(),
    };
    for (written, read, expected) in [
        (&a, &a, Ok(())),
        (&a, &b, Ok(())),
        (&b, &a, Err(TokenError::Audience { found: found("b") })),
        (
            &a,
            &rules(&["a"], Some("i")),
            Err(TokenError::NoClaim("iss")),
        ),
        (&rules(&["a"], Some("i")), &a, Ok(())),
        (&rules(&["a"], Some("i")), &rules(&["a"], Some("i")), Ok(())),
        (
            &rules(&["a"], Some("i")),
            &rules(&["a"], Some("j")),
            Err(issuer("i")),
        ),
    ] {
        let token = issued(&tokens(written.clone()), TokenScope::Execution);
        let read = tokens(read.clone()).verify(&token, at(NOW)).map(|_| ());
        assert_eq!(read, expected, "{written:?}");
    }
}

/// A token with any claims, signed with the good key.
fn signed(tokens: &Tokens, header: &Value, claims: &Value) -> String {
    let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(header), encode(claims));
    let signature = tokens.key.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}

#[test]
fn claims_are_required_and_the_scope_has_a_default() {
    let tokens = tokens(TokenRules::default());
    let (header, claims) = parts(&issued(&tokens, TokenScope::Workload));
    for name in ["sub", "aud", "exp", "iat", "nbf"] {
        let mut without = claims.clone();
        without.as_object_mut().unwrap().remove(name);
        let token = signed(&tokens, &header, &without);
        let refused = tokens.verify(&token, at(NOW));
        assert_eq!(refused, Err(TokenError::NoClaim(name)));
    }
    let mut old = claims.clone();
    old.as_object_mut().unwrap().remove("scope");
    old["aud"] = json!(["x", DEFAULT_AUDIENCE]);
    let read = tokens
        .verify(&signed(&tokens, &header, &old), at(NOW))
        .unwrap();
    assert_eq!(read.scope, TokenScope::Execution);
    for (name, wrong) in [
        ("sub", json!("me")),
        ("scope", json!("admin")),
        ("exp", json!("x")),
    ] {
        let mut claims = claims.clone();
        claims[name] = wrong;
        let refused = tokens.verify(&signed(&tokens, &header, &claims), at(NOW));
        assert!(matches!(refused, Err(TokenError::Claims(_))), "{name}");
    }
}

#[test]
fn a_token_without_a_signature_is_refused() {
    let tokens = tokens(TokenRules::default());
    let (_, claims) = parts(&issued(&tokens, TokenScope::Execution));
    for alg in ["none", "HS256", "RS512"] {
        let token = signed(&tokens, &json!({"alg": alg}), &claims);
        let refused = tokens.verify(&token, at(NOW));
        let found = alg.to_owned();
        let expected = Algorithm::Hs512;
        assert_eq!(refused, Err(TokenError::Algorithm { found, expected }));
    }
    for garbage in [
        "",
        "a",
        "a.b",
        "a.b.c",
        "...",
        "workload.tok.en",
        "\u{e9}.\u{e9}.\u{e9}",
    ] {
        let refused = tokens.verify(garbage, at(NOW));
        assert_eq!(refused, Err(TokenError::Malformed), "{garbage}");
    }
}

#[test]
fn a_token_permits_what_its_scope_and_its_task_instance_allow() {
    let tokens = tokens(TokenRules::default());
    let claims = |scope| tokens.verify(&issued(&tokens, scope), at(NOW)).unwrap();
    let (workload, execution) = (claims(TokenScope::Workload), claims(TokenScope::Execution));
    let (own, older_try) = (Some(task()), Some(Uuid::nil()));
    let other = Err(TokenError::OtherTaskInstance { found: task() });
    let scope = Err(TokenError::TokenScope(TokenScope::Workload));
    for (access, path, of_workload, of_execution) in [
        (Access::Open, None, Ok(()), Ok(())),
        (Access::Task, None, scope.clone(), Ok(())),
        (Access::TaskOrWorkload, None, Ok(()), Ok(())),
        (Access::SameTask, own, scope.clone(), Ok(())),
        (Access::SameTask, older_try, scope, other.clone()),
        (Access::SameTaskOrWorkload, own, Ok(()), Ok(())),
        (
            Access::SameTaskOrWorkload,
            older_try,
            other.clone(),
            other.clone(),
        ),
        (Access::SameTaskOrWorkload, None, other.clone(), other),
    ] {
        assert_eq!(workload.permit(access, path), of_workload, "{access:?}");
        assert_eq!(execution.permit(access, path), of_execution, "{access:?}");
    }
}

#[test]
fn a_token_is_refreshed_before_it_ends() {
    let tokens = tokens(TokenRules::default());
    let claims = tokens
        .verify(&issued(&tokens, TokenScope::Execution), at(NOW))
        .unwrap();
    for (validity, second, expected) in [
        (600, NOW + 479, false),
        (600, NOW + 480, true),
        (100, NOW + 569, false),
        (100, NOW + 570, true),
        (600, NOW + 700, true),
    ] {
        let validity = Duration::from_secs(validity);
        assert_eq!(claims.is_due(validity, at(second)), expected, "{second}");
    }
    let workload = tokens
        .verify(&issued(&tokens, TokenScope::Workload), at(NOW))
        .unwrap();
    assert!(!workload.is_due(DEFAULT_VALIDITY, at(NOW + 599)));
    let next = tokens
        .refresh(&claims, DEFAULT_VALIDITY, at(NOW + 500), [7; 16])
        .unwrap();
    let next = tokens.verify(&next, at(NOW + 1_000)).unwrap();
    assert_eq!(
        (next.sub, next.scope, next.exp),
        (claims.sub, claims.scope, NOW + 1_100)
    );
    assert_ne!(next.jti, claims.jti);
}

#[test]
fn refusals_have_the_statuses_of_upstream() {
    for (error, status, detail) in [
        (TokenError::Missing, 401, "Missing auth token"),
        (
            TokenError::Expired { at: at(0) },
            403,
            "Invalid auth token: Signature has expired",
        ),
        (
            TokenError::Forged,
            403,
            "Invalid auth token: Signature verification failed",
        ),
        (
            TokenError::OtherTaskInstance { found: Uuid::nil() },
            403,
            "Token subject does not match task instance ID",
        ),
        (
            TokenError::TokenScope(TokenScope::Workload),
            403,
            "Token type 'workload' not allowed for this endpoint. Allowed types: execution",
        ),
    ] {
        let answer = ApiError::from(error);
        assert_eq!(answer.status(), status);
        assert_eq!(answer.body(), json!({ "detail": detail }));
    }
}

#[test]
fn the_header_holds_a_token_or_it_is_missing() {
    assert_eq!(bearer(Some("Bearer a.b.c")), Ok("a.b.c"));
    assert_eq!(bearer(Some("bearer a")), Ok("a"));
    for none in [
        None,
        Some(""),
        Some("Bearer"),
        Some("Bearer "),
        Some("Basic a"),
    ] {
        assert_eq!(bearer(none), Err(TokenError::Missing), "{none:?}");
    }
}

#[test]
fn a_workload_outlives_the_longest_wait_of_its_pod() {
    let [short, long] = [600, 3_600].map(Duration::from_secs);
    assert_eq!(workload_validity(short, long), long);
    assert_eq!(workload_validity(long, short), long);
}

#[test]
fn a_key_that_cannot_sign_is_told() {
    let rs = Some(Algorithm::Rs256);
    let empty = SigningKey::secret("", None).unwrap_err();
    assert_eq!(empty, KeyError::EmptySecret);
    let wrong = SigningKey::secret("s", rs).unwrap_err();
    assert!(matches!(wrong, KeyError::Algorithm { .. }), "{wrong}");
    for pem in [
        "",
        "-----BEGIN PRIVATE KEY-----\n%\n-----END PRIVATE KEY-----",
        "-----BEGIN X-----\nAAAA\n-----END X-----",
    ] {
        let wrong = SigningKey::private(pem, None, None).unwrap_err();
        assert!(matches!(wrong, KeyError::Pem(_)), "{wrong}");
    }
}
