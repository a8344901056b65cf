//! A cluster with a scripted node: everything around one executor, in simulated time.

use std::{
    collections::BTreeSet,
    fmt::Write,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use bytes::Bytes;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use longshore_api::{flyte, tasks::ANNOTATION_LAUNCH};
use longshore_kit::{Clock, Namespaces, SystemClock};
use longshore_object_store::DataError;
use longshore_proto::flyteidl2::core::{
    Container, Identifier, LiteralMap, RetryStrategy, TaskMetadata, TaskTemplate, TypedInterface,
    Variable, VariableEntry, VariableMap, task_template::Target,
};
use longshore_tasks::{
    Plugins, Tasks, TasksConfig,
    data::{Outcome, Owed, TaskData},
    events::{ActionEvent, ActionEvents, ActionPhase, NotPublished},
};
use longshore_test::{
    Place,
    clock::{self, SimClock},
    faults::{Admission, Process, Rule},
    install_definition,
    scripted_node::{ANNOTATION_SCRIPT, NodeConfig, PodRun, ScriptedNode},
};
use prost::Message;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    cache::Cache,
    operators::{self, Connector, FaultyConnector, MadeObjects},
    plugin::{PodPlugin, STOP},
    stories::WRITER,
};

/// Where the inputs of all actions are.
pub(crate) const INPUT_URI: &str = "file:///in";

/// Everything around the executor under test. It lives through the executor's crashes.
pub(crate) struct World {
    pub(crate) place: Place,
    /// The cluster as the executor reaches it.
    pub(crate) api: Place,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) node: ScriptedNode,
    pub(crate) admission: Admission,
    pub(crate) told: Told,
    pub(crate) cache: Arc<Cache>,
    pub(crate) config: TasksConfig,
    pub(crate) plugins: Arc<dyn Plugins>,
    /// What operators have seen.
    pub(crate) seen: MadeObjects,
    pub(crate) connector: Connector,
}

/// What the run service was told, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<ActionEvent>>>);

impl Told {
    pub(crate) fn events(&self) -> Vec<ActionEvent> {
        self.0.lock().unwrap().clone()
    }

    /// What the run service keeps: the first event of each phase and version of an attempt.
    pub(crate) fn effective(&self, action: &str) -> Vec<(u32, ActionPhase, u32)> {
        let mut kept = Vec::new();
        for event in self.events() {
            let key = (event.attempt, event.phase, event.version);
            if event.action == action && !kept.contains(&key) {
                kept.push(key);
            }
        }
        kept
    }

    /// The Events that came with what the run service keeps.
    fn notes(&self, action: &str) -> String {
        let (mut known, mut notes) = (BTreeSet::new(), String::new());
        for event in self.events().iter().filter(|event| event.action == action) {
            let is_new = known.insert((event.attempt, event.phase as i32, event.version));
            for reason in event.reasons.iter().filter(|_| is_new) {
                if reason.reason.starts_with("event:") {
                    let _ = write!(notes, ", {}", reason.reason);
                }
            }
        }
        notes
    }
}

#[derive(Debug)]
struct FaultyEvents {
    told: Told,
    process: Process,
}

#[async_trait]
impl ActionEvents for FaultyEvents {
    async fn publish(&self, event: &ActionEvent) -> Result<(), NotPublished> {
        let tell = async { self.told.0.lock().unwrap().push(event.clone()) };
        let told = self.process.effect("report", tell).await;
        told.map_err(|injected| NotPublished(injected.to_string()))
    }
}

/// Outputs of attempts, by what their action is called: `…-lost` never has any, and what is cached leaves a file.
#[derive(Debug)]
struct ScriptedData {
    cache: Arc<Cache>,
}

