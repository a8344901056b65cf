//! Configuration, services, leases and policies.

use serde_json::Value;

use super::{
    Column, Printer, integer, text,
    view::{NONE, View, join, or_none},
    wide,
};

const NAME: Column = text("Name");
const AGE: Column = text("Age");

#[expect(clippy::too_many_lines, reason = "a table: a row for each kind")]
pub(super) fn printer(qualified: &str) -> Option<Printer> {
    Some(match qualified {
        "configmaps" => Printer {
            columns: const { &[NAME, text("Data"), AGE] },
            cells: |view| {
                let n_values = view.n_members("/data") + view.n_members("/binaryData");
                vec![view.name(), n_values.into(), view.age()]
            },
        },
        "secrets" => Printer {
            columns: const { &[NAME, text("Type"), text("Data"), AGE] },
            cells: |view| {
                let n_values = view.n_members("/data");
                vec![
                    view.name(),
                    view.text("/type").into(),
                    n_values.into(),
                    view.age(),
                ]
            },
        },
        "serviceaccounts" => Printer {
            columns: const { &[NAME, text("Secrets"), AGE] },
            cells: |view| vec![view.name(), view.items("/secrets").len().into(), view.age()],
        },
        "services" => Printer {
            columns: const {
                &[
                    NAME,
                    text("Type"),
                    text("Cluster-IP"),
                    text("External-IP"),
                    text("Port(s)"),
                    AGE,
                    wide("Selector"),
                ]
            },
            cells: service,
        },
        "leases.coordination.k8s.io" => Printer {
            columns: const { &[NAME, text("Holder"), AGE] },
            cells: |view| {
                vec![
                    view.name(),
                    view.text("/spec/holderIdentity").into(),
                    view.age(),
                ]
            },
        },
        "poddisruptionbudgets.policy" => Printer {
            columns: const {
                &[
                    NAME,
                    text("Min Available"),
                    text("Max Unavailable"),
                    integer("Allowed Disruptions"),
                    AGE,
                ]
            },
            cells: disruption_budget,
        },
        "mutatingwebhookconfigurations.admissionregistration.k8s.io"
        | "validatingwebhookconfigurations.admissionregistration.k8s.io" => Printer {
            columns: const { &[NAME, integer("Webhooks"), AGE] },
            cells: |view| {
                vec![
                    view.name(),
                    view.items("/webhooks").len().into(),
                    view.age(),
                ]
            },
        },
        "ingresses.networking.k8s.io" => Printer {
            columns: const {
                &[
                    NAME,
                    text("Class"),
                    text("Hosts"),
                    text("Address"),
                    text("Ports"),
                    AGE,
                ]
            },
            cells: ingress,
        },
        "priorityclasses.scheduling.k8s.io" => Printer {
            columns: const {
                &[
                    NAME,
                    integer("Value"),
                    Column {
                        cells: "boolean",
                        ..text("Global-Default")
                    },
                    AGE,
                    text("PreemptionPolicy"),
                ]
            },
            cells: |view| {
                vec![
                    view.name(),
                    view.number("/value").into(),
                    view.flag("/globalDefault").into(),
                    view.age(),
                    view.text_or("/preemptionPolicy", "PreemptLowerPriority"),
                ]
            },
        },
        "rolebindings.rbac.authorization.k8s.io"
        | "clusterrolebindings.rbac.authorization.k8s.io" => Printer {
            columns: const {
                &[
                    NAME,
                    text("Role"),
                    AGE,
                    wide("Users"),
                    wide("Groups"),
                    wide("ServiceAccounts"),
                ]
            },
            cells: binding,
        },
        _ => return None,
    })
}

fn service(view: &View<'_>) -> Vec<Value> {
    let ports = view.items("/spec/ports").iter().map(|port| {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        match port["nodePort"].as_i64() {
            Some(node_port) => format!("{}:{node_port}/{protocol}", port["port"]),
            None => format!("{}/{protocol}", port["port"]),
        }
    });
    vec![
        view.name(),
        view.text("/spec/type").into(),
        view.text_or("/spec/clusterIPs/0", NONE),
        external_address(view),
        or_none(join(ports)),
        view.age(),
        view.labels("/spec/selector"),
    ]
}

fn external_address(view: &View<'_>) -> Value {
    let texts =
        |items: &[Value]| join(items.iter().filter_map(|ip| ip.as_str().map(str::to_owned)));
    let external = texts(view.items("/spec/externalIPs"));
    match view.text("/spec/type") {
        "ExternalName" => view.text("/spec/externalName").into(),
        "LoadBalancer" if external.is_empty() => {
            let points = view.items("/status/loadBalancer/ingress").iter();
            let addresses = points.filter_map(|point| {
                let address = point["ip"].as_str().or_else(|| point["hostname"].as_str());
                address.map(str::to_owned)
            });
            match join(addresses) {
                none if none.is_empty() => "<pending>".into(),
                addresses => addresses.into(),
            }
        }
        _ => or_none(external),
    }
}

/// A number or a percentage, `N/A` when there is none.
fn amount(view: &View<'_>, pointer: &str) -> Value {
    match view.object.pointer(pointer) {
        Some(Value::String(text)) => text.as_str().into(),
        Some(Value::Number(number)) => number.to_string().into(),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => {
            "N/A".into()
        }
    }
}

fn disruption_budget(view: &View<'_>) -> Vec<Value> {
    vec![
        view.name(),
        amount(view, "/spec/minAvailable"),
        amount(view, "/spec/maxUnavailable"),
        view.number("/status/disruptionsAllowed").into(),
        view.age(),
    ]
}

fn ingress(view: &View<'_>) -> Vec<Value> {
    let rules = view.items("/spec/rules").iter();
    let hosts = join(rules.filter_map(|rule| rule["host"].as_str().map(str::to_owned)));
    let hosts = if hosts.is_empty() {
        "*".to_owned()
    } else {
        hosts
    };
    let points = view.items("/status/loadBalancer/ingress").iter();
    let addresses = points.filter_map(|point| {
        let address = point["ip"].as_str().or_else(|| point["hostname"].as_str());
        address.map(str::to_owned)
    });
    let has_tls = !view.items("/spec/tls").is_empty();
    vec![
        view.name(),
        view.text_or("/spec/ingressClassName", NONE),
        hosts.into(),
        join(addresses).into(),
        if has_tls { "80, 443" } else { "80" }.into(),
        view.age(),
    ]
}

fn binding(view: &View<'_>) -> Vec<Value> {
    let subjects = |kind: &str| {
        let of_kind = view
            .items("/subjects")
            .iter()
            .filter(|subject| subject["kind"] == kind);
        join(of_kind.map(|subject| {
            let name = subject["name"].as_str().unwrap_or("");
            match subject["namespace"].as_str() {
                Some(namespace) if kind == "ServiceAccount" => format!("{namespace}/{name}"),
                Some(_) | None => name.to_owned(),
            }
        }))
    };
    let role = format!(
        "{}/{}",
        view.text("/roleRef/kind"),
        view.text("/roleRef/name")
    );
    vec![
        view.name(),
        role.into(),
        view.age(),
        subjects("User").into(),
        subjects("Group").into(),
        subjects("ServiceAccount").into(),
    ]
}
