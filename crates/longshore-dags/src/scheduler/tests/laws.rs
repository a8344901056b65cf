//! Random DAGs, outcomes and orders of facts. [`World`] checks the laws of each commit; here is what must hold of a
//! whole history.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use longshore_core::{Never, Next, Plan};
use longshore_store::{Changes, TaskInstance, TaskKey, TaskState};
use longshore_test::laws::{Decider, check_decider};
use proptest::prelude::*;

use super::world::{
    World, dag, failed, key, never_started, pod_of, request, running, succeeded, task,
};
use crate::{
    model::{Dag, TriggerRule},
    scheduler::{Fact, LaunchChange, Observed, Selection, States, decide},
};

const RULES: [TriggerRule; 13] = [
    TriggerRule::AllSuccess,
    TriggerRule::AllFailed,
    TriggerRule::AllDone,
    TriggerRule::AllDoneMinOneSuccess,
    TriggerRule::AllDoneSetupSuccess,
    TriggerRule::OneSuccess,
    TriggerRule::OneFailed,
    TriggerRule::OneDone,
    TriggerRule::NoneFailed,
    TriggerRule::NoneFailedMinOneSuccess,
    TriggerRule::NoneSkipped,
    TriggerRule::AllSkipped,
    TriggerRule::Always,
];

/// Choices, which shrink towards zero; a hash goes on where the tape ends.
struct Tape {
    tape: Vec<u16>,
    n_read: usize,
}

impl Tape {
    fn new(tape: Vec<u16>) -> Self {
        Self { tape, n_read: 0 }
    }

    fn below(&mut self, bound: usize) -> usize {
        let raw = self.tape.get(self.n_read).copied().map_or_else(
            || hash(&format!("{}/{:?}", self.n_read, self.tape.first())),
            usize::from,
        );
        self.n_read += 1;
        raw % bound
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }
}

fn hash(text: &str) -> usize {
    text.bytes().fold(0x811c_9dc5_usize, |hash, byte| {
        (hash ^ usize::from(byte)).wrapping_mul(0x0100_0193) & 0xffff_ffff
    }) >> 7
}

/// Whether the end of a run may depend on the order in which facts come.
#[derive(Clone, Copy, PartialEq)]
enum Rules {
    /// All rules.
    All,
    /// Without those that end a task by the first of two bad upstream states, whichever comes first.
    OrderFree,
}

