//! The one watch on a launcher's objects: it starts at the stored position, and every event becomes a fact.
//!
//! *Flow*: list (objects without an event since the stored position), then follow the events since the stored position, then live. An event's effect
//! and its position are committed together, so a restart goes on exactly there; a position that has expired (410) is
//! replaced by a new list. The effects of events are idempotent, because a list and a resumed watch report some twice.

use std::sync::Arc;

use futures::{Stream, StreamExt, stream::BoxStream};
use kube::{Api, api::ListParams};
use longshore_k8s::metadata::parse_version;
use longshore_kit::{Definition, ListWatch, Update};
use longshore_plugins::TASK_ACTION;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    launched::{Launched, WatchedEvent, fact_of, launch_of},
    table::{LaunchTable, Stage},
};
use crate::{
    base::{
        change::{Change, StateChange},
        position::Reached,
        shared::Shared,
    },
    model::Launcher,
    scheduler::facts::{Fact, LaunchChange, LaunchFact},
};

/// Follows the objects of one launcher of one scheduler.
pub(crate) struct LaunchWatch<K> {
    api: Api<K>,
    what: ListWatch<K>,
    shared: Arc<Shared>,
}

impl<K: Launched> LaunchWatch<K> {
    pub(crate) fn new(api: Api<K>, shared: Arc<Shared>) -> Self {
        let what = ListWatch::new(api.clone()).labels(K::selector(shared.store.scheduler_id()));
        Self { api, what, shared }
    }

    /// Follows the objects until shutdown, once they are wanted: from the events after `stored`, if the server still
    /// remembers them.
    pub(crate) async fn run(self, stored: Option<u64>, shutdown: CancellationToken) {
        let follow = async {
            self.table().reached(K::LAUNCHER, Stage::Wanted).await;
            if K::LAUNCHER == Launcher::TaskAction {
                self.until_served().await;
            }
            self.follow(stored).await;
        };
        shutdown.run_until_cancelled(follow).await;
    }

    fn table(&self) -> &LaunchTable {
        &self.shared.launched
    }

    fn reach(&self, stage: Stage) {
        self.table().reach(K::LAUNCHER, stage);
    }

    /// Waits until the API server serves TaskActions. Until then, building one fails.
    ///
    /// Where they are served, nothing is asked about their definition: a scheduler without the right to watch it runs
    /// tasks with a plugin there.
    async fn until_served(&self) {
        let one = ListParams::default().limit(1);
        let Err(kube::Error::Api(status)) = self.api.list(&one).await else {
            return;
        };
        if status.code != 404 {
            return;
        }
        self.reach(Stage::Missing);
        let board = self.shared.board();
        let ids = board.task_instances().map(|row| row.id);
        self.shared.launch_keys.add(ids);
        let definition = Definition::new(TASK_ACTION, |_| {});
        let client = self.api.clone().into_client();
        definition.until_served(&client).await;
    }

    async fn follow(&self, stored: Option<u64>) {
        let mut updates = self.updates(self.what.clone());
        let listed = self.take_list(&mut updates, stored).await;
        match stored.filter(|stored| *stored < listed) {
            // What ended and went away since then is in no list.
            Some(stored) => {
                updates = self.updates(self.what.clone().start_at(stored).catching_up_to(listed));
            }
            None => self.caught_up(),
        }
        let mut seen = stored.unwrap_or(listed).min(listed);
        while let Some(update) = updates.next().await {
            let reached = self.take(update, seen).await;
            seen = seen.max(reached);
            if reached >= listed && self.table().stage(K::LAUNCHER) != Stage::Replayed {
                self.caught_up();
            }
        }
    }

