//! The built-in resources of Kubernetes 1.34 that this server has.

use super::{Conversion, DeletionAnswer, Field, Resource, Scope, StatusWrites, Strategy};
use crate::server::names::NameRule;

/// Starts a row: a namespaced resource without subresources.
fn namespaced(api_version: &str, plural: &str, kind: &str) -> Resource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: plural.to_owned(),
        kind: kind.to_owned(),
        singular: kind.to_lowercase(),
        categories: Vec::new(),
        scope: Scope::Namespaced,
        short_names: Vec::new(),
        status: StatusWrites::Nothing,
        has_generation: false,
        has_scale: false,
        creates_on_update: false,
        deletion_answer: DeletionAnswer::Status,
        names: NameRule::Subdomain,
        strategy: Strategy::Plain,
        fields: Vec::new(),
        expires: false,
        conversion: None,
        custom: None,
    }
}

/// Starts a row: a resource of the whole cluster.
fn cluster(api_version: &str, plural: &str, kind: &str) -> Resource {
    Resource {
        scope: Scope::Cluster,
        ..namespaced(api_version, plural, kind)
    }
}

impl Resource {
    fn short(mut self, names: &[&str]) -> Resource {
        self.short_names = names.iter().map(|&name| name.to_owned()).collect();
        self
    }

    fn status(mut self) -> Resource {
        self.status = StatusWrites::Metadata;
        self
    }

    fn status_without_labels(mut self) -> Resource {
        self.status = StatusWrites::MetadataWithoutLabels;
        self
    }

    fn status_only(mut self) -> Resource {
        self.status = StatusWrites::StatusOnly;
        self
    }

    fn generation(mut self) -> Resource {
        self.has_generation = true;
        self
    }

    fn scale(mut self) -> Resource {
        self.has_scale = true;
        self
    }

    fn creates_on_update(mut self) -> Resource {
        self.creates_on_update = true;
        self
    }

    fn expires(mut self) -> Resource {
        self.expires = true;
        self
    }

    fn answers_deleted_object(mut self) -> Resource {
        self.deletion_answer = DeletionAnswer::Object;
        self
    }

    fn names(mut self, names: NameRule) -> Resource {
        self.names = names;
        self
    }

    fn strategy(mut self, strategy: Strategy) -> Resource {
        self.strategy = strategy;
        self
    }

    fn fields(mut self, labels: &[&str]) -> Resource {
        self.fields = labels.iter().map(|label| Field::of(label)).collect();
        self
    }
}

const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// The same fields under their names in events.k8s.io, in the same order.
const NEW_EVENT_FIELDS: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "deprecatedSource",
    "type",
];

/// Resources that show the objects of another one, each with that other one.
pub(super) fn converted() -> Vec<(Resource, Resource)> {
    let mut events = namespaced("events.k8s.io/v1", "events", "Event")
        .short(&["ev"])
        .creates_on_update()
        .fields(NEW_EVENT_FIELDS);
    events.conversion = Some(Conversion::Events);
    let (plural, kind) = ("horizontalpodautoscalers", "HorizontalPodAutoscaler");
    let mut autoscalers = namespaced("autoscaling/v1", plural, kind)
        .short(&["hpa"])
        .status();
    autoscalers.conversion = Some(Conversion::Autoscalers);
    vec![
        (events, namespaced("v1", "events", "Event")),
        (autoscalers, namespaced("autoscaling/v2", plural, kind)),
    ]
}

/// Every built-in resource.
pub(super) fn built_in() -> Vec<Resource> {
    let mut rows = core();
    rows.extend(core_cluster());
    rows.extend(workloads());
    rows.extend(policy_and_access());
    rows.extend(network_and_storage());
    rows.extend(of_the_server());
    rows
}

fn core() -> Vec<Resource> {
    vec![
        namespaced("v1", "pods", "Pod")
            .short(&["po"])
            .status()
            .generation()
            .answers_deleted_object()
            .strategy(Strategy::Pod)
            .fields(POD_FIELDS),
        namespaced("v1", "configmaps", "ConfigMap")
            .short(&["cm"])
            .strategy(Strategy::Data),
        namespaced("v1", "secrets", "Secret")
            .strategy(Strategy::Data)
            .fields(&["type"]),
        namespaced("v1", "services", "Service")
            .short(&["svc"])
            .status()
            .answers_deleted_object()
            .names(NameRule::OldLabel)
            .strategy(Strategy::Service)
            .fields(&["spec.clusterIP", "spec.type"]),
        namespaced("v1", "endpoints", "Endpoints")
            .strategy(Strategy::Endpoints)
            .short(&["ep"])
            .creates_on_update(),
        namespaced("v1", "serviceaccounts", "ServiceAccount")
            .short(&["sa"])
            .answers_deleted_object(),
        namespaced("v1", "events", "Event")
            .expires()
            .short(&["ev"])
            .creates_on_update()
            .fields(EVENT_FIELDS),
        namespaced("v1", "persistentvolumeclaims", "PersistentVolumeClaim")
            .short(&["pvc"])
            .status()
            .answers_deleted_object()
            .strategy(Strategy::Claim),
        namespaced("v1", "replicationcontrollers", "ReplicationController")
            .strategy(Strategy::Workload)
            .short(&["rc"])
            .status()
            .generation()
            .scale()
            .fields(&["status.replicas"]),
        namespaced("v1", "resourcequotas", "ResourceQuota")
            .short(&["quota"])
            .status()
            .answers_deleted_object(),
        namespaced("v1", "limitranges", "LimitRange")
            .short(&["limits"])
            .creates_on_update(),
        namespaced("v1", "podtemplates", "PodTemplate")
            .generation()
            .answers_deleted_object(),
    ]
}

