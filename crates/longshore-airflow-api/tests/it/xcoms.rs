//! XComs: by map index, by place, in slices, counted.

use serde_json::json;

use super::*;

/// The values 0, 10, … of a mapped task.
async fn mapped(world: &World, token: &str, n: usize) {
    for index in 0..n {
        let path = format!("{}?map_index={index}", xcom("m", "a/b"));
        let value = (index * 10).to_string();
        assert_eq!(world.ask(token, "POST", &path, value).await.status, 201);
    }
}

#[tokio::test]
async fn values_of_a_mapped_task_are_read_by_index_place_and_slice() {
    let world = World::new();
    let (_, token) = world.running("t");
    mapped(&world, &token, 4).await;
    let path = xcom("m", "a/b");
    for (rest, expected) in [
        ("?map_index=2", json!({"key": "a/b", "value": 20})),
        ("?offset=-1", json!({"key": "a/b", "value": 30})),
        ("/item/0", json!(0)),
        ("/item/-2", json!(20)),
        ("/slice", json!([0, 10, 20, 30])),
        ("/slice?start=1&stop=3", json!([10, 20])),
        ("/slice?step=-2", json!([30, 10])),
        ("/slice?start=4", json!([])),
    ] {
        let found = world.ask(&token, "GET", &format!("{path}{rest}"), "").await;
        assert_eq!((found.status, found.json()), (200, expected), "{rest}");
    }
    for (rest, which) in [
        ("", "map_index=-1"),
        ("/item/4", "offset=4"),
        ("?offset=9", "offset=9"),
    ] {
        let missing = world.ask(&token, "GET", &format!("{path}{rest}"), "").await;
        assert_eq!(
            (missing.status, missing.reason()),
            (404, json!("not_found"))
        );
        let message = missing.json()["detail"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(message.contains(which), "{message}");
    }
}

#[tokio::test]
async fn a_head_counts_all_map_indexes() {
    let world = World::new();
    let (_, token) = world.running("t");
    mapped(&world, &token, 3).await;
    let path = xcom("m", "a/b");
    let head = world.ask(&token, "HEAD", &path, "").await;
    assert_eq!(head.status, 200);
    assert_eq!(head.headers["content-range"], "map_indexes 3");
    assert!(head.bytes.is_empty());
    let one = world
        .ask(&token, "HEAD", &format!("{path}?map_index=1"), "")
        .await;
    assert_eq!(one.status, 400);
}

#[tokio::test]
async fn a_value_is_given_back_as_it_was_written() {
    let world = World::new();
    let (_, token) = world.running("t");
    // What a tree of values would change: the order of keys, digits, spaces, and what is deep.
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    let texts = [
        "{\"b\": 1.0,  \"a\": 1e400}",
        "123456789012345678901234567890",
        deep.as_str(),
    ];
    for text in texts {
        let path = xcom("t", "k\"ü");
        let path = path.replace('"', "%22").replace('ü', "%C3%BC");
        assert_eq!(
            world
                .ask(&token, "POST", &path, text.to_owned())
                .await
                .status,
            201
        );
        let found = world.ask(&token, "GET", &path, "").await;
        let expected = format!("{{\"key\":\"k\\\"ü\",\"value\":{text}}}");
        assert_eq!(found.bytes, expected);
    }
}

#[tokio::test]
async fn nothing_is_null_and_no_json_is_refused() {
    let world = World::new();
    let (_, token) = world.running("t");
    let path = xcom("t", "k");
    assert_eq!(world.ask(&token, "POST", &path, "").await.status, 201);
    let found = world.ask(&token, "GET", &path, "").await.json();
    assert_eq!(found["value"], Value::Null);
    for body in ["{", "NaN", "1 2"] {
        let refused = world.ask(&token, "POST", &path, body).await;
        assert_eq!(refused.status, 422, "{body}");
        assert_eq!(refused.json()["detail"][0]["type"], "json_invalid");
    }
    // Large enough to be read on another thread.
    let large = format!("[\"{}", "x".repeat(1 << 20));
    assert_eq!(world.ask(&token, "POST", &path, large).await.status, 422);
    let gone = world.ask(&token, "DELETE", &path, "").await;
    assert_eq!(
        gone.json(),
        json!({"message": "XCom with key: k successfully deleted."})
    );
    assert_eq!(world.ask(&token, "GET", &path, "").await.status, 404);
}
