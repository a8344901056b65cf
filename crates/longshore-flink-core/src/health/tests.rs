use super::*;

const MINUTE: i64 = 60_000;
/// Of the tests below; any other one would do.
const START: i64 = 1_700_000_000_000;

fn config(pairs: &[(&str, &str)]) -> FlinkConfig {
    pairs.iter().copied().collect()
}

fn limits(pairs: &[(&str, &str)]) -> HealthLimits {
    HealthLimits::of(&config(pairs)).unwrap()
}

fn seen(minutes: i64, n_restarts: i32, n_completed_checkpoints: i32) -> Observation {
    Observation {
        at_ms: START + minutes * MINUTE,
        n_restarts,
        n_completed_checkpoints,
    }
}

/// The health after observations, and what is wrong.
fn after(observations: &[Observation], limits: &HealthLimits) -> (ClusterHealth, String) {
    let mut health = ClusterHealth::first(&observations[0]);
    for observation in &observations[1..] {
        health = health.next(observation, limits).unwrap();
    }
    let error = health.health_result.error.clone().unwrap_or_default();
    assert_eq!(health.health_result.healthy, error.is_empty());
    assert_eq!(
        health.time_stamp,
        observations[observations.len() - 1].at_ms
    );
    (health, error)
}

#[test]
fn restarts_are_counted_within_their_window() {
    let limits = limits(&[(
        "kubernetes.operator.cluster.health-check.restarts.threshold",
        "64",
    )]);
    let bad = "Restart count hit threshold: 64";
    for (observations, expected, baseline) in [
        (vec![seen(0, 100, 0)], "", (100, 0)),
        (vec![seen(0, 0, 0), seen(1, 64, 0)], "", (0, 0)),
        (vec![seen(0, 0, 0), seen(1, 65, 0)], bad, (0, 0)),
        (vec![seen(0, 0, 0), seen(2, 65, 0)], bad, (0, 0)),
        // Within five minutes, 162 are 64.8 in two.
        (vec![seen(0, 0, 0), seen(5, 162, 0)], "", (162, 5)),
        (vec![seen(0, 0, 0), seen(5, 163, 0)], bad, (163, 5)),
        // Slowly, but all in one window.
        (
            vec![seen(0, 0, 0), seen(1, 40, 0), seen(2, 70, 0)],
            bad,
            (0, 0),
        ),
        // The window begins anew.
        (
            vec![seen(0, 0, 0), seen(3, 70, 0), seen(4, 130, 0)],
            "",
            (70, 3),
        ),
        // Another JobManager.
        (vec![seen(0, 500, 0), seen(1, 3, 0)], "", (3, 1)),
        (vec![seen(0, 0, 0), seen(0, 65, 0)], bad, (0, 0)),
    ] {
        let (health, error) = after(&observations, &limits);
        assert_eq!(error, expected, "{observations:?}");
        let (n_restarts, minutes) = baseline;
        assert_eq!(health.num_restarts, n_restarts, "{observations:?}");
        let at_ms = START + minutes * MINUTE;
        assert_eq!(
            health.num_restarts_evaluation_time_stamp, at_ms,
            "{observations:?}"
        );
    }
}

#[test]
fn a_checkpoint_must_complete_within_its_window() {
    let limits = limits(&[
        ("execution.checkpointing.interval", "1 min"),
        ("execution.checkpointing.timeout", "2 min"),
    ]);
    assert_eq!(limits.checkpoint_window, Some(SignedDuration::from_mins(4)));
    let bad = "Cluster is not able to complete checkpoints";
    for (observations, expected, increased) in [
        (vec![seen(0, 0, 0), seen(4, 0, 0)], "", 0),
        (vec![seen(0, 0, 0), seen(5, 0, 0)], bad, 0),
        (vec![seen(0, 0, 0), seen(5, 0, 1)], "", 5),
        (vec![seen(0, 0, 1), seen(4, 0, 2), seen(8, 0, 2)], "", 4),
        (vec![seen(0, 0, 1), seen(4, 0, 2), seen(9, 0, 2)], bad, 4),
        // Another JobManager.
        (vec![seen(0, 0, 9), seen(5, 0, 1)], "", 5),
        (vec![seen(0, 0, 0), seen(5, 0, 0), seen(6, 0, 1)], "", 6),
    ] {
        let (health, error) = after(&observations, &limits);
        assert_eq!(error, expected, "{observations:?}");
        let at_ms = START + increased * MINUTE;
        let found = health.num_completed_checkpoints_increased_time_stamp;
        assert_eq!(found, at_ms, "{observations:?}");
    }
}

