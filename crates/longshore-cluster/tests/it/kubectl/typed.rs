//! `kubectl create KIND` and others that send protobuf.

use super::script::Script;

const COMMANDS: &[&str] = &[
    "create deployment web --image=nginx:1 --replicas=2 --port=80",
    "create configmap cm --from-literal=a=1",
    "create secret generic s --from-literal=p=hunter2",
    "create secret docker-registry d --docker-username=a --docker-password=b",
    "create namespace other",
    "create job j --image=busybox -- date",
    "create cronjob c --image=busybox --schedule=*/5_*_*_*_* -- date",
    "create job from-cron --from=cronjob/c",
    "create serviceaccount sa",
    "create service clusterip svc --tcp=80:8080",
    "create service nodeport np --tcp=80:8080",
    "create service externalname en --external-name=example.com",
    "create ingress in --rule=foo.com/bar=svc:80",
    "create poddisruptionbudget pdb --selector=a=b --min-available=50%",
    "create priorityclass pc --value=100",
    "create quota q --hard=cpu=1,memory=1Gi",
    "create role r --verb=get,list --resource=pods",
    "create clusterrole cr --verb=get --resource=nodes",
    "create rolebinding rb --role=r --user=u",
    "create clusterrolebinding crb --clusterrole=cr --user=u",
];

/// What is there then.
const RESULTS: &[(&str, &str)] = &[
    (
        "get deployment web -o jsonpath={.spec.replicas}{.spec.template.spec.containers[0].ports[0].containerPort}",
        "280",
    ),
    ("get secret s -o jsonpath={.data.p}", "aHVudGVyMg=="),
    (
        "get secret d -o jsonpath={.type}",
        "kubernetes.io/dockerconfigjson",
    ),
    (
        "get job j -o jsonpath={.spec.template.spec.containers[0].command}",
        "[\"date\"]",
    ),
    ("get cronjob c", "*/5 * * * *"),
    (
        "get job from-cron -o jsonpath={.metadata.ownerReferences[0].name}",
        "c",
    ),
    (
        "get service svc -o jsonpath={.spec.ports[0].targetPort}",
        "8080",
    ),
    ("get pdb pdb -o jsonpath={.spec.minAvailable}", "50%"),
    ("get quota q -o jsonpath={.spec.hard.memory}", "1Gi"),
    ("get rolebinding rb -o wide", "Role/r"),
    ("get priorityclass pc", "100"),
];

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_creates_what_its_words_say() {
    let Some(script) = Script::start("typed") else {
        return;
    };
    for command in COMMANDS {
        script.expect(command, "created").await;
    }
    for (arguments, expected) in RESULTS {
        script.expect(arguments, expected).await;
    }
    script
        .refuse("create configmap cm", "configmaps \"cm\" already exists")
        .await;
    script.refuse("create configmap Bad", "Invalid").await;
    script
        .expect(
            "create configmap dry --dry-run=server",
            "created (server dry run)",
        )
        .await;
    script.refuse("get configmap dry", "(NotFound)").await;
    script
        .expect("expose deployment web --port=80", "exposed")
        .await;
    script
        .expect("autoscale deployment web --max=5 --cpu=80%", "autoscaled")
        .await;
    script.expect("auth can-i get pods", "yes").await;
}
