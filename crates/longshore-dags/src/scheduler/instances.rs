//! The task instances of a run: one for each task, or for a mapped task as many as it has map indexes.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use longshore_store::{TaskInstance, TaskKey};
use serde_json::Value;

use super::shape::Shape;
use crate::pods::template::Results;

/// The map index of a task that is not mapped, or whose length is not known yet.
pub const UNMAPPED: i32 = -1;

/// Which task instance of a run. In the order of the tasks' numbers, and of the map indexes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceKey {
    /// The task.
    pub task_id: String,
    /// The map index.
    pub map_index: i32,
}

impl InstanceKey {
    /// The instance of a task that is not mapped.
    pub fn unmapped(task_id: impl Into<String>) -> Self {
        Self {
            task_id: task_id.into(),
            map_index: UNMAPPED,
        }
    }
}

impl From<&TaskKey> for InstanceKey {
    fn from(key: &TaskKey) -> Self {
        Self {
            task_id: key.task_id.clone(),
            map_index: key.map_index,
        }
    }
}

/// The task instances of a run. Each task of its DAG has at least one.
pub type Instances = BTreeMap<InstanceKey, Arc<TaskInstance>>;

/// What tasks left that are not mapped: pods read no other results.
impl Results for Instances {
    fn result(&self, task_id: &str) -> Option<&Value> {
        self.get(&InstanceKey::unmapped(task_id))?.result.as_ref()
    }

    fn note(&self, task_id: &str) -> Option<&str> {
        let row = self.get(&InstanceKey::unmapped(task_id))?;
        row.result_note.as_deref()
    }
}

/// The instances of one task, in the order of their map indexes.
pub fn of_task<'a>(
    instances: &'a Instances,
    task_id: &str,
) -> impl Iterator<Item = &'a Arc<TaskInstance>> {
    let at = |map_index| InstanceKey {
        task_id: task_id.to_owned(),
        map_index,
    };
    let range = instances.range(at(i32::MIN)..=at(i32::MAX));
    range.map(|(_, row)| row)
}

/// Where the instances of each task are among the task instances of a run, which are in the order of [`InstanceKey`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Each task has one instance, whose place is the number of the task.
    OneEach,
    /// Some task has more, or has a map index.
    Mapped {
        /// The task of each instance, by number.
        task_of: Vec<usize>,
        /// Where the instances of each task begin; at the end the number of all instances.
        first: Vec<usize>,
    },
}

impl Layout {
    /// The layout of these instances of the DAG of this shape. Costs nothing where no task is mapped.
    pub(crate) fn of(instances: &Instances, shape: &Shape) -> Self {
        let n_tasks = shape.upstream.len();
        if instances.len() == n_tasks {
            return Self::OneEach;
        }
        let number = |key: &InstanceKey| shape.numbers.get(&key.task_id).copied();
        let task_of: Vec<usize> = instances.keys().filter_map(number).collect();
        let begin = |task| task_of.partition_point(|&of| of < task);
        let first = (0..=n_tasks).map(begin).collect();
        Self::Mapped { task_of, first }
    }

    /// The number of the task of an instance.
    pub(crate) fn task_of(&self, instance: usize) -> usize {
        match self {
            Self::OneEach => instance,
            Self::Mapped { task_of, .. } => task_of[instance],
        }
    }

    /// The places of the instances of a task.
    pub(crate) fn instances(&self, task: usize) -> Range<usize> {
        match self {
            Self::OneEach => task..task + 1,
            Self::Mapped { first, .. } => first[task]..first[task + 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use longshore_store::RunKey;
    use uuid::Uuid;

    use super::*;
    use crate::model::Dag;

    fn instances(keys: &[(&str, i32)]) -> Instances {
        let run = RunKey {
            dag_id: "d".to_owned(),
            run_id: "r".to_owned(),
        };
        let row = |&(task_id, map_index): &(&str, i32)| {
            let mut row = TaskInstance::new(Uuid::nil(), run.task(task_id));
            row.key.map_index = map_index;
            (InstanceKey::from(&row.key), Arc::new(row))
        };
        keys.iter().map(row).collect()
    }

    fn shape() -> Shape {
        let text =
            "dag_id: d\ntasks:\n  a: {command: [x]}\n  b: {command: [x]}\n  ba: {command: [x]}\n";
        let document = crate::document::parse("d.yaml", text).unwrap();
        let dag: Dag = document
            .validate(&mut |_| unreachable!("the DAG has no files"))
            .unwrap();
        Shape::of(&dag)
    }

    #[test]
    fn instances_are_found_by_their_task_and_tasks_by_their_instance() {
        type Case = (&'static [(&'static str, i32)], [Range<usize>; 3]);
        let cases: [Case; 4] = [
            (&[("a", -1), ("b", -1), ("ba", -1)], [0..1, 1..2, 2..3]),
            (
                &[("a", -1), ("b", 0), ("b", 1), ("b", 10), ("ba", -1)],
                [0..1, 1..4, 4..5],
            ),
            (
                &[("a", 1), ("a", 0), ("b", -1), ("ba", 0), ("ba", 1)],
                [0..2, 2..3, 3..5],
            ),
            // One instance, which is mapped.
            (&[("a", 0), ("b", -1), ("ba", -1)], [0..1, 1..2, 2..3]),
        ];
        for (keys, expected) in cases {
            let instances = instances(keys);
            let layout = Layout::of(&instances, &shape());
            let tasks = ["a", "b", "ba"];
            for (task, expected) in expected.into_iter().enumerate() {
                assert_eq!(layout.instances(task), expected, "{keys:?}");
                for instance in expected.clone() {
                    assert_eq!(layout.task_of(instance), task, "{keys:?}");
                }
                let rows: Vec<_> = instances.values().collect();
                let of_task: Vec<_> = of_task(&instances, tasks[task]).collect();
                assert_eq!(of_task, rows[expected], "{keys:?}");
            }
        }
    }
}