#[test]
fn both_errors_are_joined() {
    let limits = limits(&[("execution.checkpointing.interval", "1 s")]);
    let observations = [seen(0, 0, 0), seen(21, 10_000, 0)];
    let (_, error) = after(&observations, &limits);
    let expected = "Restart count hit threshold: 64|Cluster is not able to complete checkpoints";
    assert_eq!(error, expected);
}

#[test]
fn the_window_of_checkpoints_covers_the_ones_that_may_fail() {
    let on = ("execution.checkpointing.interval", "10 min");
    let window = "kubernetes.operator.cluster.health-check.checkpoint-progress.window";
    let tolerable = ("execution.checkpointing.tolerable-failed-checkpoints", "3");
    let off = (
        "kubernetes.operator.cluster.health-check.checkpoint-progress.enabled",
        "false",
    );
    for (pairs, expected) in [
        (vec![], None),
        (vec![("execution.checkpointing.interval", "0")], None),
        (vec![on], Some(20)),
        (vec![on, tolerable], Some(50)),
        (vec![on, (window, "21 min")], Some(21)),
        (vec![on, (window, "19 min")], Some(20)),
        (
            vec![on, ("execution.checkpointing.timeout", "1 h")],
            Some(120),
        ),
        (vec![(window, "5 min")], Some(20)),
        (vec![on, off, (window, "21 min")], None),
    ] {
        let found = limits(&pairs).checkpoint_window;
        assert_eq!(found, expected.map(SignedDuration::from_mins), "{pairs:?}");
    }
    let defaults = limits(&[]);
    assert_eq!(defaults.restarts_window, SignedDuration::from_mins(2));
    assert_eq!(defaults.max_restarts, 64);
    assert!(HealthLimits::of(&config(&[(window, "soon")])).is_err());
}

#[test]
fn health_survives_in_the_status_as_upstream_writes_it() {
    let first = ClusterHealth::first(&seen(0, 1, 2));
    let text = first.to_text();
    let expected = concat!(
        r#"{"timeStamp":1700000000000,"numRestarts":1,"numRestartsEvaluationTimeStamp":1700000000000,"#,
        r#""numCompletedCheckpoints":2,"numCompletedCheckpointsIncreasedTimeStamp":1700000000000,"#,
        r#""healthResult":{"healthy":true,"error":null}}"#,
    );
    assert_eq!(text, expected);
    let next = first.next(&seen(1, 1, 2), &limits(&[])).unwrap();
    assert!(
        next.to_text()
            .ends_with(r#""healthResult":{"healthy":true,"error":""}}"#)
    );
    let info = BTreeMap::from([(CLUSTER_INFO_KEY.to_owned(), text)]);
    assert_eq!(ClusterHealth::read(&info).unwrap(), Some(first));
    assert_eq!(ClusterHealth::read(&BTreeMap::new()).unwrap(), None);
    let broken = BTreeMap::from([(CLUSTER_INFO_KEY.to_owned(), "x".to_owned())]);
    assert!(ClusterHealth::read(&broken).is_err());
}

#[test]
fn an_older_observation_is_an_error() {
    let health = ClusterHealth::first(&seen(1, 0, 0));
    let error = health.next(&seen(0, 0, 0), &limits(&[])).unwrap_err();
    let expected = "cluster health was last observed 60000 ms after now: expected the clock to go forward; set the clock, \
                    or wait";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn the_newer_metric_of_restarts_wins() {
    let metrics = |pairs: &[(&str, &str)]| {
        let pairs = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        pairs.collect::<BTreeMap<String, String>>()
    };
    let completed = ("numberOfCompletedCheckpoints", "7");
    for (pairs, expected) in [
        (
            vec![("numRestarts", "2"), ("fullRestarts", "3"), completed],
            Ok((2, 7)),
        ),
        (vec![("fullRestarts", "3"), completed], Ok((3, 7))),
        (vec![completed], Err("numRestarts")),
        (
            vec![("numRestarts", "2")],
            Err("numberOfCompletedCheckpoints"),
        ),
        (
            vec![("numRestarts", "NaN"), ("fullRestarts", "3"), completed],
            Err("numRestarts"),
        ),
    ] {
        let found = Observation::of(&metrics(&pairs), START);
        let found = found.map(|it| (it.n_restarts, it.n_completed_checkpoints));
        assert_eq!(found.map_err(|error| error.metric), expected, "{pairs:?}");
    }
}
