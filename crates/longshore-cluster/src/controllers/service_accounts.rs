//! What every pod of a namespace needs to speak to the API: an account `default`, and the certificate of the API server's
//! authority in a ConfigMap.

use std::collections::BTreeMap;

use futures::{Stream, StreamExt, future::ready};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::{
    Api, Client, Error, ResourceExt,
    api::PostParams,
    runtime::{
        WatchStreamExt,
        watcher::{Config, Event, watcher},
    },
};

use super::queue::Queue;

/// The account of pods that name none.
const ACCOUNT: &str = "default";
/// The ConfigMap with the certificate.
const BUNDLE: &str = "kube-root-ca.crt";
/// The key of the certificate.
const BUNDLE_KEY: &str = "ca.crt";

/// Runs for ever. `root_ca` is in PEM; `None` where clients need no certificate.
pub(super) async fn run(client: Client, root_ca: Option<String>) {
    let mut events = changed_namespaces(&client);
    let mut queue: Queue<String> = Queue::new();
    loop {
        tokio::select! {
            biased;
            Some(namespace) = events.next() => queue.add(namespace),
            name = queue.next() => match settle(&client, &name, root_ca.as_deref()).await {
                Ok(()) => queue.succeed(&name),
                Err(error) => {
                    tracing::debug!(%error, namespace = name, "account or certificate not made, trying again");
                    queue.retry(name);
                }
            },
        }
    }
}

/// The names of namespaces in which something may be missing.
fn changed_namespaces(client: &Client) -> impl Stream<Item = String> + Unpin + use<> {
    let namespaces = watcher(Api::<Namespace>::all(client.clone()), Config::default());
    let accounts = Api::<ServiceAccount>::all(client.clone());
    let accounts = watcher(accounts, Config::default().fields(&named(ACCOUNT)));
    let bundles = Api::<ConfigMap>::all(client.clone());
    let bundles = watcher(bundles, Config::default().fields(&named(BUNDLE)));
    let namespaces = namespaces
        .default_backoff()
        .filter_map(|event| ready(subject(event, |it: &Namespace| Some(it.name_any()))));
    let accounts = accounts
        .default_backoff()
        .filter_map(|event| ready(subject(event, ServiceAccount::namespace)));
    let bundles = bundles
        .default_backoff()
        .filter_map(|event| ready(subject(event, ConfigMap::namespace)));
    futures::stream::select_all([namespaces.boxed(), accounts.boxed(), bundles.boxed()])
}

fn named(name: &str) -> String {
    format!("metadata.name={name}")
}

/// The namespace that an event is about.
fn subject<K>(
    event: Result<Event<K>, kube::runtime::watcher::Error>,
    namespace: impl Fn(&K) -> Option<String>,
) -> Option<String> {
    match event {
        Ok(Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) => {
            namespace(&object)
        }
        Ok(Event::Init | Event::InitDone) => None,
        Err(error) => {
            tracing::debug!(%error, "watch failed, starting again");
            None
        }
    }
}

/// What is there in a namespace.
#[derive(Debug)]
struct Observed {
    namespace: Option<Namespace>,
    has_account: bool,
    bundle: Option<ConfigMap>,
}

/// What to do in it.
#[derive(Debug, Clone, PartialEq)]
enum Action {
    CreateAccount,
    CreateBundle(ConfigMap),
    ReplaceBundle(ConfigMap),
}

/// The account comes last: new pods wait for it, and then find the certificate there.
fn decide(observed: &Observed, root_ca: Option<&str>) -> Vec<Action> {
    let namespace = observed.namespace.as_ref();
    let is_live = namespace.is_some_and(|it| it.metadata.deletion_timestamp.is_none());
    if !is_live {
        return Vec::new();
    }
    let bundle = root_ca.and_then(|root_ca| decide_bundle(observed.bundle.as_ref(), root_ca));
    let account = (!observed.has_account).then_some(Action::CreateAccount);
    bundle.into_iter().chain(account).collect()
}

