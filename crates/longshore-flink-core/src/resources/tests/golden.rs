//! Equal to what the Java operator makes, but for what is listed here with its reason.

use longshore_k8s::Quantity;

use super::*;

/// What only the recorded objects have, because the API server sets it or the recording leaves it out.
const OF_THE_SERVER: &[&str] = &[
    "metadata.annotations.deployment.kubernetes.io/revision",
    "spec.clusterIP",
    "spec.clusterIPs",
    "spec.internalTrafficPolicy",
    "spec.ipFamilies",
    "spec.ipFamilyPolicy",
    "spec.ports[blobserver].protocol",
    "spec.ports[jobmanager-rpc].protocol",
    "spec.ports[rest].protocol",
    "spec.progressDeadlineSeconds",
    "spec.revisionHistoryLimit",
    "spec.sessionAffinity",
    "spec.strategy",
    "spec.template.spec.containers[flink-main-container].ports[blobserver].protocol",
    "spec.template.spec.containers[flink-main-container].ports[jobmanager-rpc].protocol",
    "spec.template.spec.containers[flink-main-container].ports[rest].protocol",
    "spec.template.spec.containers[flink-main-container].startupProbe.httpGet.scheme",
    "spec.template.spec.containers[flink-main-container].startupProbe.successThreshold",
    "spec.template.spec.containers[flink-main-container].startupProbe.timeoutSeconds",
    "spec.template.spec.containers[flink-main-container].terminationMessagePath",
    "spec.template.spec.containers[flink-main-container].terminationMessagePolicy",
    "spec.template.spec.restartPolicy",
    "spec.template.spec.schedulerName",
    "spec.template.spec.securityContext",
    "spec.template.spec.terminationGracePeriodSeconds",
    "spec.template.spec.volumes[flink-config-volume].configMap.defaultMode",
    "spec.type",
    "status",
];

/// What only our objects have.
const OF_OURS: &[&str] = &[
    // An empty map is none for the API server.
    "metadata.annotations",
    // The recording leaves uids out.
    "metadata.ownerReferences[g-app-ha].uid",
    "metadata.ownerReferences[g-app-noha].uid",
    // Flink's client has this volume since 1.19; the recording is of 1.17.
    "spec.template.spec.containers[flink-main-container].volumeMounts[user-artifacts-volume]",
    "spec.template.spec.volumes[user-artifacts-volume]",
];

/// Keys of the file that only the recorded one has: the path of a file on the operator's disk.
const ONLY_RECORDED_KEYS: &[&str] = &["kubernetes.pod-template-file.jobmanager"];

/// Keys of the file that only ours has without high availability: operator 1.7.0 set it only with it, upstream's current
/// operator sets it always.
const ONLY_OUR_KEY: &str = "execution.submit-failed-job-on-application-error";

/// Paths at which two objects differ, without lists of what one of them may have alone.
fn differences(ours: &Value, theirs: &Value, path: &str, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            for (key, field) in ours {
                let path = below(path, key);
                match theirs.get(key) {
                    Some(other) => differences(field, other, &path, found),
                    None if OF_OURS.contains(&path.as_str()) => {}
                    None => found.push(format!("{path}: only ours")),
                }
            }
            for key in theirs.keys().filter(|key| !ours.contains_key(*key)) {
                let path = below(path, key);
                if !OF_THE_SERVER.contains(&path.as_str()) {
                    found.push(format!("{path}: only theirs"));
                }
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            let ours = by_name(ours);
            let theirs = by_name(theirs);
            let order = |one: &[(String, Value)], other: &[(String, Value)]| -> Vec<String> {
                let names = one.iter().map(|(name, _)| name.clone());
                names
                    .filter(|name| other.iter().any(|(it, _)| it == name))
                    .collect()
            };
            assert_eq!(order(&ours, &theirs), order(&theirs, &ours), "{path}");
            let object = |list: Vec<(String, Value)>| Value::Object(list.into_iter().collect());
            differences(&object(ours), &object(theirs), path, found);
        }
        (ours, theirs) if ours == theirs || same_amount(ours, theirs) => {}
        (ours, theirs) => found.push(format!("{path}: ours {ours}, theirs {theirs}")),
    }
}

fn below(path: &str, key: &str) -> String {
    if path.is_empty() || key.starts_with('[') {
        format!("{path}{key}")
    } else {
        format!("{path}.{key}")
    }
}