#[async_trait]
impl TaskData for ScriptedData {
    async fn outcome(&self, prefix: &str, owed: Owed) -> Result<Outcome, DataError> {
        if is_cached(prefix) {
            let outputs = LiteralMap::default().encode_to_vec();
            let file = format!("{prefix}/{}", flyte::FILE_OUTPUTS);
            self.cache.storage.write(&file, outputs.into()).await?;
        }
        Ok(match owed {
            // Without its path, which depends on the namespace.
            Owed::Outputs if prefix.contains("lost") => {
                Outcome::Incomplete("there is no outputs.pb".to_owned())
            }
            Owed::Outputs | Owed::Nothing => Outcome::Complete,
        })
    }

    async fn inputs(&self, _: &str) -> Result<Result<Option<LiteralMap>, String>, DataError> {
        Ok(Ok(Some(operators::inputs())))
    }

    async fn write_outputs(&self, _: &str, _: Bytes) -> Result<(), DataError> {
        Ok(())
    }
}

impl World {
    pub(crate) async fn new(rules: &[Rule]) -> Self {
        let clock = SimClock::start();
        let cluster = clock::cluster(clock.clone(), 1);
        install(&cluster.client()).await;
        let place = Place::embedded(&cluster);
        Self::standing_on(place, clock, NodeConfig::default(), rules)
    }

    /// A namespace of a real API server that has the resource, in real time. Whoever made it removes it.
    pub(crate) fn real(place: Place, rules: &[Rule]) -> Self {
        let node = NodeConfig {
            name: place.namespace().to_owned(),
            namespace: Some(place.namespace().to_owned()),
            ..NodeConfig::default()
        };
        Self::standing_on(place, Arc::new(SystemClock), node, rules)
    }

    fn standing_on(place: Place, clock: Arc<dyn Clock>, node: NodeConfig, rules: &[Rule]) -> Self {
        let node = NodeConfig {
            attempt: by_label,
            ..node
        };
        Self {
            node: ScriptedNode::start(place.client(), clock.clone(), node),
            config: TasksConfig {
                namespaces: Namespaces::one(place.namespace()),
                ..TasksConfig::default()
            },
            api: place.clone(),
            place,
            cache: Cache::new(Arc::clone(&clock)),
            clock,
            admission: Admission::new(rules.iter().copied()),
            told: Told::default(),
            plugins: Arc::new(PodPlugin),
            seen: MadeObjects::default(),
            connector: Connector::default(),
        }
    }

    /// Runs the executor, behind the faults of `process`.
    pub(crate) async fn run(&self, process: &Process) {
        let client = self.client(process);
        let executor = self.executor(process);
        executor.run(client, CancellationToken::new()).await;
    }

    /// The cluster as `process` reaches it.
    pub(crate) fn client(&self, process: &Process) -> Client {
        process.client(self.admission.service(&self.api))
    }

    /// The executor, behind the faults of `process`.
    pub(crate) fn executor(&self, process: &Process) -> Tasks {
        let events = FaultyEvents {
            told: self.told.clone(),
            process: process.clone(),
        };
        let connector = FaultyConnector {
            connector: self.connector.clone(),
            process: process.clone(),
        };
        let plugins = self.plugins.clone();
        Tasks::new(self.config.clone(), plugins, self.clock.clone())
            .with_events(Arc::new(events))
            .with_connectors(Arc::new(connector))
            .with_data(Arc::new(ScriptedData {
                cache: Arc::clone(&self.cache),
            }))
            .with_caching(self.cache.caching(process))
    }

    pub(crate) async fn apply(&self, action: Value) {
        apply(&self.place, action).await;
    }

    /// All TaskActions.
    pub(crate) async fn actions(&self) -> Vec<Value> {
        let actions = actions(&self.place);
        let list = actions.list(&ListParams::default()).await.unwrap();
        list.items
            .into_iter()
            .map(|action| serde_json::to_value(action).unwrap())
            .collect()
    }

