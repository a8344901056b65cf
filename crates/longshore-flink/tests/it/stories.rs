//! What people do with Flink's resources.

use std::{sync::Arc, time::Duration};

use longshore_flink::{FLINK_DEPLOYMENT, FLINK_SESSION_JOB};
use serde_json::{Value, json};

use crate::world::World;

/// A story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Story {
    pub(crate) name: &'static str,
    pub(crate) people: People,
    /// The upgrade mode of the job.
    pub(crate) mode: &'static str,
}

/// What people do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum People {
    /// They create a FlinkDeployment.
    Create,
    /// They change its image once it runs.
    Upgrade,
    /// They change its image, and its JobManager forgets what it has done.
    UpgradeForgotten,
    /// They suspend it, and resume it.
    SuspendAndResume,
    /// They delete it.
    Delete,
    /// They ask for a savepoint.
    Savepoint,
    /// They run a job on a session cluster, change it and delete it.
    SessionJob,
}

pub(crate) const CREATED: Story = Story {
    name: "a FlinkDeployment is created",
    people: People::Create,
    mode: "stateless",
};
pub(crate) const SAVEPOINT_UPGRADE: Story = Story {
    name: "an upgrade with a savepoint",
    people: People::Upgrade,
    mode: "savepoint",
};
pub(crate) const FORGOTTEN: Story = Story {
    name: "an upgrade whose savepoint the JobManager forgets",
    people: People::UpgradeForgotten,
    mode: "savepoint",
};
pub(crate) const LAST_STATE_UPGRADE: Story = Story {
    name: "an upgrade from the last state",
    people: People::Upgrade,
    mode: "last-state",
};
pub(crate) const STATELESS_UPGRADE: Story = Story {
    name: "an upgrade without state",
    people: People::Upgrade,
    mode: "stateless",
};
pub(crate) const SUSPENDED: Story = Story {
    name: "a job is suspended and resumed",
    people: People::SuspendAndResume,
    mode: "savepoint",
};
pub(crate) const DELETED: Story = Story {
    name: "a FlinkDeployment is deleted",
    people: People::Delete,
    mode: "last-state",
};
pub(crate) const SAVED: Story = Story {
    name: "a savepoint by a nonce",
    people: People::Savepoint,
    mode: "savepoint",
};
pub(crate) const SESSION_JOB: Story = Story {
    name: "a job on a session cluster",
    people: People::SessionJob,
    mode: "savepoint",
};

pub(crate) const ALL: [Story; 9] = [
    CREATED,
    SAVEPOINT_UPGRADE,
    FORGOTTEN,
    LAST_STATE_UPGRADE,
    STATELESS_UPGRADE,
    SUSPENDED,
    DELETED,
    SAVED,
    SESSION_JOB,
];

impl Story {
    /// A world in which people begin.
    pub(crate) async fn begin(&self) -> Arc<World> {
        let world = World::new().await;
        let is_session = self.people == People::SessionJob;
        let object = deployment(if is_session { None } else { Some(self.mode) });
        world.create(FLINK_DEPLOYMENT, object).await;
        let (people, story) = (Arc::clone(&world), *self);
        tokio::spawn(async move { story.act(&people).await });
        world
    }

    async fn act(&self, world: &World) {
        if self.people == People::SessionJob {
            return act_on_session(world, self.mode).await;
        }
        if self.people == People::Create {
            return;
        }
        world.until_running(FLINK_DEPLOYMENT, "a").await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        match self.people {
            People::Create | People::SessionJob => {}
            People::UpgradeForgotten => {
                let patch = json!({"spec": {"image": "flink:new"}});
                world.change(FLINK_DEPLOYMENT, "a", &patch).await;
                for _ in 0..600 {
                    world.job_managers.forget();
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
            People::Upgrade => {
                let patch = json!({"spec": {"image": "flink:new"}});
                world.change(FLINK_DEPLOYMENT, "a", &patch).await;
            }
            People::SuspendAndResume => {
                let patch = json!({"spec": {"job": {"state": "suspended"}}});
                world.change(FLINK_DEPLOYMENT, "a", &patch).await;
                let is_suspended = |it: &Value| it["status"]["lifecycleState"] == "SUSPENDED";
                world.until(FLINK_DEPLOYMENT, "a", is_suspended).await;
                tokio::time::sleep(Duration::from_secs(5)).await;
                let patch = json!({"spec": {"job": {"state": "running"}}});
                world.change(FLINK_DEPLOYMENT, "a", &patch).await;
            }
            People::Delete => world.delete(FLINK_DEPLOYMENT, "a").await,
            People::Savepoint => {
                let patch = json!({"spec": {"job": {"savepointTriggerNonce": 1}}});
                world.change(FLINK_DEPLOYMENT, "a", &patch).await;
            }
        }
    }
}

async fn act_on_session(world: &World, mode: &str) {
    let job = json!({
        "metadata": {"name": "j"},
        "spec": {
            "deploymentName": "a",
            "job": {
                "jarURI": "https://example.test/job.jar", "parallelism": 1,
                "upgradeMode": mode, "state": "running",
            },
        },
    });
    world.create(FLINK_SESSION_JOB, job).await;
    world.until_running(FLINK_SESSION_JOB, "j").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let patch = json!({"spec": {"job": {"args": ["--new"]}}});
    world.change(FLINK_SESSION_JOB, "j", &patch).await;
}

/// A FlinkDeployment: a job of an upgrade mode, or a session cluster.
fn deployment(mode: Option<&str>) -> Value {
    let mut configuration = json!({
        "execution.checkpointing.dir": "file:/chk",
        "execution.checkpointing.savepoint-dir": "file:/sp",
    });
    if mode == Some("last-state") {
        configuration["high-availability.type"] = json!("kubernetes");
        configuration["high-availability.storageDir"] = json!("file:/ha");
    }
    let mut spec = json!({
        "image": "flink:1.20",
        "flinkVersion": "v1_20",
        "serviceAccount": "flink",
        "flinkConfiguration": configuration,
        "jobManager": {"resource": {"memory": "1024m", "cpu": 1}},
        "taskManager": {"resource": {"memory": "1024m", "cpu": 1}},
    });
    if let Some(mode) = mode {
        spec["job"] = json!({
            "jarURI": "local:///opt/flink/usrlib/job.jar",
            "parallelism": 2, "upgradeMode": mode, "state": "running",
        });
    }
    json!({"metadata": {"name": "a"}, "spec": spec})
}