fn by_name(list: &[Value]) -> Vec<(String, Value)> {
    let named = list.iter().enumerate().map(|(at, element)| {
        let name = element["name"].as_str();
        let name = name.map_or_else(|| at.to_string(), str::to_owned);
        (format!("[{name}]"), element.clone())
    });
    named.collect()
}

fn same_amount(ours: &Value, theirs: &Value) -> bool {
    let amount = |value: &Value| value.as_str().and_then(Quantity::parse);
    amount(ours).is_some() && amount(ours) == amount(theirs)
}

fn of_kind<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = objects
        .iter()
        .find(|it| it["kind"] == kind && it["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("{kind} {name}"))
}

/// Key and text of every line of a flat file, also of those without a text.
fn lines(file: &str) -> std::collections::BTreeMap<String, String> {
    let lines = file.lines().map(|line| line.split_once(": ").unwrap());
    lines
        .map(|(key, text)| (key.to_owned(), text.to_owned()))
        .collect()
}

/// Deploys as the recorded attempt was: its generation, its ids.
fn deployed(name: &str, recorded: &[Value]) -> Effective {
    let deployment = deployments(&format!("manifests/{name}.in.yaml")).remove(0);
    let mut effective = effective(FlinkConfig::new(), &deployment);
    let config = &mut effective.config;
    let resource = of_kind(recorded, "FlinkDeployment", name);
    effective::set_generation(config, 2).unwrap();
    effective::set_owner(
        config,
        DeploymentOwner {
            api_version: "flink.apache.org/v1beta1",
            kind: "FlinkDeployment",
            name,
            uid: resource["metadata"]["uid"].as_str().unwrap(),
        },
    );
    let job_id = resource["status"]["jobStatus"]["jobId"].as_str().unwrap();
    config.set(&options::JOB_ID, job_id);
    let attempt = "2e0d9aa1-73ce-4132-9405-05ee208f2f14";
    effective::set_job_result_store(config, name, attempt).unwrap();
    effective::set_savepoint(config, None);
    effective
}

fn check(name: &str, n_accompanying: usize) {
    let recorded = documents(&format!("golden/{name}.out.yaml"));
    let effective = deployed(name, &recorded);
    let resources = native(&cluster(name, &effective)).unwrap();
    assert_eq!(resources.notes, []);
    let mut found = Vec::new();
    let theirs = of_kind(&recorded, "Deployment", name);
    differences(&resources.deployment, theirs, "", &mut found);

    let accompanying = resources.accompanying("u-1");
    assert_eq!(accompanying.len(), n_accompanying);
    for ours in &accompanying {
        let kind = ours["kind"].as_str().unwrap();
        let their = of_kind(&recorded, kind, ours["metadata"]["name"].as_str().unwrap());
        let (mut ours, mut theirs) = (ours.clone(), their.clone());
        if kind == "ConfigMap" {
            let file = ours["data"]["flink-conf.yaml"].take();
            let their_file = theirs["data"]["flink-conf.yaml"].take();
            let mut expected = lines(their_file.as_str().unwrap());
            expected.retain(|key, _| !ONLY_RECORDED_KEYS.contains(&key.as_str()));
            let mut found = lines(file.as_str().unwrap());
            if !expected.contains_key("high-availability.type") {
                assert_eq!(found.remove(ONLY_OUR_KEY).as_deref(), Some("true"));
            }
            assert_eq!(found, expected);
        }
        differences(&ours, &theirs, "", &mut found);
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn an_application_with_high_availability_is_the_recorded_one() {
    check("g-app-ha", 2);
}

#[test]
fn an_application_without_high_availability_is_the_recorded_one() {
    check("g-app-noha", 3);
}

#[test]
fn a_difference_is_found() {
    let recorded = documents("golden/g-app-noha.out.yaml");
    let theirs = of_kind(&recorded, "Deployment", "g-app-noha");
    let mut ours = theirs.clone();
    ours["spec"]["replicas"] = json!(2);
    ours["spec"]["template"]["spec"]["volumes"] = json!([]);
    ours["spec"]["paused"] = json!(true);
    let mut found = Vec::new();
    differences(&ours, theirs, "", &mut found);
    assert_eq!(
        found,
        [
            "spec.paused: only ours",
            "spec.replicas: ours 2, theirs 1",
            "spec.template.spec.volumes[flink-config-volume]: only theirs",
        ]
    );
}
