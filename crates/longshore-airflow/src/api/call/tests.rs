use serde_json::json;

use super::*;
use crate::api::{
    Access, StoreRequest, TaskInstanceRequest, XComAddress, XComRequest,
    query::{AssetSelector, PreviousRunQuery, XComQuery},
};

const ID: &str = "019aa3f0-0000-7000-8000-0000118489a4";

fn call(version: ApiVersion, method: Method, path: &str, body: &[u8]) -> Result<Request, ApiError> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let query: Vec<(String, String)> = query
        .split('&')
        .filter_map(|it| it.split_once('='))
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect();
    let raw = RawRequest {
        version,
        method,
        path,
        query: &query,
        body,
    };
    raw.read(raw.route()?)
}

fn latest(method: Method, path: &str) -> Result<Request, ApiError> {
    call(ApiVersion::LATEST, method, path, b"")
}

#[test]
fn ids_are_decoded_once_and_keys_may_hold_slashes() {
    let at = |run_id: &str, key: &str| XComAddress {
        dag_id: "d".to_owned(),
        run_id: run_id.to_owned(),
        task_id: "g.t".to_owned(),
        key: key.to_owned(),
    };
    let get = XComRequest::Get(XComQuery {
        map_index: -1,
        include_prior_dates: false,
        offset: None,
    });
    for (path, expected) in [
        (
            "/xcoms/d/manual__2026-11-21T00:30:00+00:00/g.t/return_value",
            Request::XCom(
                at("manual__2026-11-21T00:30:00+00:00", "return_value"),
                get.clone(),
            ),
        ),
        (
            "/xcoms/d/a%2Fb%2525/g.t/k%20k/x/y",
            Request::XCom(at("a/b%25", "k k/x/y"), get.clone()),
        ),
        (
            "/xcoms/d/r/g.t/k/item/-1",
            Request::XCom(at("r", "k"), XComRequest::Item(-1)),
        ),
        (
            "/xcoms/d/r/g.t/a/item/b/item/3",
            Request::XCom(at("r", "a/item/b"), XComRequest::Item(3)),
        ),
        ("/variables/a/b", Request::Variable("a/b".to_owned())),
        (
            "/store/asset/by-uri/value?uri=s3://b/k&key=x",
            Request::AssetStore(
                AssetSelector::Uri("s3://b/k".to_owned()),
                StoreRequest::Get("x".to_owned()),
            ),
        ),
    ] {
        assert_eq!(latest(Method::Get, path), Ok(expected), "{path}");
    }
}

#[test]
fn old_clients_ask_for_the_previous_run_in_the_path() {
    let query = PreviousRunQuery {
        dag_id: "d".to_owned(),
        logical_date: "2026-01-01T00:00:00Z"
            .parse()
            .map(crate::api::UtcDateTime)
            .unwrap(),
        state: None,
    };
    let expected = Ok(Request::PreviousDagRun(query));
    let date = "logical_date=2026-01-01T00:00:00Z";
    let new = latest(Method::Get, &format!("/dag-runs/previous?dag_id=d&{date}"));
    assert_eq!(new, expected);
    let path = format!("/dag-runs/d/previous?{date}");
    let old = call(ApiVersion::V2025_11_05, Method::Get, &path, b"");
    assert_eq!(old, expected);
    // For a new client that is the run `previous`.
    assert!(matches!(latest(Method::Get, &path), Ok(Request::DagRun(_))));
}

#[test]
fn a_variable_named_keys_is_one_for_old_clients() {
    let keys = Request::Variable("keys".to_owned());
    let old = call(ApiVersion::V2026_04_06, Method::Get, "/variables/keys", b"");
    assert_eq!(old, Ok(keys));
    let new = latest(Method::Get, "/variables/keys?limit=5").unwrap();
    assert!(matches!(new, Request::VariableKeys(query) if query.limit == 5));
}

