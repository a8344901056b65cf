//! Each story undisturbed, and then once for every effect of the executor with a crash before it, a crash after it,
//! its answer lost, a refusal, and with late, cut, repeated and expired watches: the end must be the same.

use std::{collections::BTreeMap, sync::Arc};

use longshore_tasks::events::ActionPhase;
use longshore_test::{
    FaultPlan,
    faults::{Point, Process},
    laws::{Law, Owned, Scenario, Troubles, Violation, check_crashes, check_scenario, check_seeds},
    scripted_node::PodRun,
};

use crate::{
    stories::{self, People, Story},
    world::{World, is_serialized, is_terminal, launch},
};

impl Scenario for Story {
    type World = Arc<World>;
    type Subject = Owned;

    fn name(&self) -> String {
        self.name.to_owned()
    }

    async fn build(&self) -> Arc<World> {
        self.world().await
    }

    fn start(&self, world: &mut Arc<World>, process: &Process) -> Owned {
        let (world, process) = (world.clone(), process.clone());
        Owned::spawn(async move { world.run(&process).await })
    }

    async fn digest(&self, world: &Arc<World>) -> String {
        world.digest().await
    }

    /// How often a create is refused for the moment, how often people are told of that, and what is still published of
    /// an action that is deleted while it begins, is a matter of timing; so is who writes a pod that ends first, the
    /// node or we.
    fn is_uncounted(&self, point: &Point) -> bool {
        let is_refused = !self.rules.is_empty() && point.what == "create pods";
        let is_news = ["report", "patch taskactions/status"].contains(&point.what.as_str());
        // What comes apart by a broken watch is told apart.
        let is_told_apart = matches!(self.people, People::TellOf(_)) && is_news;
        let is_cut_short = self.people == People::AbortAtOnce && is_news;
        // Operators go on meanwhile, and jobs of connectors are asked for again.
        let is_told_apart = is_told_apart || self.has_operators && is_news;
        let is_asked = point.what.starts_with("ask ");
        // How often an action waits for another one, and says so, is a matter of timing.
        let may_wait = self.name == stories::OVER_QUOTA.name
            || self.actions.iter().any(|(name, ..)| is_serialized(name));
        let is_waiting = point.what.ends_with(" cache") || may_wait && is_news;
        // How often another writer comes in between, too.
        let is_met = matches!(self.people, People::WriteAlong(..))
            && (is_news || point.what == "patch taskactions");
        let is_told_again = point.what.ends_with(" events") || point.what == "patch pods";
        point.is_read()
            || is_refused
            || is_cut_short
            || is_told_apart
            || is_told_again
            || is_waiting
            || is_met
            || is_asked
    }

    /// Not the create of a pod that is removed at once for the next try. Nor one of an action that is deleted at once: the
    /// garbage collector of a cluster removes a pod that lands after its owner is gone, and these worlds have none.
    fn may_land_late(&self, point: &Point) -> bool {
        let mut scripts = self.actions.iter().map(|(_, _, script)| script);
        let is_removed = scripts.any(|script| script.starts_with("exit 1 |"));
        let is_brief = is_removed || self.people == People::AbortAtOnce;
        !(is_brief && point.what == "create pods")
    }

    /// An action goes on without a cache that fails twice, both before the task and after it (task action spec §7.3).
    ///
    /// Upstream's state has one cursor for Kubernetes Events (§9.4): an executor that starts beside an outage does not know
    /// which Events of the cursor's second were reported, and it reports again what was reported and not recorded.
    fn is_given_up(&self, first: &FaultPlan, second: &Point) -> bool {
        let mut firsts = first.at.iter();
        let is_again = firsts.any(|(first, _)| first.what == second.what);
        let tells_events = matches!(self.people, People::TellOf(_));
        let is_of_cache = ["get cache", "put cache"].contains(&second.what.as_str());
        is_of_cache && is_again || tells_events && first.has_outage()
    }

    fn expects_log(&self, line: &str) -> bool {
        let expected = match self.name {
            name if name == stories::CACHE_DOWN.name => "the cache cannot be asked",
            // Where the longer of the two runs first.
            name if name == stories::OVER_QUOTA.name => "exceeded quota: few",
            _ => return false,
        };
        line.contains(expected)
    }

    fn bound(&self, what: &str, troubles: &Troubles) -> Option<u32> {
        let is_watch = what.starts_with("watch ");
        Some(if is_watch { 400 } else { troubles.allowance() })
    }

    async fn broken(&self, world: &Arc<World>) -> Vec<Violation> {
        let history = world.node.history();
        let by_action = |run: &PodRun| {
            let launch = launch(run)?;
            Some(launch.split('/').next()?.to_owned())
        };
        let mut broken = history.repeated(launch);
        broken.extend(history.overlapping(by_action));
        broken.extend(history.overlapping(serialized));
        let owners = world.cache.owners();
        broken.extend(owners.iter().map(|owner| format!("{owner} has reserved")));
        broken.extend(world.seen.repeated());
        broken.extend(world.connector.repeated());
        broken.extend(untold(world).await);
        broken.extend(contradictory(world));
        broken
            .into_iter()
            .map(|what| Violation::of(Law::OwnInvariant, what))
            .collect()
    }
}