    fn updates(&self, what: ListWatch<K>) -> BoxStream<'static, Update<K>> {
        what.into_cache(K::cache(self.table()).clone()).boxed()
    }

    /// Takes the first list in, whose objects come in no order of time: the position is its end. Returns it.
    ///
    /// Where no older events are to come, the commit of what the list says holds the position.
    async fn take_list(
        &self,
        updates: &mut (impl Stream<Item = Update<K>> + Unpin),
        stored: Option<u64>,
    ) -> u64 {
        while let Some(update) = updates.next().await {
            match update {
                Update::Applied(object) => self.applied(&object, None).await,
                Update::Deleted(object) => {
                    self.deleted(WatchedEvent::Vanished, &object, None).await
                }
                Update::Reached(listed) => {
                    if stored.is_none_or(|stored| stored >= listed) {
                        self.shared.inbox.reached(position::<K>(listed));
                    }
                    self.reach(Stage::Listed);
                    return listed;
                }
            }
        }
        0
    }

    /// Takes one update in, where all up to `seen` was seen. Returns the position that it reaches.
    ///
    /// Only a new list says that an object is gone which was last seen as it is.
    async fn take(&self, update: Update<K>, seen: u64) -> u64 {
        match update {
            Update::Applied(object) => {
                let at = version(&*object);
                self.applied(&object, Some(at)).await;
                at
            }
            Update::Deleted(object) => {
                let at = version(&*object);
                let event = if at > seen {
                    WatchedEvent::Deleted
                } else {
                    WatchedEvent::Vanished
                };
                self.deleted(event, &object, Some(at)).await;
                at
            }
            Update::Reached(at) => {
                self.shared.inbox.reached(position::<K>(at));
                at
            }
        }
    }

    async fn applied(&self, object: &K, at: Option<u64>) {
        let Some((ti_id, _)) = launch_of(object) else {
            return;
        };
        let surplus = self.table().insert(ti_id, object);
        self.report(WatchedEvent::Applied, object, at).await;
        self.tell_pending(ti_id, object);
        self.shared
            .launch_keys
            .add(surplus.into_iter().chain([ti_id]));
    }

    /// Tells those who follow the run what keeps a try from its start, where that is new.
    fn tell_pending(&self, ti_id: Uuid, object: &K) {
        let message = object.pending();
        if !self.table().note_pending(ti_id, message.as_deref()) {
            return;
        }
        let board = self.shared.board_mut();
        let Some((_, row)) = board.task_instance_by_id(&ti_id) else {
            return;
        };
        // Nobody may follow.
        let _ = self.shared.changes.send(StateChange {
            at: self.shared.clock.now(),
            run: row.key.run.clone(),
            change: Change::Pending {
                task_id: row.key.task_id.clone(),
                map_index: row.key.map_index,
                message,
            },
        });
    }

    /// The fact first, then the table: once the table has no object, the inbox has the reason.
    async fn deleted(&self, event: WatchedEvent, object: &K, at: Option<u64>) {
        let Some((ti_id, _)) = launch_of(object) else {
            return;
        };
        self.report(event, object, at).await;
        self.table().remove(ti_id, object);
        self.shared.launch_keys.add([ti_id]);
    }

    async fn report(&self, event: WatchedEvent, object: &K, at: Option<u64>) {
        if let Some(fact) = fact_of(event, object) {
            let at = at.map(position::<K>).unwrap_or_default();
            self.shared
                .inbox
                .push_watched(Fact::Launched(fact), at)
                .await;
        }
    }

    /// Every event up to the list has been seen: what we know of and do not see now was deleted meanwhile.
    fn caught_up(&self) {
        self.reach(Stage::Replayed);
        let board = self.shared.board();
        for (active, row) in board.launches() {
            let task = active.dag.tasks.get(&row.key.task_id);
            let is_ours = task.is_some_and(|task| task.launcher() == K::LAUNCHER);
            let Some(pod_uid) = row.pod_uid.as_ref().filter(|_| is_ours) else {
                continue;
            };
            if !self.table().has(K::LAUNCHER, &row.id, pod_uid) {
                self.shared.inbox.push(Fact::Launched(LaunchFact {
                    ti_id: row.id,
                    launch: row.launch,
                    pod_name: row.pod_name.clone().unwrap_or_default(),
                    pod_uid: pod_uid.clone(),
                    resource_version: None,
                    what: LaunchChange::Lost,
                }));
            }
        }
        self.shared
            .launch_keys
            .add(board.task_instances().map(|row| row.id));
        self.shared.launch_keys.add(self.table().ids(K::LAUNCHER));
    }
}

fn position<K: Launched>(version: u64) -> Reached {
    Reached::of(K::LAUNCHER, version)
}

fn version<K: Launched>(object: &K) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version.and_then(parse_version).unwrap_or(0)
}