    pub(crate) async fn pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.place.client(), self.place.namespace());
        pods.list(&ListParams::default()).await.unwrap().items
    }

    /// How things ended, without what may differ between two good runs.
    pub(crate) async fn digest(&self) -> String {
        let mut text = String::new();
        for action in self.actions().await {
            let status = &action["status"];
            if is_of_connector(action["metadata"]["name"].as_str().unwrap_or_default()) {
                let ending = ending(&action).unwrap_or_default();
                let _ = writeln!(text, "action {}: {ending}", action["metadata"]["name"]);
                continue;
            }
            let _ = writeln!(
                text,
                "action {}: {} after {} attempts and {} system failures, error {}, labelled {}, finalizers {}, {}",
                action["metadata"]["name"],
                ending(&action).unwrap_or_default(),
                status["attempts"],
                status["systemFailures"],
                status["errorState"],
                action["metadata"]["labels"][flyte::LABEL_TERMINATION_STATUS],
                action["metadata"]["finalizers"],
                status["pluginPhase"],
            );
            if let Some(cache) = status["cacheStatus"].as_i64() {
                let _ = writeln!(text, "  cache status {cache}");
            }
            if let Some(by_others) = written_by_others(&action) {
                let _ = writeln!(text, "  {by_others}");
            }
        }
        let told = self.told.events();
        let names: BTreeSet<&str> = told.iter().map(|event| event.action.as_str()).collect();
        for name in names.into_iter().filter(|name| !is_of_connector(name)) {
            let told = self.told.effective(name);
            let ends = told.iter().filter(|it| is_terminal(it.1));
            // Of which launch they are, the line of the action says.
            let of_any_launch = |it: &(u32, ActionPhase, u32)| (it.0, it.1, it.2 & 0xffff);
            let ends: Vec<_> = ends.map(of_any_launch).collect();
            let _ = writeln!(text, "told of {name}: {ends:?}{}", self.told.notes(name));
        }
        for pod in self.pods().await {
            let annotations = pod.metadata.annotations.unwrap_or_default();
            let stop = if annotations.contains_key(STOP) {
                ", asked to stop"
            } else {
                ""
            };
            let phase = pod.status.and_then(|status| status.phase);
            let _ = writeln!(text, "pod {:?}: {phase:?}{stop}", pod.metadata.name);
        }
        if self.cache.n_outputs() > 0 {
            let _ = writeln!(text, "{} keys are cached", self.cache.n_outputs());
        }
        // Namespaces are named in messages, and each real one has a name of its own.
        text.replace(&format!("{}/", self.place.namespace()), "default/")
    }
}

/// A connector that is interrupted while it begins a job costs an attempt: how many there were is not told.
fn is_of_connector(name: &str) -> bool {
    name.starts_with("job")
}

/// What is left of what somebody else wrote.
fn written_by_others(action: &Value) -> Option<String> {
    let labels = action["metadata"]["labels"].as_object()?;
    let labels = labels.keys().filter(|label| label.starts_with(WRITER));
    let (n_labels, status) = (labels.count(), &action["status"]);
    (n_labels > 0).then(|| {
        format!(
            "{n_labels} labels of others, signalled {} by {} at {}",
            status["signalValue"], status["signalledBy"], status["signalledAt"]
        )
    })
}

pub(crate) fn is_terminal(phase: ActionPhase) -> bool {
    matches!(
        phase,
        ActionPhase::Succeeded | ActionPhase::Failed | ActionPhase::Aborted
    )
}

/// The true terminal condition, with its reason and message.
pub(crate) fn ending(action: &Value) -> Option<String> {
    let conditions = action["status"]["conditions"].as_array()?;
    let is_terminal = [flyte::CONDITION_SUCCEEDED, flyte::CONDITION_FAILED];
    let terminal = conditions.iter().find(|condition| {
        let kind = condition["type"].as_str().unwrap_or_default();
        condition["status"] == "True" && is_terminal.contains(&kind)
    })?;
    Some(format!("{}: {}", terminal["reason"], terminal["message"]).replace('"', ""))
}

