//! `longshore controller --enable podops` as people run it, on the cluster of the test run.
//!
//! One controller serves all scenarios of a cluster: its webhooks are known to the whole cluster under one name. On a real
//! API server it has the rights that it declares and no others, and in the end it has used all of them.

mod asked;
mod boundaries;
mod budgets;
mod disturbed;
mod down;
pub(crate) mod drain;
mod examples;
mod forged;
mod held;
mod http;
mod kubelet;
mod labels;
mod leaving;
mod place;
mod replay;
mod scenarios;
mod services;
mod silent;
mod workloads;
mod world;

use std::{collections::BTreeSet, time::Duration};

use futures::{future, join};
use longshore_podops::RULES;

use world::{Asking, World};

/// Longer than all of it takes.
const LIMIT: Duration = Duration::from_secs(900);

/// Used only when another client has written an object first, or when its watch is late.
const AT_CONFLICTS: [(&str, &str); 1] = [("get", "poddisruptionbudgets")];

/// Verb and resource of everything that the role grants.
fn granted() -> BTreeSet<Asking> {
    let mut granted = BTreeSet::new();
    for rule in RULES {
        for resource in rule.resources {
            let pairs = rule
                .verbs
                .iter()
                .map(|verb| ((*verb).to_owned(), (*resource).to_owned()));
            granted.extend(pairs);
        }
    }
    granted
}

/// The acceptance list.
pub(crate) async fn play() {
    let accepted = tokio::time::timeout(LIMIT, Box::pin(accept()));
    accepted.await.unwrap();
}

/// On a real cluster one controller serves all scenarios, one part after the other. Embedded clusters know nothing of each
/// other: there each part has one of its own, and all play at the same time.
async fn accept() {
    let world = World::start().await;
    if !world.cluster.is_real() {
        let others = future::join_all((0..5).map(|_| World::start())).await;
        let [other, killed, down, left, gone] = others.as_slice() else {
            panic!("as many as there are parts");
        };
        join!(
            Box::pin(undisturbed(&world)),
            Box::pin(one_after_the_other(other)),
            Box::pin(interrupted(killed)),
            Box::pin(down_for_long(down)),
            Box::pin(leaving::in_order(left)),
            Box::pin(leaving::killed(gone)),
        );
        join!(
            world.end(),
            future::join_all(others.into_iter().map(World::end))
        );
        return;
    }
    Box::pin(undisturbed(&world)).await;
    Box::pin(one_after_the_other(&world)).await;
    Box::pin(interrupted(&world)).await;
    Box::pin(down_for_long(&world)).await;
    world.note_asked().await;
    let (mut used, forbidden) = world.asked();
    // Only a real one restricts requests.
    assert!(forbidden.is_empty(), "{forbidden:?}");
    used.extend(AT_CONFLICTS.map(|(verb, resource)| (verb.to_owned(), resource.to_owned())));
    assert_eq!(used, granted(), "used and declared");
    println!("real server: the acceptance list of podops");
    Box::pin(leaving::in_order(&world)).await;
    Box::pin(leaving::killed(&world)).await;
    world.end().await;
}

/// What plays while one controller runs, and the end of the token that was there before it.
async fn undisturbed(world: &World) {
    let printed = world.door().await.token;
    world.note_asked().await;
    world.kill();
    world.begin_again(&[]).await;
    let place = world.namespace("printed").await;
    join!(
        Box::pin(forged::a_token_ends_after_a_restart(&place, &printed)),
        Box::pin(at_once(world)),
        Box::pin(budgets::all(world)),
    );
    is_counted(world).await;
    let tokens = [printed, world.door().await.token];
    forged::no_token_is_in_a_log_a_metric_or_a_process_list(world, &tokens).await;
}

