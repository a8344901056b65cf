//! The id of a try and the name of what it is launched as: both are computed, so that a repeated decision has the same result.

use jiff::Timestamp;
use longshore_core::names;
use longshore_store::{RunKey, TaskInstance, TaskKey};
use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use crate::{airflow::names::pod_name, model::Launcher};

/// The id of a try: a UUIDv7 with the time at which the try was decided, and in place of random bits those of SHA-256
/// over the task instance and the number of the try.
pub fn try_id(now: Timestamp, key: &TaskKey, try_number: u32) -> Uuid {
    let mut hash = Sha256::new();
    for part in [&key.run.dag_id, &key.run.run_id, &key.task_id] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.update(key.map_index.to_be_bytes());
    hash.update(try_number.to_be_bytes());
    uuid_v7(now, hash)
}

/// The id of the try that follows when a task instance is cleared: never the one that it had, even within the same
/// millisecond.
pub fn id_after(now: Timestamp, id: &Uuid) -> Uuid {
    uuid_v7(now, Sha256::new_with_prefix(id.as_bytes()))
}

/// The id of a version of a DAG.
pub fn version_id(now: Timestamp, dag_id: &str, number: u32) -> Uuid {
    let mut hash = Sha256::new_with_prefix(dag_id.as_bytes());
    hash.update([0]);
    hash.update(number.to_be_bytes());
    uuid_v7(now, hash)
}

fn uuid_v7(now: Timestamp, hash: Sha256) -> Uuid {
    let hash = hash.finalize();
    let mut bits = [0; 10];
    bits.copy_from_slice(&hash[..10]);
    let millis = u64::try_from(now.as_millisecond()).unwrap_or(0);
    Builder::from_unix_timestamp_millis(millis, &bits).into_uuid()
}

/// The id of a run that a user triggers without an id: Airflow's `manual__` and the time, to the microsecond.
pub fn manual_run_id(at: Timestamp) -> String {
    format!("manual__{}", at.strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00"))
}

/// The name of the object of the current launch.
pub fn object_name(launcher: Launcher, row: &TaskInstance) -> String {
    let TaskInstance {
        id, key, launch, ..
    } = row;
    match launcher {
        Launcher::Pod => pod_name(&key.run.dag_id, &key.task_id, &id.to_string(), *launch),
        Launcher::TaskAction => {
            format!("{}-{}", action_run(&key.run), action_name(id, *launch))
        }
    }
}

/// The run of a TaskAction: the same for all of a DAG's run.
pub fn action_run(run: &RunKey) -> String {
    // Both ids are free text: without the length, a/b + c and a + b/c would be the same run.
    let RunKey { dag_id, run_id } = run;
    names::hashed('r', &format!("{}/{dag_id}/{run_id}", dag_id.len()))
}

/// The action of a launch.
pub fn action_name(ti_id: &Uuid, launch: u32) -> String {
    names::hashed('a', &format!("{ti_id}/{launch}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_run_is_named_after_its_time() {
        let at = "2026-11-21T10:00:00.000123Z".parse().unwrap();
        assert_eq!(
            manual_run_id(at),
            "manual__2026-11-21T10:00:00.000123+00:00"
        );
    }

    #[test]
    fn the_id_of_a_cleared_task_instance_is_new_even_at_the_same_time() {
        let now = Timestamp::from_millisecond(1_795_256_000_123).unwrap();
        let (first, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let after = id_after(now, &first);
        assert_eq!((after, after.get_version_num()), (id_after(now, &first), 7));
        assert_ne!(after, id_after(now, &other));
        assert_ne!(after, id_after(now, &after));
    }

    #[test]
    fn the_id_of_a_try_is_a_uuid_v7_that_differs_by_every_part_of_the_address() {
        let key = |dag: &str, run: &str, task: &str, map_index| TaskKey {
            run: RunKey {
                dag_id: dag.to_owned(),
                run_id: run.to_owned(),
            },
            task_id: task.to_owned(),
            map_index,
        };
        let now = Timestamp::from_millisecond(1_795_256_000_123).unwrap();
        let id = try_id(now, &key("d", "r", "t", -1), 1);
        assert_eq!(id, try_id(now, &key("d", "r", "t", -1), 1));
        assert_eq!(id.get_version_num(), 7);
        let (seconds, nanos) = id.get_timestamp().unwrap().to_unix();
        assert_eq!((seconds, nanos), (1_795_256_000, 123_000_000));
        for other in [
            try_id(now, &key("d", "r", "t", -1), 2),
            try_id(now, &key("d", "r", "t", 0), 1),
            try_id(now, &key("d", "r", "u", -1), 1),
            try_id(now, &key("d", "s", "t", -1), 1),
            try_id(now, &key("dr", "", "t", -1), 1),
        ] {
            assert_ne!(id, other);
        }
    }
}
