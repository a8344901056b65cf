//! What each key of the configuration means. Types and defaults are recorded where the key is read; `storage.yaml` and
//! `images.yaml`, which serde reads, have theirs here.

/// Path and meaning of each key that is read: one in each line, in any order.
pub(super) fn meanings() -> impl Iterator<Item = (&'static str, &'static str)> {
    MEANINGS.lines().filter_map(|line| line.split_once(' '))
}

const MEANINGS: &str = "\
executor.EventsServiceURL URL of the events service that gets each change of an action. Without it, nothing is sent.
executor.cacheServiceURL URL of the cache service that keeps outputs. Without it, no outputs are cached.
executor.cluster Name of this cluster in events.
executor.maxSystemFailures System failures that an attempt survives; where it is a job of a connector, in a row.
executor.maxConcurrentReconciles Rounds that run at the same time, at least 1.
executor.requeueDuration After this time at the latest, the controller looks again at an action whose code does not run yet.
executor.gc.interval Time between two passes over ended actions; `0s`: there are none.
executor.gc.maxTTL How long an action stays after its end.
executor.defaultK8sServiceAccount Service account of pods whose template names none. Without it, Kubernetes chooses.
executor.healthProbeBindAddress Where health is served, besides `--metrics-address`. `--health-probe-bind-address` wins.
actions.kubernetes.namespace The namespace of the executor, whose PodTemplates serve all others. The variable `POD_NAMESPACE` wins.
logger.level Log level of the helpers that copy inputs and outputs, from 0 (panic) to 6 (trace).
webhook.secretName Secret in which the webhook keeps its certificates.
webhook.serviceName Service through which API servers reach the webhook, and name of its MutatingWebhookConfiguration.
webhook.servicePort Port of that Service.
webhook.listenPort Port at which the webhook listens.
webhook.cacheInvalidationPort Port at which the webhook learns that a secret has changed; 0: none.
webhook.cacheInvalidationTokenFile Ours: file of the bearer token that clients of that port send. Without it, the port is closed.
webhook.disableCreateMutatingWebhookConfig Whether another program writes the MutatingWebhookConfiguration.
webhook.secretEnvVarPrefix What the names of variables with secrets begin with.
webhook.secretManagerType As `secretManagerTypes`, with one element; it counts where that is empty.
webhook.secretManagerTypes Managers of secrets. Only `Embedded` and `Global` do something; others are passed over with a warning.
webhook.embeddedSecretManagerConfig.type Where the manager keeps secrets. Only `K8s` does something; others are passed over with a warning.
webhook.embeddedSecretManagerConfig.k8sConfig.namespace Namespace of the Secrets of tasks.
webhook.embeddedSecretManagerConfig.fileMountInitContainer.image Image of the init container that writes secrets into files.
webhook.embeddedSecretManagerConfig.fileMountInitContainer.containerName Name of that init container.
webhook.embeddedSecretManagerConfig.fileMountInitContainer.resources Resources of that init container, as Kubernetes has them.
webhook.organization Ours: organization of all namespaces for which `namespace_mapping.template` decides.
webhook.namespaces[].namespace Ours: a namespace whose pods get secrets of their own, or several with `*`.
webhook.namespaces[].organization Ours: organization whose secrets these pods may name.
webhook.namespaces[].project Ours: project whose secrets these pods may name.
webhook.namespaces[].domain Ours: domain whose secrets these pods may name.
namespace_mapping.template Namespace of a project in its domain.
tasks.task-plugins.default-for-task-types The plugin of a task type, by task type.
plugins.catalogCache.maxCacheAge Cached outputs that are older are not used; `0s`: any age.
plugins.connector-service.supportedTaskTypes Task types that connectors run, beside those that connectors list themselves and no other plugin takes. Types that only a list names wait until each connector has listed its types.
plugins.connector-service.defaultConnector.endpoint Address of the connector as `host:port` or `dns:///host:port`. Without it, there is none.
plugins.connector-service.defaultConnector.insecure Whether the connection has no TLS.
plugins.connector-service.defaultConnector.timeouts Time limit of an operation, by its name, for example `CreateTask`.
plugins.connector-service.defaultConnector.defaultTimeout Time limit of all other operations; `0s`: none.
plugins.connector-service.defaultConnector.project Project whose tasks the connector takes; empty: all.
plugins.connector-service.defaultConnector.domain Domain whose tasks the connector takes; empty: all.
plugins.connector-service.defaultConnector.defaultServiceConfig Retries and further time limits.
plugins.connector-service.connectorForTaskTypes Name of the connector of a task type, by task type.
plugins.connector-service.pollInterval Time between two requests to each connector for the task types that it takes.
plugins.connector-service.webApi.caching.resyncInterval Time between two requests for the state of one job.
plugins.connector-service.webApi.caching.workers GetTask requests at the same time, for each connector.
plugins.connector-service.webApi.caching.maxSystemFailures Failed requests in a row that a job survives.
plugins.connector-service.webApi.readRateLimiter.qps Reading requests per second, in the long run.
plugins.connector-service.webApi.readRateLimiter.burst Reading requests at once.
plugins.connector-service.webApi.writeRateLimiter.qps Writing requests per second, in the long run.
plugins.connector-service.webApi.writeRateLimiter.burst Writing requests at once.
plugins.connector-service.webApi.resourceQuotas.default Jobs at the same time; without it, as many as there are actions.
plugins.connector-service.resourceConstraints.projectScopeResourceConstraint.value Jobs of a project at the same time; without it, no limit.
plugins.connector-service.resourceConstraints.namespaceScopeResourceConstraint.value Jobs of a domain of a project at the same time; without it, no limit.
plugins.k8s.inject-finalizer Whether resources of tasks get the finalizer `flyte/flytek8s`.
plugins.k8s.disable-inject-owner-references Whether resources of tasks outlive their TaskAction.
plugins.k8s.delete-resource-on-finalize Whether the resource of a task is deleted as soon as the task has ended.
plugins.k8s.default-annotations Annotations of resources of tasks.
plugins.k8s.default-labels Labels of resources of tasks.
plugins.k8s.default-env-vars Variables of all containers.
plugins.k8s.default-env-vars-from-env Variables of all containers, by name, each with the variable of the controller that it copies.
plugins.k8s.default-env-from-configmaps ConfigMaps whose keys are variables of all containers.
plugins.k8s.default-env-from-secrets Secrets whose keys are variables of all containers.
plugins.k8s.default-cpus CPU request of a primary container that has none.
plugins.k8s.default-memory Memory request of a primary container that has none.
plugins.k8s.scheduler-name Scheduler of pods that name none.
plugins.k8s.default-tolerations Tolerations of all pods.
plugins.k8s.default-node-selector Node selector of all pods. The values of the pod win.
plugins.k8s.default-affinity Affinity of pods without one.
plugins.k8s.interruptible-tolerations Tolerations of interruptible pods.
plugins.k8s.interruptible-node-selector Node selector of interruptible pods. It wins over the values of the pod.
plugins.k8s.interruptible-node-selector-requirement What nodes of interruptible pods need, as Kubernetes has it.
plugins.k8s.non-interruptible-node-selector-requirement What nodes of all other pods need, as Kubernetes has it.
plugins.k8s.resource-tolerations Tolerations of pods that request a resource, by the name of the resource.
plugins.k8s.gpu-resource-name Resource that the `gpu` of a template stands for.
plugins.k8s.gpu-device-node-label Label, and taint, of nodes with an accelerator: the device.
plugins.k8s.gpu-partition-size-node-label Label, and taint, of nodes with an accelerator: the size of its partitions.
plugins.k8s.gpu-unpartitioned-node-selector-requirement What nodes with unpartitioned devices need. Without it, they must not have the label of the size.
plugins.k8s.gpu-unpartitioned-toleration Toleration of pods on nodes with unpartitioned devices.
plugins.k8s.accelerator-devices Value of the label of the device, by device. They are added to the 40 that are known.
plugins.k8s.accelerator-device-classes.NAME.resource-name Resource of a class of accelerators, for example of `GOOGLE_TPU`. Five classes are known.
plugins.k8s.accelerator-device-classes.NAME.device-node-label As `gpu-device-node-label`, for this class.
plugins.k8s.accelerator-device-classes.NAME.partition-size-node-label As `gpu-partition-size-node-label`, for this class.
plugins.k8s.accelerator-device-classes.NAME.unpartitioned-node-selector-requirement As `gpu-unpartitioned-node-selector-requirement`, for this class.
plugins.k8s.accelerator-device-classes.NAME.unpartitioned-toleration As `gpu-unpartitioned-toleration`, for this class.
plugins.k8s.accelerator-device-classes.NAME.pod-template PodTemplate on which pods of this class are built.
plugins.k8s.create-container-error-grace-period How long a pod may wait with `CreateContainerError` before its attempt fails.
plugins.k8s.create-container-config-error-grace-period How long a pod may wait with `CreateContainerConfigError` before its attempt fails.
plugins.k8s.image-pull-backoff-grace-period How long a pod may wait with `ImagePullBackOff` before its attempt fails.
plugins.k8s.pod-pending-timeout How long a pod may be pending for any reason; `0s`: for ever.
plugins.k8s.image-pull-policy Pull policy of containers that the task itself describes. Without it, Kubernetes chooses.
plugins.k8s.default-pod-security-context Security context of pods without one.
plugins.k8s.default-security-context Security context of primary containers without one.
plugins.k8s.enable-host-networking-pod Whether pods use the network of their node. Without it, the pod says so itself.
plugins.k8s.default-pod-dns-config DNS configuration of pods without one.
plugins.k8s.default-pod-template-name PodTemplate on which the pods of tasks are built that name none.
plugins.k8s.add-tolerations-for-extended-resources Resources whose taints the pods of operators tolerate.
plugins.k8s.co-pilot.name What the names of the helpers begin with that copy inputs and outputs.
plugins.k8s.co-pilot.image Image of the helpers.
plugins.k8s.co-pilot.default-input-path Directory of inputs in the container of the task.
plugins.k8s.co-pilot.default-output-path Directory of outputs in the container of the task.
plugins.k8s.co-pilot.input-vol-name Name of the volume with inputs.
plugins.k8s.co-pilot.output-vol-name Name of the volume with outputs.
plugins.k8s.co-pilot.timeout Time limit of the upload.
plugins.k8s.co-pilot.cpu CPU request and limit of each helper.
plugins.k8s.co-pilot.memory Memory request and limit of each helper.
plugins.k8s.co-pilot.storage-config-secret-name Secret with the configuration of the storage for the helpers.
plugins.k8s.co-pilot.storage-config-override What the helpers use in place of the section `storage`.
plugins.kf-operator.timeout How long a job may be without a status of its operator.
plugins.logs.kubernetes-enabled Whether tasks have a link to their log on a Kubernetes dashboard.
plugins.logs.kubernetes-template-uri That link. Variables are written as `{{ .podName }}`. Without it, the link follows from `kubernetes-url`.
plugins.logs.kubernetes-url Address of the dashboard. Without it, `http://localhost:30082`.
plugins.logs.cloudwatch-enabled Whether tasks have a link to Amazon CloudWatch.
plugins.logs.cloudwatch-template-uri That link. Without it, the link follows from region and log group.
plugins.logs.cloudwatch-region Region of the log group.
plugins.logs.cloudwatch-log-group The log group.
plugins.logs.stackdriver-enabled Whether tasks have a link to Google Cloud Logging.
plugins.logs.stackdriver-template-uri That link. Without it, the link follows from project and resource name.
plugins.logs.gcp-project The project at Google.
plugins.logs.stackdriver-logresourcename Name of the monitored resource.
plugins.logs.azure-log-templates[].queryFormat Query that is added to a link to Azure. Without it, lines of the container around the time of the pod.
plugins.logs.templates[].displayName Name of a further link.
plugins.logs.templates[].templateUris Its addresses. Variables are written as `{{ .podName }}`.
plugins.logs.templates[].showWhilePending Whether the link is there before the task runs.
plugins.logs.templates[].hideOnceFinished Whether the link goes when the task ends.
plugins.logs.templates[].linkType `EXTERNAL`, `DASHBOARD` or `IDE`; anything else is `EXTERNAL`.
plugins.logs.templates[].messageFormat `UNKNOWN`, `CSV` or `JSON`; anything else is `UNKNOWN`.
plugins.ray.shutdownAfterJobFinishes Whether the cluster is deleted after its job.
plugins.ray.ttlSecondsAfterFinished How long the cluster stays after its job, in seconds.
plugins.ray.serviceType Type of the Service of the head pod.
plugins.ray.submissionMode What submits the job: a pod of its own, the operator, or a container beside the head pod's.
plugins.ray.includeDashboard Whether the head pod runs a dashboard.
plugins.ray.dashboardHost Address at which the dashboard listens.
plugins.ray.enableUsageStats Whether Ray sends usage statistics to its makers.
plugins.ray.serviceAccount Service account of pods whose task names none.
plugins.ray.nodeIPAddress Address of nodes of both kinds; `ipAddress` of a kind wins.
plugins.ray.defaults.headNode.startParameters Parameters with which head pods start that have none.
plugins.ray.defaults.headNode.ipAddress Address of head pods.
plugins.ray.defaults.workerNode.startParameters Parameters with which worker pods start that have none.
plugins.ray.defaults.workerNode.ipAddress Address of worker pods.
plugins.ray.logsSidecar Container beside the head pod's that reads its logs.
plugins.spark.spark-config-default Spark configuration of all jobs. That of the job wins.
plugins.spark.spark-history-server-url Address of the history server. Without it, there are no links to it.
plugins.spark.features[].name Name of a set of Spark configuration; a job switches it on with `spark.flyte.<name>.enabled`.
plugins.spark.features[].spark-config The Spark configuration of that set.
plugins.spark.enable-pod-template Whether driver and executors get the whole pod, where SparkApplications of the cluster take it.
";

