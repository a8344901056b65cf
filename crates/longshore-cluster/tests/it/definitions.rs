//! CustomResourceDefinitions and the resources that they describe.

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use longshore_cluster::Cluster;
use serde_json::{Value, json};

use crate::harness::{Api, CONFIG_MAPS, config_map, controlled, gone, revision};

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const GADGETS: &str = "/apis/example.com/v1/namespaces/default/gadgets";

fn file(name: &str) -> Value {
    let path = format!("{}/testdata/crds/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

pub(crate) fn gadgets() -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1},
            "color": {"type": "string", "default": "red"},
            "replicas": {"type": "integer"},
        }},
        "status": {"type": "object", "properties": {
            "phase": {"type": "string"}, "replicas": {"type": "integer"}, "selector": {"type": "string"},
        }},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget", "shortNames": ["gd"], "categories": ["all"]},
            "versions": [
                {
                    "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}, "scale": {
                        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    }},
                    "selectableFields": [{"jsonPath": ".spec.color"}],
                },
                {"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    })
}

pub(crate) fn gadget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": {"size": 1}})
}

async fn with_gadgets() -> Api {
    let api = Api::new(&Cluster::in_memory());
    api.make(DEFINITIONS, gadgets()).await;
    api
}

fn condition<'a>(definition: &'a Value, kind: &str) -> &'a Value {
    let conditions = definition["status"]["conditions"].as_array().unwrap();
    conditions
        .iter()
        .find(|it| it["type"] == kind)
        .unwrap_or(&Value::Null)
}