#[test]
fn a_wrong_request_gets_the_answer_of_upstream() {
    let run = format!("/task-instances/{ID}/run");
    for (method, path, body, status, place) in [
        (Method::Get, "/nothing", "", 404, None),
        (Method::Get, "variables/a", "", 404, None),
        (Method::Get, "/variables/", "", 404, None),
        (Method::Get, "/variables/%ff", "", 404, None),
        (Method::Post, "/variables/a", "", 405, None),
        (
            Method::Patch,
            "/task-instances/7/run",
            "{}",
            422,
            Some(json!(["path", "task_instance_id"])),
        ),
        (
            Method::Get,
            "/xcoms/d/r/t/k/item/x",
            "",
            422,
            Some(json!(["path", "offset"])),
        ),
        (
            Method::Get,
            "/xcoms/d/r/t/k?map_index=x",
            "",
            422,
            Some(json!(["query", "map_index"])),
        ),
        (
            Method::Get,
            "/variables/keys?limit=0",
            "",
            422,
            Some(json!(["query", "limit"])),
        ),
        (
            Method::Get,
            "/assets/by-name",
            "",
            422,
            Some(json!(["query", "name"])),
        ),
        (Method::Patch, &run, "", 422, Some(json!(["body"]))),
        (Method::Patch, &run, "{", 422, Some(json!(["body", 1]))),
        (Method::Patch, &run, "[]", 422, Some(json!(["body"]))),
    ] {
        let refused = call(ApiVersion::LATEST, method, path, body.as_bytes()).unwrap_err();
        assert_eq!(refused.status(), status, "{path}");
        let found = refused.body().pointer("/detail/0/loc").cloned();
        assert_eq!(found, place, "{path}");
    }
}

#[test]
fn what_a_version_lacks_is_not_found() {
    for (path, since) in [
        ("/dags/d", ApiVersion::V2026_04_06),
        ("/dag-runs/d/r", ApiVersion::V2026_04_06),
        ("/assets/by-alias?alias_name=a", ApiVersion::V2026_06_30),
        (
            "/store/asset/by-name/value?name=a&key=k",
            ApiVersion::V2026_06_30,
        ),
    ] {
        for version in ApiVersion::ALL {
            let found = call(version, Method::Get, path, b"");
            assert_eq!(found.is_ok(), version >= since, "{path} {version}");
        }
    }
}

#[test]
fn only_a_start_accepts_the_token_of_a_workload() {
    for route in ROUTES {
        let accepts = matches!(
            route.access,
            Access::SameTaskOrWorkload | Access::TaskOrWorkload
        );
        let expected = route.path.ends_with("/run") || route.path.starts_with("/connection-tests/");
        assert_eq!(accepts, expected, "{}", route.path);
        let is_own = matches!(route.access, Access::SameTaskOrWorkload | Access::SameTask);
        let has_id = route.path.contains("{task_instance_id}")
            && !route.path.starts_with("/task-reschedules");
        assert_eq!(is_own, has_id, "{}", route.path);
    }
}

#[test]
fn an_xcom_is_any_json_or_left_out() {
    let set = |body: &[u8]| {
        call(
            ApiVersion::LATEST,
            Method::Post,
            "/xcoms/d/r/t/k?mapped_length=3",
            body,
        )
    };
    // Deeper than what is read into values.
    let deep = [[b'['; 10_000], [b']'; 10_000]].concat();
    for body in [&b""[..], b"null", b" [1, {\"a\": \"\xc3\xbc\"}]\n", &deep] {
        let Request::XCom(_, XComRequest::Set(query)) = set(body).unwrap() else {
            panic!("an XCom is set");
        };
        assert_eq!((query.mapped_length, query.map_index), (Some(3), -1));
    }
    for body in [&b"[1"[..], b"NaN", b"1 2", b"\"\xff\"", b"{'a': 1}"] {
        assert_eq!(set(body).unwrap_err().status(), 422, "{body:?}");
    }
}

#[test]
fn a_rendered_map_index_is_a_text() {
    let path = format!("/task-instances/{ID}/rendered-map-index");
    let patch = |body: &[u8]| call(ApiVersion::LATEST, Method::Patch, &path, body);
    let expected = TaskInstanceRequest::RenderedMapIndex("eu".to_owned());
    assert_eq!(
        patch(b"\"eu\""),
        Ok(Request::TaskInstance(ID.parse().unwrap(), expected))
    );
    assert_eq!(patch(b"5").unwrap_err().status(), 422);
}