/// The key that all that are serialized share.
pub(crate) fn serialized(run: &PodRun) -> Option<String> {
    is_serialized(&run.pod).then(|| "a cache key".to_owned())
}

/// Statuses that the run service was not told of before.
async fn untold(world: &World) -> Vec<String> {
    let mut untold = Vec::new();
    for action in world.actions().await {
        let status = &action["status"];
        if status["pluginPhase"].is_null() {
            continue; // It never began.
        }
        let name = action["spec"]["actionName"].as_str().unwrap_or_default();
        let attempt = status["attempts"].as_u64().unwrap_or(1);
        let version = status["pluginPhaseVersion"].as_u64().unwrap_or(0);
        let told = world.told.effective(name);
        let is_told = told
            .iter()
            .any(|(of, _, at)| u64::from(*of) == attempt && u64::from(*at) >= version);
        if !is_told {
            untold.push(format!("nobody was told of {status}"));
        }
    }
    untold
}

/// Attempts of which the run service was told two different ends.
fn contradictory(world: &World) -> Vec<String> {
    let mut ends: BTreeMap<(String, u32), Vec<ActionPhase>> = BTreeMap::new();
    for event in world.told.events() {
        if is_terminal(event.phase) {
            let of_attempt = ends.entry((event.action, event.attempt)).or_default();
            if !of_attempt.contains(&event.phase) {
                of_attempt.push(event.phase);
            }
        }
    }
    let several = ends.into_iter().filter(|(_, phases)| phases.len() > 1);
    several
        .map(|(of, phases)| format!("{of:?} ended as {phases:?}"))
        .collect()
}

macro_rules! stories {
    ($($check:ident { $($test:ident: $story:ident,)* })*) => {
        /// All of them: for the laws, and but for those that it names itself for the real API server.
        pub(crate) const STORIES: &[Story] = &[$($(stories::$story,)*)*];

        $($(
            #[test]
            fn $test() {
                $check(&stories::$story);
            }
        )*)*
    };
}

fn everything(story: &Story) {
    let report = check_scenario(story);
    println!("{}: {} worlds", report.scenario, report.n_worlds);
    report.assert_kept();
}

/// Killed after each effect, and each answer lost. Whatever else can go wrong is the same for all plugins, and comes in
/// the stories of pods; so does what several actions at once do to each other, and each is alone here.
fn crashes(story: &Story) {
    for action in story.actions.chunks(1) {
        let alone = Story {
            actions: action,
            ..*story
        };
        check_crashes(&alone).assert_kept();
    }
}

stories! {
everything {
    a_success_survives_everything: SUCCESS,
    retries_survive_everything: RETRY,
    programs_that_kill_themselves_survive_everything: KILLED,
    a_deleted_pod_survives_everything: POD_DELETED,
    an_abort_survives_everything: ABORTED,
    an_early_abort_survives_everything: ABORTED_AT_ONCE,
    an_abort_that_keeps_its_pod_survives_everything: KEPT_BY_ABORT,
    a_timeout_survives_everything: TIMEOUT,
    a_removal_survives_everything: REMOVED,
    a_refused_pod_survives_everything: REFUSED,
    a_quota_that_is_used_up_survives_everything: OVER_QUOTA,
    a_name_that_is_taken_survives_everything: NAME_TAKEN,
    an_invalid_spec_survives_everything: INVALID,
    lost_outputs_survive_everything: OUTPUTS_LOST,
    a_missing_image_survives_everything: NO_IMAGE,
    held_pods_survive_everything: HELD,
    a_collection_survives_everything: COLLECTED,
    events_survive_everything: EVENTS,
    a_cache_hit_survives_everything: CACHE_HIT,
    a_shared_cache_key_survives_everything: CACHE_SHARED,
    a_cache_that_is_not_filled_survives_everything: CACHE_NOT_FILLED,
    a_cache_that_is_down_survives_everything: CACHE_DOWN,
    an_abort_gives_a_reservation_up_whatever_happens: CACHE_ABORTED,
    what_others_write_survives_everything: WRITTEN_ALONG,
}
crashes {
    an_eviction_survives_every_crash: DISRUPTED,
    operators_survive_every_crash: OPERATORS,
    more_operators_survive_every_crash: MORE_OPERATORS,
    failing_heads_survive_every_crash: HEADS_FAIL,
    what_is_no_resource_survives_every_crash: REMOTE,
    what_waits_for_a_slot_survives_every_crash: REMOTE_WAITING,
    a_cache_of_what_is_no_resource_survives_every_crash: REMOTE_CACHED,
    aborted_operators_survive_every_crash: OPERATORS_ABORTED,
    a_timeout_of_others_survives_every_crash: TIMEOUT_OF_OTHERS,
}
}

#[test]
fn many_faults_at_once_change_nothing_about_the_end() {
    for story in STORIES {
        check_seeds(story, 0..3).assert_kept();
    }
}
