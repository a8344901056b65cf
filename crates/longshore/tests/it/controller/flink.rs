//! The role `flink` on a cluster that does not know all of its resources.

use std::time::Duration;

use kube::{Api, api::PostParams, core::DynamicObject, runtime::wait::await_condition};
use longshore_api::flink::{FINALIZER_DEPLOYMENT, FLINK_DEPLOYMENT_CRD, FLINK_STATE_SNAPSHOT_CRD};
use longshore_core::Resource;
use longshore_flink::{DEPLOYMENT, FLINK_DEPLOYMENT};
use longshore_kit::api_resource;
use longshore_test::install_definition;
use serde_json::Value;

use super::replica::{Plan, page, until};
use crate::{cluster::TestCluster, longshore, outcome};

/// Upstream's first example.
const BASIC: &str = include_str!("../../../testdata/flink/basic.yaml");

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_definition_is_named_and_the_role_goes_on_with_the_others() {
    let cluster = TestCluster::embedded().await;
    let plan = Plan::of(&cluster, "flink");
    let mut replica = plan.spawn("alone");
    let ready = replica.ready();
    let advice = "longshore controller crd --enable flink | kubectl apply -f -";
    until("it says that there are no FlinkDeployments", || {
        let log = replica.log();
        let missing = "waits for the resource flinkdeployments.flink.apache.org";
        log.contains(missing) && log.contains(advice)
    })
    .await;
    let readyz = page(ready["metrics"].as_str().unwrap(), "/readyz?verbose").await;
    assert!(readyz.contains("200 OK"), "{readyz}");
    install_definition(&cluster.admin, FLINK_DEPLOYMENT_CRD).await;
    until("it says what else is missing", || {
        let log = replica.log();
        let jobs = "session jobs do not run until the API server serves flinksessionjobs";
        let snapshots = "for upgrades only until the API server serves flinkstatesnapshots";
        replica.leads() && log.contains(jobs) && log.contains(snapshots)
    })
    .await;

    let api = |resource: Resource| -> Api<DynamicObject> {
        Api::namespaced_with(
            cluster.admin.clone(),
            &cluster.namespace,
            &api_resource(resource),
        )
    };
    let object: DynamicObject = serde_saphyr::from_str(BASIC).unwrap();
    let (flink, params) = (api(FLINK_DEPLOYMENT), PostParams::default());
    flink.create(&params, &object).await.unwrap();
    let is_there = |it: Option<&DynamicObject>| it.is_some();
    let deployed = await_condition(api(DEPLOYMENT), "basic-example", is_there);
    let in_time = tokio::time::timeout(Duration::from_secs(60), deployed).await;
    assert!(in_time.is_ok(), "{}", replica.log());
    let found = flink.get("basic-example").await.unwrap();
    let finalizers = found.metadata.finalizers.unwrap_or_default();
    assert_eq!(finalizers, [FINALIZER_DEPLOYMENT]);

    install_definition(&cluster.admin, FLINK_STATE_SNAPSHOT_CRD).await;
    until("it says that one of them is there", || {
        let served = "flink: the API server serves flinkstatesnapshots now";
        replica.log().contains(served)
    })
    .await;
    assert_eq!(replica.stop(), Some(0));
}

#[test]
fn the_definitions_are_printed_for_kubectl() {
    let (code, stdout, _) = outcome(longshore().args(["controller", "crd", "--enable", "flink"]));
    assert_eq!(code, 0);
    let names: Vec<String> = stdout
        .split("---\n")
        .map(|text| {
            let definition: Value = serde_saphyr::from_str(text).unwrap();
            definition["metadata"]["name"].as_str().unwrap().to_owned()
        })
        .collect();
    let expected = [
        "flinkdeployments",
        "flinksessionjobs",
        "flinkstatesnapshots",
    ];
    assert_eq!(
        names,
        expected.map(|name| format!("{name}.flink.apache.org"))
    );
}
