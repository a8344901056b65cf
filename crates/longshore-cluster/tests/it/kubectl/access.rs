//! Least privilege: roles, bindings, questions about permissions, and requests in the name of other users.

use super::script::Script;

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_grants_rights_and_asks_about_them() {
    let Some(script) = Script::start("access") else {
        return;
    };
    script
        .refuse(
            "get secrets --as=nobody",
            "secrets is forbidden: User \"nobody\" cannot list resource \"secrets\" in API group \"\" in the namespace \
             \"default\"",
        )
        .await;
    script
        .expect(
            "create role reader --verb=get,list,watch --resource=configmaps,pods/log",
            "reader created",
        )
        .await;
    script
        .expect(
            "create rolebinding readers --role=reader --user=jane --group=readers --serviceaccount=default:bot",
            "readers created",
        )
        .await;
    script
        .expect("auth can-i list configmaps --as=jane", "yes")
        .await;
    script
        .refuse("auth can-i delete configmaps --as=jane", "\nno")
        .await;
    script
        .refuse(
            "auth can-i list configmaps --as=jane -n kube-system",
            "\nno",
        )
        .await;
    script
        .expect(
            "auth can-i get pods --subresource=log --as=system:serviceaccount:default:bot",
            "yes",
        )
        .await;
    script
        .expect(
            "auth can-i list configmaps --as=joe --as-group=readers",
            "yes",
        )
        .await;
    let rules = script.feed("auth can-i --list --as=jane", "").await;
    rules
        .says("configmaps")
        .says("[get list watch]")
        .says("[/version]");
    script
        .expect("auth whoami --as=jane", "system:authenticated")
        .await;
    script.expect("get configmaps --as=jane", "").await;
    script
        .refuse(
            "create configmap a --as=jane",
            "cannot create resource \"configmaps\"",
        )
        .await;
    script
        .refuse(
            "create rolebinding more --clusterrole=cluster-admin --user=jane --as=jane",
            "cannot create resource \"rolebindings\"",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_uses_the_aggregated_roles() {
    let Some(script) = Script::start("aggregation") else {
        return;
    };
    script
        .expect(
            "create rolebinding viewers --clusterrole=view --user=jane",
            "viewers created",
        )
        .await;
    // The controller gathers the rules of `view` soon after the start.
    script
        .expect(
            "wait clusterrole/view --for=jsonpath={.rules[0].verbs[0]}=get --timeout=60s",
            "condition met",
        )
        .await;
    script.expect("auth can-i list pods --as=jane", "yes").await;
    script
        .refuse("auth can-i list secrets --as=jane", "\nno")
        .await;
    script
        .refuse("auth can-i delete pods --as=jane", "\nno")
        .await;
}
