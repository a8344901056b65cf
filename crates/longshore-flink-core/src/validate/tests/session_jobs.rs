//! Rules about FlinkSessionJobs.

use std::net::IpAddr;

use super::*;
use crate::spec::FlinkDeploymentSpec;

fn base() -> Value {
    json!({
        "deploymentName": "session",
        "job": {"jarURI": "https://example.com/a.jar", "parallelism": 1},
    })
}

struct World {
    spec: FlinkSessionJobSpec,
    last: Option<FlinkSessionJobSpec>,
    operator: FlinkConfig,
    addresses: Vec<IpAddr>,
    cluster: Option<(String, FlinkDeploymentSpec)>,
}

fn world(change: &Value) -> World {
    World {
        spec: serde_json::from_value(merged(&base(), change)).unwrap(),
        last: None,
        operator: FlinkConfig::new(),
        addresses: vec!["93.184.215.14".parse().unwrap()],
        cluster: Some(("session".to_owned(), FlinkDeploymentSpec::default())),
    }
}

impl World {
    fn error(&self) -> String {
        let config = config(&[], self.spec.flink_configuration.as_ref());
        let cluster = self.cluster.as_ref().map(|(name, spec)| SessionCluster {
            name,
            spec,
            config: &config,
        });
        let found = validate_session_job(&SessionJob {
            spec: &self.spec,
            last: self.last.as_ref(),
            operator: &self.operator,
            jar_host: JarHost::Addresses(&self.addresses),
            cluster,
        });
        found.map_or_else(|error| error.to_string(), |()| String::new())
    }
}