fn core_cluster() -> Vec<Resource> {
    vec![
        cluster("v1", "namespaces", "Namespace")
            .short(&["ns"])
            .status()
            .names(NameRule::Label)
            .strategy(Strategy::Namespace)
            .fields(&["status.phase"]),
        cluster("v1", "nodes", "Node")
            .short(&["no"])
            .status()
            .strategy(Strategy::Node)
            .fields(&["spec.unschedulable"]),
        cluster("v1", "persistentvolumes", "PersistentVolume")
            .short(&["pv"])
            .status()
            .answers_deleted_object()
            .strategy(Strategy::Claim),
    ]
}

fn workloads() -> Vec<Resource> {
    vec![
        namespaced("apps/v1", "deployments", "Deployment")
            .strategy(Strategy::Workload)
            .short(&["deploy"])
            .status_without_labels()
            .generation()
            .scale(),
        namespaced("apps/v1", "replicasets", "ReplicaSet")
            .strategy(Strategy::Workload)
            .short(&["rs"])
            .status_without_labels()
            .generation()
            .scale()
            .fields(&["status.replicas"]),
        namespaced("apps/v1", "statefulsets", "StatefulSet")
            .strategy(Strategy::Workload)
            .short(&["sts"])
            .status_without_labels()
            .generation()
            .scale(),
        namespaced("apps/v1", "daemonsets", "DaemonSet")
            .strategy(Strategy::Workload)
            .short(&["ds"])
            .status_without_labels()
            .generation(),
        namespaced("apps/v1", "controllerrevisions", "ControllerRevision"),
        namespaced("batch/v1", "jobs", "Job")
            .strategy(Strategy::Workload)
            .status()
            .generation()
            .fields(&["status.successful"]),
        namespaced("batch/v1", "cronjobs", "CronJob")
            .strategy(Strategy::Workload)
            .short(&["cj"])
            .status()
            .generation(),
        namespaced("coordination.k8s.io/v1", "leases", "Lease").creates_on_update(),
        namespaced(
            "autoscaling/v2",
            "horizontalpodautoscalers",
            "HorizontalPodAutoscaler",
        )
        .short(&["hpa"])
        .status(),
        cluster("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass")
            .short(&["pc"])
            .generation(),
        cluster("node.k8s.io/v1", "runtimeclasses", "RuntimeClass").strategy(Strategy::Runtime),
    ]
}

/// A role, or a binding of one.
fn access(resource: Resource) -> Resource {
    resource
        .creates_on_update()
        .names(NameRule::PathSegment)
        .strategy(Strategy::Access)
}

fn policy_and_access() -> Vec<Resource> {
    let rbac = "rbac.authorization.k8s.io/v1";
    let admission = "admissionregistration.k8s.io/v1";
    vec![
        namespaced("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget")
            .short(&["pdb"])
            .status()
            .generation()
            .strategy(Strategy::Budget),
        access(namespaced(rbac, "roles", "Role")),
        access(namespaced(rbac, "rolebindings", "RoleBinding")),
        access(cluster(rbac, "clusterroles", "ClusterRole")),
        access(cluster(rbac, "clusterrolebindings", "ClusterRoleBinding")),
        cluster(
            admission,
            "mutatingwebhookconfigurations",
            "MutatingWebhookConfiguration",
        )
        .generation()
        .strategy(Strategy::Webhooks),
        cluster(
            admission,
            "validatingwebhookconfigurations",
            "ValidatingWebhookConfiguration",
        )
        .generation()
        .strategy(Strategy::Webhooks),
        cluster(
            "apiextensions.k8s.io/v1",
            "customresourcedefinitions",
            "CustomResourceDefinition",
        )
        .short(&["crd", "crds"])
        .status_only()
        .generation()
        .strategy(Strategy::Definition),
    ]
}

fn network_and_storage() -> Vec<Resource> {
    vec![
        namespaced("discovery.k8s.io/v1", "endpointslices", "EndpointSlice")
            .strategy(Strategy::Endpoints)
            .generation()
            .creates_on_update(),
        namespaced("networking.k8s.io/v1", "ingresses", "Ingress")
            .short(&["ing"])
            .status()
            .generation(),
        cluster("networking.k8s.io/v1", "ingressclasses", "IngressClass").generation(),
        namespaced("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy")
            .short(&["netpol"])
            .generation(),
        cluster("storage.k8s.io/v1", "storageclasses", "StorageClass")
            .short(&["sc"])
            .answers_deleted_object(),
        cluster("storage.k8s.io/v1", "csinodes", "CSINode").answers_deleted_object(),
    ]
}

/// What the API server of a larger cluster is configured by.
fn of_the_server() -> Vec<Resource> {
    let flow_control = "flowcontrol.apiserver.k8s.io/v1";
    vec![
        cluster("apiregistration.k8s.io/v1", "apiservices", "APIService")
            .status_only()
            .strategy(Strategy::Control),
        cluster(flow_control, "flowschemas", "FlowSchema")
            .status_only()
            .generation()
            .strategy(Strategy::Control),
        cluster(
            flow_control,
            "prioritylevelconfigurations",
            "PriorityLevelConfiguration",
        )
        .status_only()
        .generation()
        .strategy(Strategy::Control),
        cluster(
            "certificates.k8s.io/v1",
            "certificatesigningrequests",
            "CertificateSigningRequest",
        )
        .short(&["csr"])
        .status()
        .strategy(Strategy::SigningRequest)
        .fields(&["spec.signerName"]),
    ]
}