/// What plays while one controller runs, and needs the cluster for itself, or nearly so.
async fn one_after_the_other(world: &World) {
    join!(
        Box::pin(asked::all(world)),
        Box::pin(boundaries::all(world))
    );
    Box::pin(labels::all(world)).await;
    Box::pin(examples::all(world)).await;
    let many = world.namespace("many").await;
    disturbed::many_pods_are_deleted_at_once(&many).await;
    if world.has_workloads {
        let going = world.namespace("going").await;
        workloads::a_namespace_goes_with_all_its_pods(&going, disturbed::n_pods()).await;
    } else {
        println!("podops: nobody runs Deployments or deletes namespaces here");
    }
    let drained = world.namespace("drained").await;
    disturbed::a_node_is_drained(&drained).await;
    let busy = world.namespace("busy").await;
    scenarios::a_rule_that_is_written_meanwhile_is_read_again(&busy).await;
}

/// What kills the controller in the middle of its work.
async fn interrupted(world: &World) {
    let printed = world.door().await.token;
    let killed = world.namespace("killed").await;
    disturbed::a_deletion_survives_kills_at_every_label(&killed).await;
    disturbed::an_operation_survives_kills_at_every_label(&killed).await;
    let freed = world.namespace("freed").await;
    labels::a_pod_that_was_freed_while_the_controller_was_down_serves_again(&freed).await;
    let polled = world.namespace("polled").await;
    asked::a_task_is_asked_about_by_the_next_controller(&polled).await;
    let tokens = [printed, world.door().await.token];
    forged::no_token_is_in_a_log_a_metric_or_a_process_list(world, &tokens).await;
}

/// What is refused or held while no controller runs, and afterwards.
async fn down_for_long(world: &World) {
    Box::pin(held::all(world)).await;
    Box::pin(down::what_the_table_says_works_while_no_replica_runs(world)).await;
}

/// Those that leave each other alone.
async fn at_once(world: &World) {
    let places = [
        "deleted",
        "protected",
        "twice",
        "labelled",
        "half",
        "here",
        "there",
        "dry",
        "service",
        "dead",
        "routed",
        "deployment",
        "stateful",
        "forged",
        "replayed",
    ];
    let mut made = Vec::new();
    for name in places {
        made.push(world.namespace(name).await);
    }
    let [
        deleted,
        protected,
        twice,
        labelled,
        half,
        here,
        there,
        dry,
        service,
        dead,
        routed,
        deployment,
        stateful,
        forged,
        replayed,
    ] = made.as_slice()
    else {
        panic!("as many as names");
    };
    let workloads = async {
        if world.has_workloads {
            join!(
                workloads::a_deployment_serves_rolls_and_shrinks_by_itself(deployment),
                workloads::a_stateful_set_rolls_by_itself(stateful),
            );
        }
    };
    join!(
        scenarios::a_deleted_pod_goes_through_the_labels_in_their_order(deleted),
        scenarios::a_protected_pod_waits_for_whoever_protects_it(protected),
        scenarios::two_operations_on_a_pod_complete_together(twice),
        scenarios::a_rule_about_labels_holds_a_pod_that_serves_until_it_has_them(labelled),
        scenarios::half_of_the_pods_serve_whatever_is_operated_on(half),
        scenarios::a_rule_of_another_namespace_holds_nobody(here, there),
        scenarios::a_dry_run_of_a_deletion_leaves_the_pod_alone(dry),
        scenarios::a_service_that_is_gone_holds_no_pod_back(service),
        scenarios::a_dead_cooperation_controller_holds_a_pod_until_its_deadline(dead),
        forged::a_forged_review_of_every_kind_gets_401_and_nothing_happens(forged),
        forged::a_replayed_review_of_a_pod_that_is_gone_does_not_delete_the_next_one(replayed),
        services::a_pod_is_held_while_a_slice_has_it_as_ready(routed),
        workloads,
    );
}

/// What webhooks and controllers count can be read.
async fn is_counted(world: &World) {
    for line in [
        r#"controller_runtime_webhook_requests_total{webhook="/mutating-generic",code="200"}"#,
        r#"controller_runtime_webhook_requests_total{webhook="/validating-generic",code="200"}"#,
        r#"controller_runtime_reconcile_total{controller="podops.pods",result="success"}"#,
        r#"longshore_podops_pods{phase="ServiceAvailable"}"#,
    ] {
        let value = world.metric(line).await;
        assert!(value.is_some_and(|value| value > 0.0), "{line}: {value:?}");
    }
}