fn random_dag(tape: &mut Tape, rules: Rules) -> Dag {
    let n_tasks = 5 + tape.below(26);
    let tasks = (0..n_tasks).map(|number| {
        let n_upstream = tape.below(4).min(number);
        let upstream: Vec<String> = (0..n_upstream)
            .map(|_| format!("t{:02}", tape.below(number)))
            .collect();
        let mut it = task(
            &format!("t{number:02}"),
            &upstream.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        it.trigger_rule = match (RULES[tape.below(RULES.len())], rules) {
            (TriggerRule::AllSuccess, Rules::OrderFree) => TriggerRule::NoneFailed,
            (rule, _) => rule,
        };
        it.retries = u32::try_from(tape.below(3)).unwrap();
        it.retry_delay = Duration::from_secs(u64::try_from(tape.below(3)).unwrap() * 100);
        it.retry_exponential_backoff = if tape.one_in(3) { 2.0 } else { 0.0 };
        it.priority_weight = i64::try_from(tape.below(4)).unwrap();
        it.is_setup = rules == Rules::All && tape.one_in(8);
        it.is_teardown = rules == Rules::All && !it.is_setup && tape.one_in(4);
        if tape.one_in(3) {
            it.pool = "small".to_owned();
            it.pool_slots = u32::try_from(1 + tape.below(2)).unwrap();
        }
        it.max_active_tis_per_dag = tape.one_in(6).then_some(1);
        it
    });
    let mut dag = dag(tasks.collect());
    dag.max_active_tasks = u32::try_from(1 + tape.below(6)).unwrap();
    dag.max_active_runs = u32::try_from(1 + tape.below(3)).unwrap();
    dag
}

/// All that happens to one launch, fixed by its address, so that two histories can be compared.
fn script(row: &TaskInstance, seed: usize) -> Vec<Fact> {
    let pod = |what| pod_of(row, what);
    let address = format!("{seed}/{}/{}/{}", row.key, row.try_number, row.launch);
    match hash(&address) % 12 {
        0..5 => vec![
            pod(LaunchChange::Exists),
            pod(running()),
            pod(succeeded()),
            pod(LaunchChange::Gone),
        ],
        5 => vec![pod(succeeded())],
        6..8 => vec![
            pod(LaunchChange::Exists),
            pod(running()),
            pod(failed()),
            pod(LaunchChange::Gone),
        ],
        8 => vec![
            pod(LaunchChange::Exists),
            pod(never_started("ErrImagePull")),
            pod(LaunchChange::Gone),
        ],
        9 => vec![
            pod(LaunchChange::Exists),
            pod(running()),
            pod(LaunchChange::Gone),
        ],
        10 => vec![pod(LaunchChange::Exists), pod(LaunchChange::Gone)],
        _ => {
            let (ti_id, launch, message) = (row.id, row.launch, String::new());
            vec![if hash(&address) % 24 < 12 {
                Fact::LaunchRefused {
                    ti_id,
                    launch,
                    message,
                }
            } else {
                Fact::LaunchBuildFailed {
                    ti_id,
                    launch,
                    message,
                }
            }]
        }
    }
}

/// A cluster that tells what happens to the pods, in any order between them, with repeats of all that it ever told.
struct Cluster {
    seed: usize,
    told: Vec<Fact>,
    scripts: BTreeMap<(uuid::Uuid, u32), Vec<Fact>>,
}

impl Cluster {
    fn new(seed: usize) -> Self {
        Self {
            seed,
            told: Vec::new(),
            scripts: BTreeMap::new(),
        }
    }

    /// Up to a handful of facts; none where no pod has anything left to tell.
    fn facts(&mut self, world: &World, tape: &mut Tape) -> Vec<Fact> {
        for row in world
            .rows
            .values()
            .filter(|row| row.state == Some(TaskState::Queued))
        {
            let seed = self.seed;
            self.scripts
                .entry((row.id, row.launch))
                .or_insert_with(|| script(row, seed));
        }
        let restarting = world
            .rows
            .values()
            .filter(|row| row.state == Some(TaskState::Restarting));
        let mut facts: Vec<Fact> = restarting
            .map(|row| Fact::LaunchEnded { ti_id: row.id })
            .collect();
        for _ in 0..=tape.below(4) {
            let open: Vec<_> = self
                .scripts
                .iter()
                .filter(|it| !it.1.is_empty())
                .map(|it| *it.0)
                .collect();
            if open.is_empty() {
                break;
            }
            let script = self.scripts.get_mut(&open[tape.below(open.len())]).unwrap();
            facts.push(script.remove(0));
            if tape.one_in(3) {
                let at = tape.below(facts.len() + 1);
                let repeated = self.told.get(tape.below(self.told.len() + 1)).cloned();
                facts.splice(at..at, repeated);
            }
        }
        self.told.extend(facts.iter().cloned());
        facts
    }
}

/// Runs until all is told and nothing is due. Panics where a run does not end.
fn play(world: &mut World, cluster: &mut Cluster, tape: &mut Tape, may_meddle: bool) {
    let mut n_idle = 0;
    for _ in 0..5000 {
        let mut facts = cluster.facts(world, tape);
        if may_meddle && tape.one_in(20) {
            facts.push([Fact::Interrupt, Fact::Resume][tape.below(2)](key("r")));
        }
        if may_meddle && tape.one_in(40) && world.runs.contains_key(&key("r")) {
            let states = [States::Any, States::Failed, States::NotDone][tape.below(3)];
            let selection = Selection {
                task_ids: tape
                    .one_in(2)
                    .then(|| "t03".to_owned())
                    .into_iter()
                    .collect(),
                includes_upstream: tape.one_in(4),
                includes_downstream: tape.one_in(2),
                states,
            };
            facts.push(world.clear("r", &selection));
        }
        if may_meddle && tape.one_in(200) {
            facts.push(Fact::CancelRun(key("q")));
        }
        let is_idle = facts.is_empty();
        world.round(facts);
        if !is_idle {
            world.wait(i64::try_from(tape.below(50)).unwrap());
            continue;
        }
        match world.next {
            Next::After(wait) => world.now += jiff::SignedDuration::try_from(wait).unwrap(),
            Next::AwaitChange if world.board.runs.is_empty() => return,
            Next::AwaitChange => {
                n_idle += 1;
                assert!(
                    n_idle < 100,
                    "a run never ends: {:?}",
                    world.board.runs.keys()
                );
                world.round(vec![Fact::Resume(key("r"))]);
            }
        }
    }
    panic!("a run never ends: {:?}", world.board.runs.keys());
}

fn new_world(tape: &mut Tape, dag: Dag, n_runs: usize) -> World {
    let mut world = World::new();
    world.set_pools(&[("default_pool", 4), ("small", 2)]);
    world.limits.parallelism = u32::try_from(1 + tape.below(8)).unwrap();
    let dag = Arc::new(dag);
    world.round(
        ["r", "q", "p"][..n_runs]
            .iter()
            .map(|run| request(&dag, run))
            .collect(),
    );
    world
}

fn ends(world: &World) -> BTreeMap<TaskKey, (Option<TaskState>, u32)> {
    let rows = world.rows.iter();
    rows.map(|(at, row)| (at.clone(), (row.state, row.try_number)))
        .collect()
}

fn tape() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>(), 50..600)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn every_run_ends_within_the_laws_whatever_happens(tape in tape()) {
        let mut tape = Tape::new(tape);
        let dag = random_dag(&mut tape, Rules::All);
        let n_runs = 1 + tape.below(3);
        let mut world = new_world(&mut tape, dag, n_runs);
        let mut cluster = Cluster::new(tape.below(1000));
        play(&mut world, &mut cluster, &mut tape, true);
        prop_assert!(world.rows.values().all(|row| row.state.is_some_and(TaskState::is_finished)));
        // All that was ever told, once more, changes nothing.
        prop_assert!(world.round(cluster.told).is_empty());
        for row in world.rows.values() {
            let n_archived = world.archived.iter().filter(|ended| ended.key == row.key).count();
            prop_assert!(n_archived <= row.max_tries as usize);
        }
    }

    #[test]
    fn the_end_does_not_depend_on_order_repeats_and_batches(
        plan in tape(),
        order in tape(),
        other_order in tape(),
    ) {
        let mut tape = Tape::new(plan);
        let dag = random_dag(&mut tape, Rules::OrderFree);
        let seed = tape.below(1000);
        let world = new_world(&mut tape, dag, 2);
        let [first, second] = [order, other_order].map(|order| {
            let mut world = world.clone();
            play(&mut world, &mut Cluster::new(seed), &mut Tape::new(order), false);
            ends(&world)
        });
        prop_assert_eq!(first, second);
    }
}

