//! What API servers ask about PodTransitionRules.

use std::sync::Arc;

use longshore_outbound::{Boundaries, OutboundError, Permit, TenantClient};
use longshore_webhook::{Denial, Response, Review, Verdict};

use crate::{
    ask_webhooks,
    rule::admit::{self, Refused, Target},
};

/// Fills in what upstream fills in.
pub(super) fn mutate(review: &Review) -> Response {
    let is_write = matches!(review.operation.as_str(), "CREATE" | "UPDATE");
    if !is_write {
        return Verdict::Allowed.into();
    }
    let defaulted = admit::with_defaults(&review.object);
    defaulted.map_or(Verdict::Allowed, Verdict::Changed).into()
}

/// Refuses what cannot be followed.
///
/// A spec that stays as it is passes: nothing must keep a rule from being deleted.
pub(super) async fn validate(review: &Review, boundaries: &Arc<Boundaries>) -> Response {
    let is_write = matches!(review.operation.as_str(), "CREATE" | "UPDATE");
    let is_unchanged = review.object["spec"] == review.old_object["spec"];
    if !is_write || review.operation == "UPDATE" && is_unchanged {
        return Verdict::Allowed.into();
    }
    let (mut faults, targets) = match admit::validate(&review.object) {
        Ok(validated) => validated,
        Err(shape @ Refused::Shape(_)) => {
            return Denial::because(400, shape.to_string()).into();
        }
        Err(refused) => return denied(refused.to_string()),
    };
    // One that was stored before this was checked can still be changed.
    if review.operation == "CREATE"
        && let Some(fault) = admit::name_fault(&review.object)
    {
        faults.add(fault);
    }
    let looks = targets.iter().map(|target| look(target, boundaries));
    for fault in futures::future::join_all(looks).await.into_iter().flatten() {
        faults.add(fault);
    }
    faults
        .text()
        .map_or_else(|| Verdict::Allowed.into(), denied)
}

/// On purpose: upstream's text is in the reason.
fn denied(reason: String) -> Response {
    let denial = Denial {
        code: 403,
        reason,
        ..Denial::default()
    };
    denial.into()
}

/// What is wrong with a webhook, as far as its text says. The check connects to no address: otherwise a user who may
/// write rules could find out at which addresses of our network a server listens.
async fn look(target: &Target, boundaries: &Arc<Boundaries>) -> Option<String> {
    if let Err(why) = TenantClient::may_reach(boundaries, &target.url).await {
        let is_url = !matches!(why, OutboundError::BadUrl(_));
        let when = if is_url {
            "while server unreachable, error"
        } else {
            "while parse url error"
        };
        return Some(target.is_not_reached(&format!(
            "podtransitionrule validate webhook failed, check server reachable, {when}: {why}"
        )));
    }
    let trusted = ask_webhooks::client(boundaries, &target.ca_bundle, Permit::always());
    let untrusted = trusted.err();
    untrusted.map(|why| target.is_not_trusted(&why.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::ask_webhooks::tests::of_a_laptop;

    fn review(operation: &str, rules: Value) -> Review {
        Review {
            uid: "u".to_owned(),
            operation: operation.to_owned(),
            namespace: "default".to_owned(),
            name: "ptr".to_owned(),
            resource: "podtransitionrules".to_owned(),
            subresource: String::new(),
            is_dry_run: false,
            user: String::new(),
            object: json!({"spec": {"selector": {}, "rules": rules}}),
            old_object: Value::Null,
            options: Value::Null,
        }
    }

    fn hook(url: &str, ca_bundle: &str) -> Value {
        let config = json!({"url": url, "caBundle": ca_bundle});
        json!([{"name": "hook", "webhook": {"clientConfig": config}}])
    }

    async fn reason(review: &Review) -> Option<String> {
        match validate(review, &of_a_laptop()).await.verdict {
            Verdict::Denied(denial) => {
                assert_eq!((denial.code, denial.message.as_str()), (403, ""));
                Some(denial.reason)
            }
            Verdict::Allowed => None,
            Verdict::Changed(object) => panic!("{object}"),
            Verdict::Unknown(why) => panic!("{why}"),
        }
    }

    #[tokio::test]
    async fn a_webhook_has_to_be_an_allowed_address_and_trusted_when_a_rule_is_written() {
        // The check does not connect: no server has to listen there.
        let url = "http://127.0.0.1:1/check";
        assert_eq!(reason(&review("CREATE", hook(url, ""))).await, None);
        let distrusted = reason(&review("CREATE", hook(url, "?"))).await.unwrap();
        let place = "spec.rule.hook.clientConfig.caBundle: Invalid value: \"?\": ";
        assert!(distrusted.starts_with(place), "{distrusted}");
        for nowhere in ["x", "", "ftp://a.example/", "unix:/run/x.sock", "http://"] {
            let refused = reason(&review("CREATE", hook(nowhere, ""))).await.unwrap();
            let place = format!(
                "spec.rule.hook.clientConfig.url: Invalid value: {nowhere:?}: podtransitionrule validate webhook \
                 failed, check server reachable, while parse url error: "
            );
            assert!(refused.starts_with(&place), "{refused}");
        }
        let outside = review("CREATE", hook("http://169.254.169.254/latest", ""));
        let outside = reason(&outside).await.unwrap();
        let expected = "while server unreachable, error: its address is not allowed";
        assert!(outside.ends_with(expected), "{outside}");
        // Its deletion, and everything else that leaves the spec as it is.
        let mut unchanged = review("UPDATE", hook("x", ""));
        unchanged.old_object = unchanged.object.clone();
        assert_eq!(reason(&unchanged).await, None);
        assert_eq!(reason(&review("DELETE", hook("x", ""))).await, None);
    }

    #[tokio::test]
    async fn a_new_rule_has_a_name_that_an_annotation_can_have() {
        let named = |operation: &str, length: usize| {
            let mut review = review(operation, hook("http://127.0.0.1:1/check", ""));
            review.object["metadata"] = json!({"name": "r".repeat(length)});
            review
        };
        assert_eq!(reason(&named("CREATE", 63)).await, None);
        assert_eq!(reason(&named("UPDATE", 64)).await, None);
        let refused = reason(&named("CREATE", 64)).await.unwrap();
        let why = "expected at most 63 characters, found 64: ";
        assert!(
            refused.starts_with("metadata.name: Invalid value: ") && refused.contains(why),
            "{refused}"
        );
    }

    #[tokio::test]
    async fn what_has_no_shape_is_answered_with_400() {
        let shapeless = validate(&review("CREATE", json!(1)), &of_a_laptop()).await;
        let Verdict::Denied(denial) = &shapeless.verdict else {
            panic!("{shapeless:?}");
        };
        assert_eq!(denial.code, 400);
    }

    #[test]
    fn defaults_are_filled_in_in_a_dry_run_as_well() {
        let create = review("CREATE", hook("http://x", ""));
        let dry = Review {
            is_dry_run: true,
            ..create.clone()
        };
        for create in [create, dry] {
            let Verdict::Changed(object) = mutate(&create).verdict else {
                panic!("{create:?}");
            };
            let policy = &object["spec"]["rules"][0]["webhook"]["failurePolicy"];
            assert_eq!(*policy, "Ignore");
        }
    }
}
