//! Webhooks behind a Service.

use serde_json::{Value, json};

use super::Court;
use crate::harness::{CONFIG_MAPS, config_map};

fn behind_a_service() -> Value {
    let service = json!({"namespace": "hooks", "name": "judge", "path": "/deny/message"});
    json!({"clientConfig": {"url": null, "service": service}})
}

#[tokio::test]
async fn a_service_leads_to_its_ready_endpoints() {
    let court = Court::open();
    let api = &court.api;
    court.validate("/", behind_a_service()).await;
    let failed = "Internal error occurred: failed calling webhook \"one.example.com\": failed to call webhook: Post \
         \"https://judge.hooks.svc:443/deny/message?timeout=2s\": ";
    let refusal = |why: &str| (500, json!(format!("{failed}{why}")));
    let attempt = || async {
        let (code, status) = api.post(CONFIG_MAPS, config_map("m", "1")).await;
        (code, status["message"].clone())
    };
    assert_eq!(attempt().await, refusal("service \"judge\" not found"));
    api.make("/api/v1/namespaces", json!({"metadata": {"name": "hooks"}}))
        .await;
    let ports = json!([{"name": "https", "port": 443, "targetPort": court.judge.port()}]);
    let service = json!({"metadata": {"name": "judge"}, "spec": {"ports": ports}});
    api.make("/api/v1/namespaces/hooks/services", service).await;
    assert_eq!(
        attempt().await,
        refusal("no endpoints available for service \"judge\"")
    );
    let slice = |name: &str, address: &str, is_ready: bool| {
        json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "judge"}},
            "addressType": "IPv4", "ports": [{"name": "https", "port": court.judge.port()}],
            "endpoints": [{"addresses": [address], "conditions": {"ready": is_ready}}],
        })
    };
    let slices = "/apis/discovery.k8s.io/v1/namespaces/hooks/endpointslices";
    api.make(slices, slice("away", "127.0.0.9", false)).await;
    assert_eq!(
        attempt().await,
        refusal("no endpoints available for service \"judge\"")
    );
    api.make(slices, slice("here", "127.0.0.1", true)).await;
    let denied = "admission webhook \"one.example.com\" denied the request: not today";
    assert_eq!(attempt().await, (400, json!(denied)));
}
