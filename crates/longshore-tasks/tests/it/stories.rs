//! What users and others do, and how it ends.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{core::v1::Pod, events::v1::Event};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use longshore_proto::flyteidl2::{core::TaskTemplate, workflow::ConditionAction};
use longshore_tasks::{Collection, TasksConfig, data::Owed};
use longshore_test::{Place, faults::Rule, pod};
use prost::Message;
use serde_json::{Value, json};

use crate::{
    operators,
    plugin::{KEPT, RealPods},
    world::{World, action, apply, base64, delete_action, set_template, template},
};

/// The task type whose pods have no primary container.
const RAW: &str = "raw-container";

/// How the labels begin that somebody else writes.
pub(crate) const WRITER: &str = "writer.example.test/";

/// What happens around the executor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Story {
    pub(crate) name: &'static str,
    /// Actions: name, retries, script.
    pub(crate) actions: &'static [(&'static str, u32, &'static str)],
    pub(crate) rules: &'static [Rule],
    pub(crate) people: People,
    /// Whether the types of actions follow from their names, and operators and a connector are there.
    pub(crate) has_operators: bool,
    /// Whether pods are made and judged by the plugin of production.
    pub(crate) has_real_pods: bool,
    /// What is configured.
    pub(crate) configure: fn(&mut TasksConfig),
}

/// What else is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum People {
    /// Nothing.
    Watch,
    /// The first pod that runs is deleted.
    DeletePod,
    /// Each action is deleted this long after it was made.
    Abort(Duration),
    /// The action is deleted as soon as it has its finalizer.
    AbortAtOnce,
    /// Events about the first pod that runs, each this long after the one before. Each begins with `event:`.
    TellOf(&'static [(Duration, &'static str)]),
    /// Somebody else has a pod of the name, and takes it away after this time.
    TakeName(Duration),
    /// The specs are spoiled.
    Spoil,
    /// Another action is made after this time: name, retries, script.
    MakeAnother(Duration, (&'static str, u32, &'static str)),
    /// The cache service answers nobody for this long.
    TakeCache(Duration),
    /// Somebody else writes labels and signal fields of each action, so many times with this pause in between.
    WriteAlong(u32, Duration),
}

impl Story {
    pub(crate) const fn of(
        name: &'static str,
        actions: &'static [(&'static str, u32, &'static str)],
    ) -> Self {
        Self {
            name,
            actions,
            rules: &[],
            people: People::Watch,
            has_operators: false,
            has_real_pods: false,
            configure: |_| {},
        }
    }

    pub(crate) const fn configured(self, configure: fn(&mut TasksConfig)) -> Self {
        Self { configure, ..self }
    }

    pub(crate) const fn with_operators(self) -> Self {
        Self {
            has_operators: true,
            ..self
        }
    }

    const fn with_real_pods(self) -> Self {
        Self {
            has_real_pods: true,
            ..self
        }
    }

    const fn while_people(self, people: People) -> Self {
        Self { people, ..self }
    }

    const fn with_rules(self, rules: &'static [Rule]) -> Self {
        Self { rules, ..self }
    }

    /// The world at the beginning, with people in it.
    pub(crate) async fn world(&self) -> Arc<World> {
        self.begun_in(World::new(self.rules).await).await
    }

    /// This world with what the story begins with, and with people in it.
    pub(crate) async fn begun_in(&self, mut world: World) -> Arc<World> {
        (self.configure)(&mut world.config);
        if let People::TakeCache(time) = self.people {
            world.cache.go_down_for(time);
        }
        let place = world.place.clone();
        if let People::TakeName(_) = self.people {
            let pods: Api<Pod> = Api::namespaced(place.client(), place.namespace());
            let taken = pod(&format!("{}-0", self.actions[0].0)).scripted("hang");
            let mut taken: Pod = taken.typed();
            taken.metadata.namespace = Some(place.namespace().to_owned());
            pods.create(&PostParams::default(), &taken).await.unwrap();
        }
        if self.has_operators {
            let grace = world.config.plugins.k8s.grace;
            world.plugins = Arc::new(operators::patient_plugins(grace));
            operators::start(&place, &world.seen).await;
        }
        if self.has_real_pods {
            world.plugins = Arc::new(RealPods::new());
        }
        if self.has_operators {
            world.cache.leave_inputs(&operators::inputs()).await;
        }
        for (name, retries, script) in self.actions {
            world.apply(self.action(name, *retries, script)).await;
        }
        tokio::spawn(self.act(place));
        Arc::new(world)
    }

    fn action(&self, name: &str, retries: u32, script: &str) -> Value {
        let mut action = self.spoiled(action(name, retries, script));
        if self.has_operators {
            return operators::typed(action, retries);
        }
        if name.starts_with("raw") {
            let template = TaskTemplate {
                r#type: RAW.to_owned(),
                ..template(name, retries, Owed::Nothing)
            };
            action["spec"]["taskType"] = RAW.into();
            set_template(&mut action, &template);
        }
        action
    }