fn decide_bundle(present: Option<&ConfigMap>, root_ca: &str) -> Option<Action> {
    let data = BTreeMap::from([(BUNDLE_KEY.to_owned(), root_ca.to_owned())]);
    match present {
        None => {
            let mut bundle = ConfigMap {
                data: Some(data),
                ..ConfigMap::default()
            };
            bundle.metadata.name = Some(BUNDLE.to_owned());
            Some(Action::CreateBundle(bundle))
        }
        Some(bundle) if bundle.data.as_ref() != Some(&data) => {
            let bundle = ConfigMap {
                data: Some(data),
                ..bundle.clone()
            };
            Some(Action::ReplaceBundle(bundle))
        }
        Some(_) => None,
    }
}

async fn settle(client: &Client, namespace: &str, root_ca: Option<&str>) -> Result<(), Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let bundles: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let observed = Observed {
        namespace: namespaces.get_opt(namespace).await?,
        has_account: accounts.get_opt(ACCOUNT).await?.is_some(),
        bundle: bundles.get_opt(BUNDLE).await?,
    };
    let params = PostParams::default();
    let mut failure = None;
    for action in decide(&observed, root_ca) {
        let applied = match action {
            Action::CreateAccount => {
                let mut account = ServiceAccount::default();
                account.metadata.name = Some(ACCOUNT.to_owned());
                accounts.create(&params, &account).await.map(|_| ())
            }
            Action::CreateBundle(bundle) => bundles.create(&params, &bundle).await.map(|_| ()),
            Action::ReplaceBundle(bundle) => {
                bundles.replace(BUNDLE, &params, &bundle).await.map(|_| ())
            }
        };
        match applied {
            // Somebody else was faster, or the namespace is going: its next event says which.
            Err(Error::Api(status)) if matches!(status.code, 403 | 404 | 409) => {
                tracing::debug!(
                    code = status.code,
                    namespace,
                    "account or certificate not made"
                );
            }
            // What keeps one of them, such as a webhook about ConfigMaps, does not keep the other.
            Err(error) => failure = Some(error),
            Ok(()) => {}
        }
    }
    failure.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn observed(namespace: Value, has_account: bool, bundle: Value) -> Observed {
        Observed {
            namespace: serde_json::from_value(namespace).unwrap(),
            has_account,
            bundle: serde_json::from_value(bundle).unwrap(),
        }
    }

    fn summary(actions: &[Action]) -> Vec<&'static str> {
        let name = |action: &Action| match action {
            Action::CreateAccount => "create account",
            Action::CreateBundle(_) => "create bundle",
            Action::ReplaceBundle(_) => "replace bundle",
        };
        actions.iter().map(name).collect()
    }

    #[test]
    fn a_live_namespace_gets_what_it_lacks() {
        let live = json!({"metadata": {"name": "n"}});
        let going = json!({"metadata": {"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let good = json!({"metadata": {}, "data": {"ca.crt": "PEM"}});
        let old = json!({"metadata": {}, "data": {"ca.crt": "OLD", "more": ""}});
        let null = Value::Null;
        let all = ["create bundle", "create account"];
        let (both, replace) = (&all[..], &["replace bundle"][..]);
        for (namespace, has_account, bundle, root_ca, expected) in [
            (&live, false, &null, Some("PEM"), both),
            (&live, false, &null, None, &all[1..]),
            (&live, true, &null, Some("PEM"), &all[..1]),
            (&live, true, &old, Some("PEM"), replace),
            (&live, true, &good, Some("PEM"), &all[..0]),
            (&going, false, &null, Some("PEM"), &all[..0]),
            (&null, false, &null, Some("PEM"), &all[..0]),
        ] {
            let observed = observed(namespace.clone(), has_account, bundle.clone());
            let actions = decide(&observed, root_ca);
            assert_eq!(summary(&actions), expected, "{observed:?}");
        }
    }

    #[test]
    fn a_replaced_bundle_has_exactly_the_certificate_and_its_version() {
        let live = json!({"metadata": {"name": "n"}});
        let old =
            json!({"metadata": {"resourceVersion": "7"}, "data": {"ca.crt": "OLD", "more": ""}});
        let actions = decide(&observed(live, true, old), Some("PEM"));
        let [Action::ReplaceBundle(bundle)] = actions.as_slice() else {
            panic!("{actions:?}")
        };
        assert_eq!(bundle.metadata.resource_version.as_deref(), Some("7"));
        let data = BTreeMap::from([("ca.crt".to_owned(), "PEM".to_owned())]);
        assert_eq!(bundle.data, Some(data));
    }
}
