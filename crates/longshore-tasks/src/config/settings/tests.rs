use std::time::Duration;

use longshore_plugins::SecretScope;
use serde_json::json;

use super::*;

fn read(document: &Value) -> Result<(Settings, Vec<ConfigWarning>), ConfigErrors> {
    Settings::read(document, &|_| None)
}

#[test]
fn the_peers_own_file_is_read() {
    let text = include_str!("../../../../longshore-plugins/testdata/manager-config.yaml");
    let document: Value = serde_saphyr::from_str(text).unwrap();
    let (settings, warnings) = read(&document).unwrap();
    let hours = |hours| Duration::from_hours(hours);
    let collection = settings.tasks.collection;
    assert_eq!((collection.interval, collection.ttl), (hours(1), hours(24)));
    assert_eq!(settings.events, EventsSettings::default());
    let webhook = WebhookSettings {
        service_name: "flyte-devbox-local".to_owned(),
        service_port: 9443,
        ..WebhookSettings::default()
    };
    assert_eq!(settings.webhook, webhook);
    assert_eq!(settings.storage.r#type, "minio");
    assert_eq!(settings.tasks.plugins.k8s.default_env_vars.len(), 6);
    let paths: Vec<&str> = warnings.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["webhook.localCert", "webhook.certDir"]);
}

#[test]
fn every_key_of_the_executor_means_what_it_means_upstream() {
    let document = json!({
        "executor": {
            "eventsserviceurl": "http://events:8090", "cacheServiceURL": "http://cache:8094", "cluster": "c1",
            "defaultK8sServiceAccount": "robot", "maxSystemFailures": 5, "maxConcurrentReconciles": 0,
            "requeueDuration": "3s", "healthProbeBindAddress": ":8081", "gc": {"interval": "1m", "maxTTL": 0},
        },
        "plugins": {"catalogCache": {"maxCacheAge": "24h"}},
        "storage": {"type": "stow", "stow": {"kind": "local", "config": {"path": "/data"}},
                    "limits": {"maxDownloadMBs": 10}},
        "webhook": {
            "secretName": "s", "serviceName": "n", "servicePort": 1, "listenPort": 2, "cacheInvalidationPort": 0,
            "secretEnvVarPrefix": "P_", "disableCreateMutatingWebhookConfig": true,
            "embeddedSecretManagerConfig": {"k8sConfig": {"namespace": "ns"}, "fileMountInitContainer": {
                "image": "i", "containerName": "c", "resources": {"limits": {"cpu": "1"}}}},
        },
    });
    let (settings, warnings) = read(&document).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(settings.events.url.as_deref(), Some("http://events:8090"));
    let catalog = CatalogSettings {
        url: Some("http://cache:8094".to_owned()),
    };
    assert_eq!(settings.catalog, catalog);
    let tasks = &settings.tasks;
    assert_eq!(tasks.concurrency, 1);
    assert_eq!(tasks.plugins.max_cache_age, Duration::from_hours(24));
    assert_eq!(settings.storage.stow.config["path"], "/data");
    assert_eq!(settings.storage.limits.max_download_mbs, 10);
    assert_eq!(tasks.collection.ttl, Duration::ZERO);
    assert_eq!(tasks.collection.interval, Duration::from_mins(1));
    assert_eq!(
        (tasks.policy.max_system_failures, tasks.policy.requeue),
        (5, Duration::from_secs(3))
    );
    assert_eq!(tasks.policy.cluster, "c1");
    let probes = settings.health_address.map(|address| address.to_string());
    assert_eq!(probes.as_deref(), Some("0.0.0.0:8081"));
    assert_eq!(
        tasks.plugins.default_service_account.as_deref(),
        Some("robot")
    );
    let webhook = &settings.webhook;
    assert!(!webhook.is_registered);
    assert_eq!(
        (
            webhook.service_port,
            webhook.listen_port,
            webhook.invalidation_port
        ),
        (1, 2, 0)
    );
    assert_eq!(
        (webhook.secret_name.as_str(), webhook.service_name.as_str()),
        ("s", "n")
    );
    assert_eq!(webhook.secrets_namespace, "ns");
    let injection = &webhook.injection;
    assert_eq!(
        (injection.image.as_str(), injection.container.as_str()),
        ("i", "c")
    );
    assert_eq!(injection.env_prefix, "P_");
    assert_eq!(injection.resources, Some(json!({"limits": {"cpu": "1"}})));
}