    fn spoiled(&self, mut action: Value) -> Value {
        let name = action["metadata"]["name"].as_str().unwrap().to_owned();
        if name == "gate" {
            action["spec"]["actionType"] = "condition".into();
            let condition = ConditionAction {
                name: name.clone(),
                ..ConditionAction::default()
            };
            action["spec"]["conditionSpec"] = base64(&condition.encode_to_vec()).into();
        }
        if name.starts_with(KEPT) {
            action["spec"]["taskType"] = KEPT.into();
        }
        if name.ends_with("lost") {
            set_template(&mut action, &template(&name, 0, Owed::Outputs));
        }
        if self.people == People::Spoil {
            match name.as_str() {
                "empty" => {
                    let spec = action["spec"].as_object_mut().unwrap();
                    spec.remove("taskTemplate");
                    spec.remove("taskType");
                }
                _ => action["spec"]["taskTemplate"] = base64(b"no template").into(),
            }
        }
        action
    }

    async fn act(self, place: Place) {
        let pods: Api<Pod> = Api::namespaced(place.client(), place.namespace());
        let actions = self.actions;
        match self.people {
            People::Watch | People::Spoil | People::TakeCache(_) => {}
            People::WriteAlong(times, pause) => {
                for n in 1..=times {
                    tokio::time::sleep(pause).await;
                    for (name, ..) in actions {
                        write_along(&place, name, n, times).await;
                    }
                }
            }
            People::DeletePod => {
                let running = running(&pods).await.name_any();
                // Until the executor has taken note of it: a pod that goes unseen is a matter of its own.
                tokio::time::sleep(Duration::from_secs(20)).await;
                let _ = pods.delete(&running, &DeleteParams::default()).await;
            }
            People::Abort(after) => {
                tokio::time::sleep(after).await;
                for (name, ..) in actions {
                    delete_action(&place, name).await;
                }
            }
            People::AbortAtOnce => {
                for (name, ..) in actions {
                    let action = crate::world::actions(&place);
                    let is_held = |it: &DynamicObject| it.metadata.finalizers.is_some();
                    while !action.get(name).await.is_ok_and(|it| is_held(&it)) {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    delete_action(&place, name).await;
                }
            }
            People::TellOf(notes) => {
                let pod = running(&pods).await;
                for (n, (wait, note)) in notes.iter().enumerate() {
                    tokio::time::sleep(*wait).await;
                    tell_of(&place, &pod, n, note).await;
                }
            }
            People::MakeAnother(after, (name, retries, script)) => {
                tokio::time::sleep(after).await;
                apply(&place, self.action(name, retries, script)).await;
            }
            People::TakeName(time) => {
                tokio::time::sleep(time).await;
                let name = format!("{}-0", actions[0].0);
                let _ = pods.delete(&name, &DeleteParams::default()).await;
            }
        }
    }
}

/// The first pod that runs.
async fn running(pods: &Api<Pod>) -> Pod {
    loop {
        let list = pods.list(&ListParams::default()).await.unwrap();
        let is_running = |pod: &Pod| {
            let status = pod.status.as_ref();
            status.and_then(|it| it.phase.as_deref()) == Some("Running")
        };
        if let Some(pod) = list.items.into_iter().find(is_running) {
            return pod;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The `n`th write of somebody else: a label, and of the last three also one part each of a signal.
async fn write_along(place: &Place, name: &str, n: u32, times: u32) {
    let actions = crate::world::actions(place);
    let params = PatchParams::default();
    let label = format!("{WRITER}{n}");
    let labelled = json!({"metadata": {"labels": {label: "written"}}});
    actions
        .patch(name, &params, &Patch::Merge(labelled))
        .await
        .unwrap();
    let signal = match times - n {
        2 => json!({"signalledBy": "somebody"}),
        1 => json!({"signalledAt": "2026-01-01T00:00:00Z"}),
        0 => json!({"signalValue": base64(b"yes")}),
        _ => return,
    };
    let signalled = Patch::Merge(json!({"status": signal}));
    actions
        .patch_status(name, &params, &signalled)
        .await
        .unwrap();
}

/// What a kubelet says about a pod.
async fn tell_of(place: &Place, pod: &Pod, n: usize, note: &str) {
    let events: Api<Event> = Api::namespaced(place.client(), place.namespace());
    let name = format!("{}.{n}", pod.name_any());
    let event = json!({
        "metadata": {"name": name, "namespace": place.namespace()},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "kubelet",
        "reportingInstance": "node",
        "action": "Telling",
        "reason": "Told",
        "type": "Normal",
        "note": note,
        "regarding": {
            "kind": "Pod", "name": pod.name_any(), "namespace": place.namespace(), "uid": pod.uid(),
        },
    });
    let event = serde_json::from_value(event).unwrap();
    events.create(&PostParams::default(), &event).await.unwrap();
}

pub(crate) const SUCCESS: Story = Story::of(
    "success",
    &[("good", 0, "run 3s exit 0"), ("quick", 0, "exit 0")],
);
pub(crate) const RETRY: Story = Story::of(
    "retry",
    &[
        ("second", 2, "exit 1 | run 2s exit 0"),
        ("never", 1, "run 1s exit 1"),
    ],
);
/// Programs that kill themselves each time. Where the pod has a primary container, as those of the SDK, the system is
/// taken to have done it.
pub(crate) const KILLED: Story = Story::of(
    "killed",
    &[
        ("killed", 1, "run 2s exit 137"),
        ("raw-killed", 1, "run 2s exit 137"),
    ],
)
.with_real_pods();
/// One pod is evicted and its task has no retries; another one needs more memory than it may have.
pub(crate) const DISRUPTED: Story = Story::of(
    "disrupted",
    &[
        ("evicted", 0, "run 2s evicted 143; run 2s exit 0"),
        ("too-large", 1, "run 2s oom | run 2s exit 0"),
    ],
)
.with_real_pods();
pub(crate) const POD_DELETED: Story =
    Story::of("pod deleted", &[("gone", 0, "run 60s exit 0")]).while_people(People::DeletePod);
pub(crate) const ABORTED: Story = Story::of(
    "aborted",
    &[("stopped", 1, "run 60s exit 0"), ("stubborn", 0, "hang")],
)
.while_people(People::Abort(Duration::from_secs(10)));
/// Its plugin has the abort patch the pod, which outlives the action; pods of others go.
pub(crate) const KEPT_BY_ABORT: Story = Story::of(
    "kept by its abort",
    &[
        ("kept", 0, "run 100s exit 0"),
        ("stopped", 0, "run 60s exit 0"),
    ],
)
.configured(|config| {
    config.plugins.k8s.inject_finalizer = true;
    config.plugins.k8s.delete_resource_on_finalize = true;
})
.while_people(People::Abort(Duration::from_secs(45)));
/// The first attempt runs for longer than its timeout.
pub(crate) const TIMEOUT: Story = Story::of(
    "timeout",
    &[
        ("limited", 1, "run 200s exit 0 | run 2s exit 0"),
        ("limited-for-good", 0, "hang"),
    ],
);
/// Neither an operator nor a timer goes on beyond the timeout.
pub(crate) const TIMEOUT_OF_OTHERS: Story = Story::of(
    "timeout of others",
    &[("spark-long-limited", 0, ""), ("sleep-limited", 0, "")],
)
.with_operators();
pub(crate) const ABORTED_AT_ONCE: Story =
    Story::of("aborted at once", &[("early", 0, "run 60s exit 0")])
        .while_people(People::AbortAtOnce);
pub(crate) const REMOVED: Story = Story::of(
    "removed after its end",
    &[("done", 0, "exit 0"), ("bad", 0, "exit 1")],
)
.while_people(People::Abort(Duration::from_secs(60)));
pub(crate) const REFUSED: Story =
    Story::of("refused", &[("refused", 1, "exit 0")]).with_rules(&[Rule::Forbidden("pods")]);
pub(crate) const OVER_QUOTA: Story = Story::of(
    "over quota",
    &[("first", 0, "run 20s exit 0"), ("next", 0, "run 5s exit 0")],
)
.with_rules(&[Rule::PodQuota(1)]);
pub(crate) const NAME_TAKEN: Story = Story::of("name taken", &[("taken", 0, "exit 0")])
    .while_people(People::TakeName(Duration::from_secs(30)));
pub(crate) const INVALID: Story =
    Story::of("invalid", &[("empty", 0, ""), ("garbled", 0, "")]).while_people(People::Spoil);
pub(crate) const OUTPUTS_LOST: Story = Story::of("outputs lost", &[("a-lost", 0, "exit 0")]);
pub(crate) const NO_IMAGE: Story =
    Story::of("no image", &[("image", 0, "waiting ImagePullBackOff")]);
pub(crate) const MANY: Story = Story::of(
    "many",
    &[
        ("one", 0, "run 3s exit 0"),
        ("two", 0, "run 4s exit 0"),
        ("three", 0, "run 7s exit 0"),
        ("four", 0, "run 30s exit 0"),
        ("five", 0, "run 5s exit 0"),
    ],
);
/// Pods carry the finalizer. The abort comes when the second attempt has ended, also where the watch of pods fails twice and
/// is back after its longest back-off.
pub(crate) const HELD: Story = Story::of(
    "held",
    &[
        ("stopped", 0, "run 60s exit 0"),
        ("second", 1, "exit 1 | exit 0"),
    ],
)
.configured(|config| config.plugins.k8s.inject_finalizer = true)
.while_people(People::Abort(Duration::from_secs(45)));
/// Pods and actions go by themselves.
pub(crate) const COLLECTED: Story =
    Story::of("collected", &[("good", 0, "exit 0"), ("bad", 0, "exit 1")]).configured(|config| {
        config.plugins.k8s.delete_resource_on_finalize = true;
        config.collection = Collection {
            interval: Duration::from_secs(45),
            ttl: Duration::from_secs(60),
        };
    });
/// Its pod is talked about: two Events at once, and one later.
pub(crate) const EVENTS: Story = Story::of("events", &[("told", 0, "run 60s exit 0")])
    .while_people(People::TellOf(&[
        (Duration::from_secs(10), "event:first"),
        (Duration::ZERO, "event:second"),
        (Duration::from_secs(15), "event:third"),
    ]));
/// The second one would fail.
pub(crate) const CACHE_HIT: Story = Story::of("cache hit", &[("cached-a", 0, "run 2s exit 0")])
    .while_people(People::MakeAnother(
        Duration::from_secs(30),
        ("cached-b", 0, "exit 1"),
    ));
/// The second one comes while the first one runs, and would fail.
pub(crate) const CACHE_SHARED: Story =
    Story::of("cache shared", &[("serial-a", 0, "run 40s exit 0")]).while_people(
        People::MakeAnother(Duration::from_secs(30), ("serial-b", 0, "exit 1")),
    );
/// The second one gets its turn when the first one has failed.
pub(crate) const CACHE_NOT_FILLED: Story =
    Story::of("cache not filled", &[("serial-bad", 0, "run 40s exit 1")]).while_people(
        People::MakeAnother(Duration::from_secs(30), ("serial-next", 0, "exit 0")),
    );
pub(crate) const CACHE_DOWN: Story =
    Story::of("cache down", &[("serial-late", 0, "run 2s exit 0")])
        .while_people(People::TakeCache(Duration::from_secs(15)));
pub(crate) const CACHE_ABORTED: Story =
    Story::of("cache aborted", &[("serial-stopped", 0, "run 60s exit 0")])
        .while_people(People::Abort(Duration::from_secs(10)));
/// Each operator plays one; the one of Dask is installed when its task waits for it already.
pub(crate) const OPERATORS: Story = Story::of(
    "operators",
    &[
        ("spark", 0, ""),
        ("ray-bad", 0, ""),
        ("torch-again", 1, ""),
        ("dask", 0, ""),
    ],
)
.configured(|config| config.plugins.k8s.default_pod_template_name = Some("base".to_owned()))
.with_operators();
/// The others.
pub(crate) const MORE_OPERATORS: Story = Story::of(
    "more operators",
    &[
        ("tf", 0, ""),
        ("mpi-again", 1, ""),
        ("set", 0, ""),
        ("flink-bad", 0, ""),
    ],
)
.with_operators();
/// The head pod of each first attempt fails, or cannot begin, while the operator says nothing of it.
pub(crate) const HEADS_FAIL: Story = Story::of(
    "heads fail",
    &[
        ("spark-head", 1, ""),
        ("ray-head-stuck", 1, ""),
        ("torch-head", 0, ""),
        ("set-head", 1, ""),
    ],
)
.with_operators();
/// Nothing of them is a resource.
pub(crate) const REMOTE: Story =
    Story::of("remote", &[("sleep", 0, ""), ("job", 3, "")]).with_operators();
/// There is a slot for one of them at a time.
pub(crate) const REMOTE_WAITING: Story =
    Story::of("remote waiting", &[("job-a", 3, ""), ("job-b", 3, "")])
        .configured(|config| config.plugins.connector.quota.total = Some(1))
        .with_operators();
/// The second one comes while the job of the first one runs, and needs none.
pub(crate) const REMOTE_CACHED: Story = Story::of("remote cached", &[("job-serial-a", 3, "")])
    .with_operators()
    .while_people(People::MakeAnother(
        Duration::from_secs(40),
        ("job-serial-b", 3, ""),
    ));
/// Somebody else writes labels and signals meanwhile.
pub(crate) const WRITTEN_ALONG: Story = Story::of(
    "written along",
    &[
        ("second", 1, "run 3s exit 1 | run 3s exit 0"),
        ("gate", 0, ""),
    ],
)
.while_people(People::WriteAlong(40, Duration::from_millis(300)));
/// Both are deleted while they run.
pub(crate) const OPERATORS_ABORTED: Story = Story::of(
    "operators aborted",
    &[("spark-long", 0, ""), ("job-long", 3, "")],
)
.with_operators()
.while_people(People::Abort(Duration::from_secs(40)));