#[tokio::test]
async fn a_definition_is_usable_at_once() {
    let api = with_gadgets().await;
    let (_, definition) = api.get(&format!("{DEFINITIONS}/gadgets.example.com")).await;
    assert_eq!(
        condition(&definition, "NamesAccepted")["reason"],
        "NoConflicts"
    );
    assert_eq!(
        condition(&definition, "Established")["reason"],
        "InitialNamesAccepted"
    );
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(
        definition["status"]["acceptedNames"]["listKind"],
        "GadgetList"
    );
    assert_eq!(definition["spec"]["names"]["singular"], "gadget");
    assert_eq!(
        definition["spec"]["conversion"],
        json!({"strategy": "None"})
    );

    let (_, empty) = api.get(GADGETS).await;
    assert_eq!(
        (&empty["kind"], &empty["items"]),
        (&json!("GadgetList"), &json!([]))
    );
    api.make(GADGETS, gadget("a")).await;
    let (_, list) = api.get("/apis/example.com/v1/gadgets").await;
    assert_eq!(list["items"][0]["kind"], "Gadget");
    assert_eq!(list["items"][0]["apiVersion"], "example.com/v1");
    let (_, resources) = api.get("/apis/example.com/v1").await;
    assert_eq!(resources["resources"][0]["shortNames"], json!(["gd"]));
    assert_eq!(resources["resources"][0]["categories"], json!(["all"]));
    let names: Vec<&str> = resources["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["gadgets", "gadgets/status", "gadgets/scale"]);
}

#[tokio::test]
async fn objects_are_pruned_defaulted_and_judged() {
    let api = with_gadgets().await;
    let mut object = gadget("a");
    object["spec"]["unknown"] = 1.into();
    let made = api.make(GADGETS, object.clone()).await;
    assert_eq!(made["spec"], json!({"size": 1, "color": "red"}));
    let (code, status) = api
        .post(&format!("{GADGETS}?fieldValidation=Strict"), object)
        .await;
    assert_eq!(
        (code, status["message"].as_str().unwrap()),
        (
            400,
            "Gadget in version \"v1\" cannot be handled as a Gadget: strict decoding error: unknown field \"spec.unknown\""
        )
    );

    let mut bad = gadget("b");
    bad["spec"] = json!({"color": 5});
    let (code, status) = api.post(GADGETS, bad).await;
    assert_eq!(code, 422);
    assert_eq!(
        status["message"],
        "Gadget.example.com \"b\" is invalid: [spec.color: Invalid value: \"integer\": spec.color in body must be of type string: \"integer\", spec.size: Required value]"
    );
    assert_eq!(
        status["details"]["causes"][0]["reason"],
        "FieldValueTypeInvalid"
    );
    assert_eq!(
        status["details"]["causes"][1],
        json!({
            "reason": "FieldValueRequired", "message": "Required value", "field": "spec.size",
        })
    );
}

#[tokio::test]
async fn main_and_status_are_written_apart() {
    let api = with_gadgets().await;
    let mut object = gadget("a");
    object["status"] = json!({"phase": "Done"});
    let made = api.make(GADGETS, object).await;
    assert_eq!(made.get("status"), None);
    let path = format!("{GADGETS}/a");
    let status =
        json!({"status": {"phase": "Up"}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}});
    let (_, written) = api
        .patch("merge", &format!("{path}/status"), status.clone())
        .await;
    assert_eq!(written["status"]["phase"], "Up");
    assert_eq!(
        (&written["spec"]["size"], &written["metadata"]["generation"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(written["metadata"].get("labels"), None);
    let (_, written) = api
        .patch("merge", &path, json!({"status": null, "spec": {"size": 2}}))
        .await;
    assert_eq!(written["status"]["phase"], "Up");
    assert_eq!(written["metadata"]["generation"], 2);
    let bad = json!({"status": {"phase": 1}});
    assert_eq!(
        api.patch("merge", &format!("{path}/status"), bad).await.0,
        422
    );

    let (code, refused) = api.put(&path, gadget("a")).await;
    assert_eq!(
        (code, &refused["details"]["causes"][0]["field"]),
        (422, &json!("metadata.resourceVersion"))
    );
    assert_eq!(
        refused["details"]["causes"][0]["message"],
        "Invalid value: 0: must be specified for an update"
    );
    let (code, _) = api.patch("strategic", &path, status).await;
    assert_eq!(code, 415);
    let (_, same) = api
        .patch("merge", &path, json!({"spec": {"size": 2}}))
        .await;
    assert_eq!(revision(&same), revision(&written));
}

#[tokio::test]
async fn scale_follows_the_paths_of_the_definition() {
    let api = with_gadgets().await;
    api.make(GADGETS, gadget("a")).await;
    let scale = format!("{GADGETS}/a/scale");
    let (_, changed) = api
        .patch("merge", &scale, json!({"spec": {"replicas": 3}}))
        .await;
    assert_eq!(
        (&changed["kind"], &changed["spec"]["replicas"]),
        (&json!("Scale"), &json!(3))
    );
    let status = json!({"status": {"replicas": 2, "selector": "app=a"}});
    api.patch("merge", &format!("{GADGETS}/a/status"), status)
        .await;
    let (_, read) = api.get(&scale).await;
    assert_eq!(read["status"], json!({"replicas": 2, "selector": "app=a"}));
    let (_, object) = api.get(&format!("{GADGETS}/a")).await;
    assert_eq!(
        (
            &object["spec"]["replicas"],
            &object["metadata"]["generation"]
        ),
        (&json!(3), &json!(2))
    );
}

#[tokio::test]
async fn versions_differ_in_their_name_only() {
    let api = with_gadgets().await;
    let mut object = gadget("a");
    object["apiVersion"] = "example.com/v2".into();
    let v2 = "/apis/example.com/v2/namespaces/default/gadgets";
    let made = api.make(v2, object).await;
    assert_eq!(made["apiVersion"], "example.com/v2");
    let (_, read) = api.get(&format!("{GADGETS}/a")).await;
    assert_eq!(read["apiVersion"], "example.com/v1");
    assert_eq!(revision(&read), revision(&made));
    let (_, list) = api.get(v2).await;
    assert_eq!(list["items"][0]["apiVersion"], "example.com/v2");
    let (_, blue) = api
        .get(&format!("{GADGETS}?fieldSelector=spec.color%3Dblue"))
        .await;
    assert_eq!(blue["items"], json!([]));
    let (_, red) = api
        .get(&format!("{GADGETS}?fieldSelector=spec.color%3Dred"))
        .await;
    assert_eq!(red["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_stored_is_read_by_the_present_schema() {
    let api = with_gadgets().await;
    api.make(GADGETS, gadget("a")).await;
    let shape = json!({"type": "integer", "default": 7});
    let patch = json!([
        {"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/weight", "value": shape},
        {"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/minimum", "value": 5},
        {"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color"},
        {"op": "remove", "path": "/spec/versions/0/selectableFields"},
    ]);
    let definition = format!("{DEFINITIONS}/gadgets.example.com");
    let (code, changed) = api.patch("json", &definition, patch).await;
    assert_eq!(
        (code, &changed["metadata"]["generation"]),
        (200, &json!(2)),
        "{changed}"
    );
    let (_, read) = api.get(&format!("{GADGETS}/a")).await;
    assert_eq!(read["spec"], json!({"size": 1, "weight": 7}));
    let (_, list) = api.get(GADGETS).await;
    assert_eq!(list["items"][0]["spec"], json!({"size": 1, "weight": 7}));
    // The stored `size` is below the new minimum, but the patch does not touch it.
    let (code, _) = api
        .patch(
            "merge",
            &format!("{GADGETS}/a"),
            json!({"spec": {"weight": 8}}),
        )
        .await;
    assert_eq!(code, 200);
    let (code, _) = api
        .patch(
            "merge",
            &format!("{GADGETS}/a"),
            json!({"spec": {"size": 2}}),
        )
        .await;
    assert_eq!(code, 422);
}

#[tokio::test]
async fn a_definition_goes_when_its_objects_are_gone() {
    let api = with_gadgets().await;
    api.make(GADGETS, gadget("free")).await;
    let mut held = gadget("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.make(GADGETS, held).await;
    let path = format!("{DEFINITIONS}/gadgets.example.com");
    let (code, going) = api.delete(&path, Value::Null).await;
    assert_eq!(
        (code, &going["metadata"]["finalizers"]),
        (200, &json!(["customresourcecleanup.apiextensions.k8s.io"]))
    );
    assert_eq!(condition(&going, "Terminating")["status"], "True");
    assert_eq!(api.get(&format!("{GADGETS}/free")).await.0, 404);
    let (code, refused) = api.post(GADGETS, gadget("late")).await;
    assert_eq!(
        (code, &refused["message"]),
        (
            405,
            &json!("create not allowed while custom resource definition is terminating")
        )
    );
    assert_eq!(api.get(&path).await.0, 200);
    api.patch(
        "merge",
        &format!("{GADGETS}/held"),
        json!({"metadata": {"finalizers": null}}),
    )
    .await;
    assert_eq!(api.get(&path).await.0, 404);
    assert_eq!(api.get(GADGETS).await.0, 404);
    // A new one of the same name starts empty.
    api.make(DEFINITIONS, gadgets()).await;
    let (_, list) = api.get(GADGETS).await;
    assert_eq!(list["items"], json!([]));
}

#[tokio::test]
async fn a_watch_sees_the_objects_and_ends_with_the_definition() {
    let api = with_gadgets().await;
    api.make(GADGETS, gadget("a")).await;
    let watch = format!("{GADGETS}?watch=true&resourceVersion=0");
    let response = api.send(Method::GET, &watch, "", Bytes::new()).await;
    let path = format!("{DEFINITIONS}/gadgets.example.com");
    api.delete(&path, Value::Null).await;
    let lines = response.into_body().collect().await.unwrap().to_bytes();
    let events: Vec<Value> = String::from_utf8_lossy(&lines)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events[0]["type"], "ADDED");
    assert_eq!(events[0]["object"]["kind"], "Gadget");
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_later_definition_are_collected_with_their_owner() {
    let (_cluster, api, _guard) = controlled();
    // The collector is at work before the definition comes.
    let owned = |owner: &Value, mut object: Value| {
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": owner["apiVersion"], "kind": owner["kind"],
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        }]);
        object
    };
    let first = api.make(CONFIG_MAPS, config_map("first", "v")).await;
    api.make(CONFIG_MAPS, owned(&first, config_map("second", "v")))
        .await;
    api.delete(&format!("{CONFIG_MAPS}/first"), Value::Null)
        .await;
    gone(&api, &format!("{CONFIG_MAPS}/second")).await;

    api.make(DEFINITIONS, gadgets()).await;
    let owner = api.make(GADGETS, gadget("owner")).await;
    api.make(GADGETS, owned(&owner, gadget("owned"))).await;
    api.make(CONFIG_MAPS, owned(&owner, config_map("third", "v")))
        .await;
    api.delete(&format!("{GADGETS}/owner"), Value::Null).await;
    gone(&api, &format!("{GADGETS}/owned")).await;
    gone(&api, &format!("{CONFIG_MAPS}/third")).await;
}

#[tokio::test]
async fn names_are_given_to_the_first_that_asks() {
    let api = with_gadgets().await;
    let mut rival = gadgets();
    rival["metadata"]["name"] = "gizmos.example.com".into();
    rival["spec"]["names"] = json!({"plural": "gizmos", "kind": "Gizmo", "shortNames": ["gd"]});
    api.make(DEFINITIONS, rival).await;
    let path = format!("{DEFINITIONS}/gizmos.example.com");
    let (_, waiting) = api.get(&path).await;
    assert_eq!(
        condition(&waiting, "NamesAccepted")["reason"],
        "ShortNamesConflict"
    );
    assert_eq!(
        condition(&waiting, "NamesAccepted")["message"],
        "\"gd\" is already in use"
    );
    assert_eq!(condition(&waiting, "Established")["reason"], "NotAccepted");
    assert_eq!(api.get("/apis/example.com/v1/gizmos").await.0, 404);
    api.delete(&format!("{DEFINITIONS}/gadgets.example.com"), Value::Null)
        .await;
    assert_eq!(api.get("/apis/example.com/v1/gizmos").await.0, 200);
}

#[tokio::test]
async fn real_definitions_are_taken() {
    let api = Api::new(&Cluster::in_memory());
    for name in [
        "flinkdeployments.flink.apache.org-v1.yml",
        "flinksessionjobs.flink.apache.org-v1.yml",
        "flinkstatesnapshots.flink.apache.org-v1.yml",
        "flyte.org_taskactions.yaml",
        "apps.kusionstack.io_collasets.yaml",
        "apps.kusionstack.io_operationjobs.yaml",
        "apps.kusionstack.io_podtransitionrules.yaml",
        "apps.kusionstack.io_resourcecontexts.yaml",
    ] {
        let definition = api.make(DEFINITIONS, file(name)).await;
        let (_, served) = api
            .get(&format!(
                "{DEFINITIONS}/{}",
                definition["metadata"]["name"].as_str().unwrap()
            ))
            .await;
        assert_eq!(
            condition(&served, "Established")["status"],
            "True",
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_task_action_is_judged_by_its_definition() {
    let api = Api::new(&Cluster::in_memory());
    api.make(DEFINITIONS, file("flyte.org_taskactions.yaml"))
        .await;
    let actions = "/apis/flyte.org/v1/namespaces/default/taskactions";
    api.make(actions, file("flyte.org_v1_taskaction.yaml"))
        .await;
    let mut action = file("sdk-root-taskaction.yaml");
    let status = action["status"].clone();
    action["metadata"] = json!({"name": "root"});
    let made = api.make(actions, action).await;
    assert_eq!(made.get("status"), None);
    let (code, written) = api
        .patch(
            "merge",
            &format!("{actions}/root/status"),
            json!({"status": status}),
        )
        .await;
    assert_eq!((code, &written["status"]), (200, &status));
    let (code, refused) = api
        .patch(
            "merge",
            &format!("{actions}/root"),
            json!({"spec": {"runName": ""}}),
        )
        .await;
    assert_eq!(
        (code, &refused["details"]["causes"][0]["message"]),
        (
            422,
            &json!("Invalid value: \"\": spec.runName in body should be at least 1 chars long")
        )
    );
}

#[tokio::test]
async fn a_flink_deployment_and_pod_rules_are_judged_by_theirs() {
    let api = Api::new(&Cluster::in_memory());
    for name in [
        "flinkdeployments.flink.apache.org-v1.yml",
        "apps.kusionstack.io_collasets.yaml",
        "apps.kusionstack.io_podtransitionrules.yaml",
    ] {
        api.make(DEFINITIONS, file(name)).await;
    }
    let deployments = "/apis/flink.apache.org/v1beta1/namespaces/default/flinkdeployments";
    let mut deployment = file("flink-basic.yaml");
    deployment["spec"]["nonsense"] = true.into();
    let made = api.make(deployments, deployment).await;
    assert_eq!(made["spec"].get("nonsense"), None);
    assert_eq!(
        made["spec"]["flinkConfiguration"]["taskmanager.numberOfTaskSlots"],
        2
    );
    let bad = json!({"spec": {"flinkVersion": "v0"}});
    let (code, refused) = api
        .patch("merge", &format!("{deployments}/basic-example"), bad)
        .await;
    assert_eq!(
        (code, &refused["details"]["causes"][0]["reason"]),
        (422, &json!("FieldValueNotSupported"))
    );
    let rules = "/apis/apps.kusionstack.io/v1alpha1/namespaces/default";
    for (plural, name) in [
        ("collasets", "apps_v1alpha1_collaset.yaml"),
        ("podtransitionrules", "apps_v1alpha1_podtransitionrule.yaml"),
    ] {
        let mut sample = file(name);
        sample["metadata"]["namespace"] = "default".into();
        api.make(&format!("{rules}/{plural}"), sample).await;
    }
}

#[tokio::test]
async fn a_schema_that_is_not_structural_is_answered_with_its_faults() {
    let api = Api::new(&Cluster::in_memory());
    let mut bad = gadgets();
    bad["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"] =
        json!({});
    let (code, refused) = api.post(DEFINITIONS, bad).await;
    assert_eq!(
        (code, &refused["message"]),
        (
            422,
            &json!(
                "CustomResourceDefinition.apiextensions.k8s.io \"gadgets.example.com\" is invalid: \
         spec.versions[1].schema.openAPIV3Schema.properties[spec].properties[size].type: Required value: must not be empty for specified object fields"
            )
        )
    );
}