struct Scheduler;

impl Decider for Scheduler {
    type Observed = Observed;
    type Status = Changes;
    type Effect = Never;
    type Question = Never;

    fn decide(&self, observed: &Observed) -> Plan<Changes> {
        decide(observed)
    }

    fn max_actions(&self) -> usize {
        1
    }

    /// Nor does a try or, within it, a launch come back.
    fn leaves_terminal(&self, observed: &Observed, changes: &Changes) -> bool {
        changes.task_instances.iter().any(|row| {
            observed
                .board
                .task_instance(&row.key)
                .is_some_and(|before| {
                    before.state.is_some_and(TaskState::is_finished)
                        || row.try_number < before.try_number
                        || (row.id == before.id && row.launch < before.launch)
                })
        })
    }
}

/// A world on its way, and what it is told next: also the end of its cluster.
fn observed() -> impl Strategy<Value = Observed> {
    (tape(), 0..15_usize).prop_map(|(tape, n_rounds)| {
        let mut tape = Tape::new(tape);
        let dag = random_dag(&mut tape, Rules::All);
        let mut world = new_world(&mut tape, dag, 2);
        let mut cluster = Cluster::new(tape.below(1000));
        for _ in 0..n_rounds {
            let mut facts = cluster.facts(&world, &mut tape);
            facts.extend(tape.one_in(10).then(|| Fact::Interrupt(key("r"))));
            facts.extend(tape.one_in(5).then(|| Fact::Resume(key("r"))));
            world.round(facts);
            world.wait(10);
        }
        let mut facts = cluster.facts(&world, &mut tape);
        facts.extend(tape.one_in(4).then_some(Fact::ClusterChanged));
        facts.extend(cluster.told);
        world.observe(facts)
    })
}

#[test]
fn the_decision_of_a_round_keeps_the_laws() {
    assert_eq!(check_decider(&Scheduler, &observed(), 12), []);
}