#[test]
fn namespaces_are_bound_to_projects_by_the_peers_template_and_a_table_of_ours() {
    let document = json!({
        "namespace_mapping": {"template": "x-{{ project }}", "templateData": {}},
        "webhook": {"organization": "o", "namespaces": [
            {"namespace": "team-*", "project": "a", "domain": "production"},
        ]},
    });
    let (settings, warnings) = read(&document).unwrap();
    let paths: Vec<&str> = warnings.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["namespace_mapping.templateData"]);
    let bindings = &settings.webhook.bindings;
    let may = |namespace: &str, org: &str, project: &str, domain: &str| {
        let scope = SecretScope {
            org: org.to_owned(),
            project: project.to_owned(),
            domain: domain.to_owned(),
        };
        bindings.check(namespace, "flyte", &scope).is_ok()
    };
    assert!(may("x-p", "o", "p", "d"));
    assert!(!may("x-p", "flyte", "p", "d"));
    assert!(may("team-1", "any", "a", "production"));
    assert!(!may("team-1", "any", "a", "development"));
    let document = json!({
        "namespace_mapping": {"template": "{{ projcet }}"},
        "webhook": {"namespaces": [{"project": "a"}, {"namespace": "n", "projects": "a"}]},
    });
    let problems = read(&document).unwrap_err().to_string();
    for expected in [
        "namespace_mapping.template: expected a text with {{ project }}",
        "webhook.namespaces[0].namespace: expected a name",
        "webhook.namespaces[1].projects is unknown; did you mean \"project\"?",
    ] {
        assert!(problems.contains(expected), "{expected}: {problems}");
    }
}

#[test]
fn an_address_is_read_as_go_reads_it() {
    for (text, expected) in [
        ("", Some("")),
        ("0", Some("")),
        (":8081", Some("0.0.0.0:8081")),
        ("127.0.0.1:1", Some("127.0.0.1:1")),
        ("localhost:0", Some("127.0.0.1:0")),
        ("[::]:8081", Some("[::]:8081")),
        ("8081", None),
        (":http", None),
        ("nowhere:8081", None),
    ] {
        let found = listen_address(text);
        let words = found.map(|it| it.map_or_else(String::new, |address| address.to_string()));
        assert_eq!(words.as_deref(), expected, "{text}");
    }
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let document = json!({
        "executor": {"maxSystemFailure": 3, "requeueDuration": "soon", "gc": {"maxTL": "1h"}},
        "webhook": {"servicePort": 70000},
        "storage": {"contaner": "x"},
        "plugins": {"k8s": {"default-cpu": 1}},
        "runs": {"whatever": 1},
    });
    let problems = read(&document).unwrap_err().to_string();
    for expected in [
        "executor.maxSystemFailure is unknown; did you mean \"maxSystemFailures\"?",
        "executor.requeueDuration: expected a duration",
        "executor.gc.maxTL is unknown; did you mean \"maxTTL\"?",
        "webhook.servicePort: expected a whole number, found 70000",
        "storage: unknown field `contaner`",
        "plugins.k8s.default-cpu is unknown",
    ] {
        assert!(problems.contains(expected), "{expected}: {problems}");
    }
    assert_eq!(problems.lines().count(), 6, "{problems}");
}

#[test]
fn what_is_done_otherwise_is_a_warning() {
    let document = json!({
        "executor": {"leaderElect": true, "metricsBindAddress": ":10254"},
        "webhook": {"secretManagerTypes": ["Embedded", "AWS"], "vaultSecretManager": {},
                    "embeddedSecretManagerConfig": {"type": "Azure"}},
    });
    let (_, warnings) = read(&document).unwrap();
    let paths: Vec<&str> = warnings.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "executor.metricsBindAddress",
            "executor.leaderElect",
            "webhook.secretManagerTypes",
            "webhook.embeddedSecretManagerConfig.type",
            "webhook.vaultSecretManager",
        ]
    );
    assert!(warnings.iter().all(|warning| !warning.instead.is_empty()));
}

#[test]
fn the_executors_own_namespace_is_that_of_its_pod_or_the_one_of_the_actions() {
    let actions = json!({"actions": {"kubernetes": {"namespace": "flyte"}}});
    for (document, pod, expected) in [
        (&json!({}), None, None),
        (&actions, None, Some("flyte")),
        (&actions, Some(""), Some("flyte")),
        (&actions, Some("own"), Some("own")),
    ] {
        let env = |name: &str| pod.filter(|_| name == "POD_NAMESPACE").map(str::to_owned);
        let (settings, _) = Settings::read(document, &env).unwrap();
        assert_eq!(settings.tasks.shared_namespace.as_deref(), expected);
    }
}

#[test]
fn an_address_that_is_none_is_refused_before_anybody_asks_there() {
    for (document, expected) in [
        (
            json!({"executor": {"EventsServiceURL": "::bad::", "cacheServiceURL": "cache:8094"}}),
            vec![
                "executor.EventsServiceURL: expected an http:// or https:// URL of a service, found \"::bad::\"",
                "executor.cacheServiceURL: expected an http:// or https:// URL of a service, found \"cache:8094\"",
            ],
        ),
        (
            json!({"plugins": {"connector-service": {
                "defaultConnector": {"endpoint": "::bad::"}, "connectors": {"c": {"endpoint": "https://c"}},
            }}}),
            vec![
                "plugins.connector-service: connector defaultConnector: expected an endpoint as host:port or dns:///host:port, found \"::bad::\"",
                "plugins.connector-service: connector c: expected an endpoint as host:port or dns:///host:port, found \"https://c\"",
            ],
        ),
        (
            json!({"storage": {"type": "s3", "connection": {"auth-type": "iam", "endpoint": "::bad::"}}}),
            vec!["storage: expected an endpoint as https://host:port, found \"https://::bad::\""],
        ),
    ] {
        let ConfigErrors(problems) = read(&document).unwrap_err();
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems, expected);
    }
}