/// The launch that a pod is.
pub(crate) fn launch(run: &PodRun) -> Option<String> {
    run.annotations.get(ANNOTATION_LAUNCH).cloned()
}

fn by_label(pod: &Pod) -> usize {
    let labels = pod.metadata.labels.as_ref();
    let attempt = labels.and_then(|labels| labels.get(flyte::LABEL_ATTEMPT));
    attempt
        .and_then(|attempt| attempt.parse().ok())
        .unwrap_or(1)
}

/// Makes TaskActions known.
pub(crate) async fn install(client: &Client) {
    install_definition(client, flyte::TASK_ACTION_CRD).await;
}

pub(crate) fn actions(place: &Place) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(flyte::GROUP, flyte::VERSION, flyte::KIND);
    let kind = ApiResource::from_gvk_with_plural(&kind, "taskactions");
    Api::namespaced_with(place.client(), place.namespace(), &kind)
}

/// Makes an action.
pub(crate) async fn apply(place: &Place, mut action: Value) {
    action["metadata"]["namespace"] = place.namespace().into();
    let action = serde_json::from_value(action).unwrap();
    let actions = actions(place);
    let made = actions.create(&PostParams::default(), &action).await;
    made.unwrap();
}

/// Whether outputs are cached of whatever has this in its name.
pub(crate) fn is_cached(name: &str) -> bool {
    name.contains("cached") || is_serialized(name)
}

/// Whether each attempt may run for 20 s only.
pub(crate) fn is_limited(name: &str) -> bool {
    name.contains("limited")
}

/// Whether only one of them runs at a time.
pub(crate) fn is_serialized(name: &str) -> bool {
    name.contains("serial")
}

pub(crate) async fn delete_action(place: &Place, name: &str) {
    let _ = actions(place).delete(name, &DeleteParams::default()).await;
}

/// A TaskAction of the run `r` whose pods run this script.
pub(crate) fn action(name: &str, retries: u32, script: &str) -> Value {
    let template = template(name, retries, Owed::Nothing);
    let mut action = json!({
        "apiVersion": "flyte.org/v1", "kind": "TaskAction",
        "metadata": {
            "name": name, "annotations": {ANNOTATION_SCRIPT: script},
        },
        "spec": {
            "runName": "r", "project": "p", "domain": "d", "actionName": name, "taskType": "container",
            "inputUri": INPUT_URI, "runOutputBase": format!("file:///out/{name}"),
        },
    });
    set_template(&mut action, &template);
    action
}

pub(crate) fn set_template(action: &mut Value, template: &TaskTemplate) {
    action["spec"]["taskTemplate"] = json!(base64(&template.encode_to_vec()));
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.encode(bytes)
}

pub(crate) fn template(name: &str, retries: u32, owed: Owed) -> TaskTemplate {
    let output = VariableEntry {
        key: "o0".to_owned(),
        value: Some(Variable::default()),
    };
    let outputs = VariableMap {
        variables: vec![output],
    };
    TaskTemplate {
        id: Some(Identifier {
            name: "task".to_owned(),
            ..Identifier::default()
        }),
        r#type: "container".to_owned(),
        metadata: Some(TaskMetadata {
            retries: Some(RetryStrategy {
                retries,
                backoff: None,
            }),
            discoverable: is_cached(name),
            cache_serializable: is_serialized(name),
            timeout: is_limited(name).then_some(prost_types::Duration {
                seconds: 20,
                nanos: 0,
            }),
            ..TaskMetadata::default()
        }),
        interface: Some(TypedInterface {
            inputs: None,
            outputs: (owed == Owed::Outputs).then_some(outputs),
        }),
        target: Some(Target::Container(Container {
            image: "example.test/image:1".to_owned(),
            command: vec!["true".to_owned()],
            ..Container::default()
        })),
        ..TaskTemplate::default()
    }
}
