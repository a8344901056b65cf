use std::time::Duration;

use longshore_proto::from_json;
use serde_json::{Value, json};

use super::*;
use crate::Config;

/// A deployment for this project and domain.
fn deployment(name: &str, project: &str, domain: &str) -> Value {
    json!({
        "endpoint": name, "project": project, "domain": domain,
        "timeouts": {"CreateTask": "1m"}, "defaultTimeout": "5s",
    })
}

fn config(section: Value) -> ConnectorConfig {
    let document = json!({"plugins": {"connector-service": section}});
    let reading = Config::read(&document, &|_| None).unwrap();
    *reading.config.connector
}

/// The list of a connector that takes `t` in version 1.
fn list() -> Connector {
    from_json(&json!({"supportedTaskCategories": [{"name": "t", "version": 1}]})).unwrap()
}

fn of(project: &str, domain: &str, task_type: &str) -> Addressee {
    Addressee {
        category: Category {
            project: project.to_owned(),
            domain: domain.to_owned(),
            task_type: task_type.to_owned(),
            version: 1,
        },
        ..Addressee::default()
    }
}

/// The same for a job whose connector is not on record.
fn begun(to: Addressee) -> Addressee {
    Addressee {
        is_begun: true,
        ..to
    }
}

fn on_record(connector: &str) -> Addressee {
    Addressee {
        connector: Some(connector.to_owned()),
        ..begun(of("p", "d", "t"))
    }
}

/// The name of the connector; in brackets what is waited for.
fn words(route: Route<'_>) -> String {
    match route {
        Route::To(teller, _) => teller.name,
        Route::Nobody(why) => why,
        Route::Unlisted(words) => {
            let names = words.split("connector ").skip(1);
            let names = names.filter_map(|rest| rest.split(' ').next());
            format!("{:?}", names.collect::<Vec<_>>())
        }
    }
}

#[test]
fn connectors_are_found_from_the_narrowest_scope_to_the_widest() {
    let scopes = [("p", "d"), ("", "d"), ("", "")];
    let deployments = scopes.map(|(project, domain)| {
        let name = format!("{project}-{domain}");
        let deployment = deployment(&name, project, domain);
        (name, deployment)
    });
    let deployments: serde_json::Map<String, Value> = deployments.into_iter().collect();
    let mut config = config(json!({"connectors": deployments}));
    let mut connectors = Connectors::default();
    for (name, deployment) in &config.connectors {
        connectors.heard(name, deployment, &[list()]);
    }
    let nobody =
        "no connector takes task type \"other\" in version 1, and there is no default connector";
    for (to, expected) in [
        (of("p", "d", "t"), "p-d"),
        (of("x", "d", "t"), "-d"),
        (of("x", "x", "t"), "-"),
        (of("p", "d", "other"), nobody),
        (on_record("-d"), "-d"),
        (on_record("no longer configured"), "p-d"),
    ] {
        assert_eq!(words(connectors.of(&to, &config)), expected, "{to:?}");
    }
    config.default_connector.endpoint = "default".to_owned();
    let other = of("p", "d", "other");
    let Route::To(teller, found) = connectors.of(&other, &config) else {
        panic!("expected the default connector");
    };
    assert_eq!(
        (teller.name.as_str(), found.endpoint.as_str()),
        ("defaultConnector", "default")
    );
    let own = &config.connectors["p-d"];
    assert_eq!(own.timeout("createtask"), Some(Duration::from_mins(1)));
    assert_eq!(own.timeout("GetTask"), Some(Duration::from_secs(5)));
}

/// Connectors of which `own` takes tasks of the domain `d` only.
fn several() -> Value {
    json!({
        "connectors": {
            "bad": deployment("bad", "", ""), "good": deployment("good", "", ""),
            "own": deployment("own", "", "d"),
        },
        "connectorForTaskTypes": {"mine": "bad"},
    })
}

/// `good` lists `t`, and these have not listed anything yet.
fn unheard(config: &ConnectorConfig, names: &[&str]) -> Connectors {
    let mut connectors = Connectors::default();
    for name in names {
        let (_, deployment) = config.deployment(name).unwrap();
        connectors.not_heard(name, deployment, "it is asked");
    }
    connectors.heard("good", &config.connectors["good"], &[list()]);
    connectors
}

#[test]
fn a_task_waits_for_the_list_of_a_connector_that_may_take_it_and_for_no_other_one() {
    let config = config(several());
    let both = unheard(&config, &["bad", "own"]);
    let only_bad = unheard(&config, &["bad"]);
    let other = || of("p", "d", "other");
    for (connectors, to, expected) in [
        (&both, of("p", "x", "t"), "good"),
        (&both, of("p", "d", "t"), r#"["own"]"#),
        (&both, of("p", "d", "mine"), "bad"),
        (&both, other(), r#"["bad", "own"]"#),
        (&both, of("p", "x", "other"), r#"["bad"]"#),
        (&both, on_record("own"), "own"),
        (&both, on_record("bad"), "bad"),
        // One of two has the job.
        (&both, begun(other()), r#"["bad", "own"]"#),
        (&only_bad, begun(other()), "bad"),
        (&only_bad, other(), r#"["bad"]"#),
        (
            &unheard(&config, &[]),
            other(),
            "no connector takes task type \"other\" in version 1, and there is no default connector",
        ),
    ] {
        assert_eq!(words(connectors.of(&to, &config)), expected, "{to:?}");
    }
}

#[test]
fn a_default_connector_takes_what_no_other_one_may_list() {
    let mut section = several();
    section["defaultConnector"] = json!({"endpoint": "default"});
    let config = config(section);
    let other = || of("p", "d", "other");
    for (unlisted, to, expected) in [
        (vec!["bad"], begun(other()), r#"["bad"]"#),
        (vec!["bad"], other(), r#"["bad"]"#),
        // Whatever it lists.
        (vec!["defaultConnector"], other(), "defaultConnector"),
        (
            vec!["defaultConnector", "bad"],
            other(),
            r#"["defaultConnector", "bad"]"#,
        ),
        (vec![], other(), "defaultConnector"),
    ] {
        let found = unheard(&config, &unlisted);
        assert_eq!(words(found.of(&to, &config)), expected, "{unlisted:?}");
    }
}

#[test]
fn a_type_is_listed_or_not_or_that_is_not_known_yet() {
    let config = config(several());
    let both = unheard(&config, &["bad", "own"]);
    let waits = both.of(&of("p", "x", "other"), &config);
    let expected = "connector bad may take it, and has not listed its task types yet: it is asked";
    assert_eq!(waits, Route::Unlisted(expected.to_owned()));
    for (connectors, domain, task_type, expected) in [
        (&both, "d", "t", Listed::Yes),
        (&both, "d", "mine", Listed::Yes),
        (&both, "x", "other", Listed::Unknown(expected.to_owned())),
        (&unheard(&config, &[]), "d", "other", Listed::No),
    ] {
        let found = connectors.lists(&of("p", domain, task_type).category, &config);
        assert_eq!(found, expected, "{task_type}");
    }
}