/// A key of a file that serde reads: name, type, default, meaning.
pub(super) type FileKey = [&'static str; 4];

/// The keys in a text, one in each line.
pub(super) fn file_keys(text: &'static str) -> Vec<FileKey> {
    let parts = |line: &'static str| line.split(" | ").map(str::trim).collect::<Vec<_>>();
    let keys = text.lines().map(parts);
    keys.filter_map(|parts| parts.try_into().ok()).collect()
}

/// The section `storage`, which is the file `storage.yaml` of a data directory too.
pub(super) const STORAGE: &str = "\
type | `stow`, `s3`, `minio` or `local` | `stow` with a section `stow`, else `local` | Kind of the store. With a complete section `stow`, that section counts.
container | a text |  | Bucket that other programs write to. Every bucket is read.
enable-multicontainer | true or false | false | Given to the helpers of tasks. Every bucket is read, whatever this says.
connection | a section |  | How the store is reached, where `type` says what it is.
stow | a section |  | How the store is reached, where `type` is `stow`.
files-root | a path |  | Ours: directory below which `file://` URLs and paths are. `controller` reads no files without it, or without `stow.config.path`.
namespaces | lists of texts by name |  | Ours: what actions of a namespace may name, as beginnings of URLs; `*` stands for namespaces that are not listed. Without it, all that is configured.
limits | a section |  | How much is read.
cache | anything |  | Not supported: nothing is kept in memory.
defaultHttpClient | anything |  | Not supported: the client has time limits of its own.
signedUrl | anything |  | Not supported: no URLs are signed.
";

/// `storage.connection`.
pub(super) const CONNECTION: &str = "\
endpoint | a text |  | Address of a store that is not Amazon's, for example `http://minio:9000`.
auth-type | `iam` or `accesskey` | `accesskey` with an `access-key`, else `iam` | How the store knows its client. `iam`: credentials of the environment or the machine.
access-key | a text |  | Access key, for `accesskey`.
secret-key | a text |  | Secret key, for `accesskey`.
region | a text | the environment's, else `us-east-1` | Region of the buckets.
disable-ssl | true or false | false | Whether an `endpoint` without scheme is `http://`.
";

/// `storage.stow`.
pub(super) const STOW: &str = "\
kind | `s3`, `google`, `azure` or `local` |  | Kind of the store.
config | texts by name |  | `auth_type`, `access_key_id`, `secret_key`, `region`, `endpoint`, `disable_ssl` of `s3`; `json` of `google`; `account`, `key`, `domain_suffix` of `azure`, and `endpoint`, which is ours; `path` of `local`.
";

/// `storage.limits`.
pub(super) const LIMITS: &str = "\
maxDownloadMBs | a whole number | 2 | Most that is read of one file, in MiB; 0: no limit.
";

/// An entry of `images.yaml`.
pub(super) const IMAGE: &str = "\
rootfs | `host` or a path | host | Root file system of the container: that of the machine, or a directory; both below a private layer.
entrypoint | a list of texts |  | What runs where the pod has no `command`.
command | a list of texts |  | Arguments of the entry point where the pod has neither `command` nor `args`.
env | texts by name |  | Variables. Those of the pod win.
workdir | a path |  | Working directory where the pod has none.
mounts | a list of sections |  | Files and directories of the machine that come with the image.
network | `host` or `pod` | host | Network of the pods of the image: that of the machine, or one of their own, with all ports for themselves.
hostPorts | a list of whole numbers |  | TCP ports of the machine's loopback that a pod with a network finds at its own `127.0.0.1`.
egress | `none` or `host` | none | What a pod with a network reaches beyond pods, Services and the API server: nothing, or what the machine reaches by TCP and by name.
";

/// An element of `mounts`.
pub(super) const MOUNT: &str = "\
host | a path | required | File or directory on the machine.
path | a path | required | Its path in the container.
readOnly | true or false | false | Whether the container cannot write to it.
";
