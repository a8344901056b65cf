//! What messages say of the addresses of webhooks.

use super::*;

#[test]
fn the_address_of_a_webhook_is_named_without_its_password_and_its_query() {
    let url = "https://ann:CANARY@hooks.example:8443/check?apikey=CANARY#CANARY";
    let config = json!({"url": url, "poll": {"url": url}});
    let mut rule = rule(json!([{"name": "hook", "webhook": {"clientConfig": config}}]));
    let pods = pods("p");
    let told = told(&mut rule, &pods);
    let expected = "web-0 waits for the answer of https://hooks.example:8443/check?…";
    assert!(told.contains(expected), "{told}");
    let status = format!("{:?}", rule.status);
    assert!(!status.contains("CANARY"), "{status}");
    let plan = decide(&observed(rule, pods));
    let patches = plan.actions.iter().filter_map(|action| {
        let Action::Patch(patch) = action else {
            return None;
        };
        Some(patch.patch.to_string())
    });
    let patches: Vec<String> = patches.collect();
    let names_it = |patch: &String| patch.contains("https://hooks.example:8443/check?…");
    assert!(patches.iter().any(names_it), "{patches:?}");
    let has_canary = |patch: &String| patch.contains("CANARY");
    assert!(!patches.iter().any(has_canary), "{patches:?}");
}

#[test]
fn a_webhook_that_is_none_is_not_quoted() {
    let config = "https://ann:CANARY@hooks.example/";
    let mut rule = rule(json!([{"name": "hook", "webhook": {"clientConfig": config}}]));
    let told = told(&mut rule, &pods("p"));
    assert!(!told.contains("CANARY"), "{told}");
}