#[test]
fn rules_about_the_job_itself() {
    for (change, expected) in [
        (json!({}), ""),
        (json!({"job": {"jarURI": null}}), ""),
        (json!({"job": null}), "The job spec should not be empty"),
        (
            json!({"job": {"parallelism": 0}}),
            "Job parallelism must be larger than 0",
        ),
        (
            json!({"job": {"upgradeMode": "last-state"}}),
            "Checkpoint directory[execution.checkpointing.dir] must be defined for last-state and savepoint upgrade modes",
        ),
        (
            json!({"flinkConfiguration": {"job.autoscaler": {"enabled": true, "utilization.target": 2}}}),
            "The AutoScalerOption job.autoscaler.utilization.target is invalid, it should be a value within the range [0.0, \
             1.0]",
        ),
    ] {
        assert_eq!(world(&change).error(), expected, "{change}");
    }
    for name in [json!(null), json!("Session"), json!("1a")] {
        let error = world(&json!({"deploymentName": name})).error();
        let name = name.as_str().unwrap_or("null").to_owned();
        let expected = format!("The FlinkDeployment name: {name} is invalid, must consist of ");
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn rules_about_the_session_cluster() {
    let mut absent = world(&json!({"job": {"parallelism": 0}}));
    absent.cluster = None;
    // What depends on the cluster is not checked without it.
    assert_eq!(absent.error(), "");
    let mut other = world(&json!({}));
    other.cluster = Some(("other".to_owned(), FlinkDeploymentSpec::default()));
    let expected = "The session job's cluster id is not match with the session cluster";
    assert_eq!(other.error(), expected);
    let application: FlinkDeploymentSpec = serde_json::from_value(json!({"job": {}})).unwrap();
    other.cluster = Some(("session".to_owned(), application));
    assert_eq!(
        other.error(),
        "Can not submit session job to application cluster"
    );
    let mut moved = world(&json!({}));
    moved.last = Some(world(&json!({"deploymentName": "before"})).spec);
    assert_eq!(moved.error(), "The deploymentName can't be changed");
    moved.last = Some(world(&json!({"job": {"parallelism": 5}})).spec);
    assert_eq!(moved.error(), "");
}

#[test]
fn a_jar_comes_from_where_the_operator_allows() {
    let schemes = "kubernetes.operator.user.artifacts.allowed-schemes";
    let not_allowed = |scheme: &str, list: &str| {
        format!(
            "jarURI scheme '{scheme}' is not in the allowlist [{list}]. Configure '{schemes}' to extend the allowlist."
        )
    };
    let no_host = "jarURI must include a host for http/https schemes";
    for (uri, allowed, expected) in [
        ("https://example.com/a.jar", "https", String::new()),
        (
            "HTTPS://user@example.com:8443/a.jar?b#c",
            "https",
            String::new(),
        ),
        ("s3://bucket/a.jar", "https", not_allowed("s3", "https")),
        ("s3://bucket/a.jar", "https;s3", String::new()),
        (
            "local:///a.jar",
            "HTTPS;S3",
            not_allowed("local", "https, s3"),
        ),
        (
            "/opt/a.jar",
            "https",
            "jarURI must include a scheme".to_owned(),
        ),
        ("a.jar", "https", "jarURI must include a scheme".to_owned()),
        ("https:///a.jar", "https", no_host.to_owned()),
        ("https:a.jar", "https", no_host.to_owned()),
        ("https://a_b/a.jar", "https", no_host.to_owned()),
        ("https://[::zz]/a.jar", "https", no_host.to_owned()),
    ] {
        let mut world = world(&json!({"job": {"jarURI": uri}}));
        world.operator.set_text(schemes, allowed);
        assert_eq!(world.error(), expected, "{uri}");
    }
    for (uri, at) in [
        ("https://a b/", 9),
        ("https://a/%2", 10),
        (":a", 0),
        ("1a:b", 0),
        ("a_:b", 1),
    ] {
        let error = world(&json!({"job": {"jarURI": uri}})).error();
        let expected = format!("jarURI is not a valid URI: Illegal character at index {at}: {uri}");
        assert_eq!(error, expected);
    }
}

#[test]
fn a_jar_does_not_come_from_this_machine_or_its_networks() {
    let error = |address: &str| {
        let mut world = world(&json!({}));
        world.addresses = vec!["93.184.215.14".parse().unwrap(), address.parse().unwrap()];
        world.error()
    };
    for address in [
        "127.0.0.1",
        "169.254.169.254",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "fe80::1",
        "fec0::1",
        "fd00::1",
        "::",
        "ff02::1",
        "::ffff:127.0.0.1",
    ] {
        let expected = "jarURI host 'example.com' resolves to a restricted address";
        assert_eq!(error(address), expected, "{address}");
    }
    for address in ["8.8.8.8", "172.32.0.1", "2001:4860:4860::8888"] {
        assert_eq!(error(address), "", "{address}");
    }
    let mut unknown = world(&json!({}));
    unknown.addresses.clear();
    assert_eq!(
        unknown.error(),
        "jarURI host 'example.com' cannot be resolved"
    );
    let key = "kubernetes.operator.user.artifacts.disallow-restricted-hosts";
    unknown.operator.set_text(key, "false");
    assert_eq!(unknown.error(), "");
}

#[test]
fn a_host_is_resolved_only_where_it_counts() {
    let key = "kubernetes.operator.user.artifacts.disallow-restricted-hosts";
    for (uri, restricts, expected) in [
        (
            json!("https://example.com:1/a"),
            "true",
            Some("example.com"),
        ),
        (json!("http://[::1]:1/a"), "true", Some("::1")),
        (json!("https://example.com/a"), "false", None),
        (json!("s3://bucket/a"), "true", None),
        (json!("https:///a"), "true", None),
        (json!("https://a b"), "true", None),
        (json!(null), "true", None),
    ] {
        let world = world(&json!({"job": {"jarURI": uri}}));
        let operator: FlinkConfig = [(key, restricts)].into_iter().collect();
        let job = world.spec.job.as_ref().unwrap();
        assert_eq!(jar_host(job, &operator).unwrap(), expected, "{uri}");
    }
}
