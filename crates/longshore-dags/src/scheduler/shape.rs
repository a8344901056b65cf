//! What the scheduler needs of a DAG in each round, by number instead of by name.

use crate::model::Dag;

/// The graph of a DAG. A task's number is its place among the task ids in order, which is also its place in
/// [`ActiveRun::tasks`](super::board::ActiveRun::tasks).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The tasks that each task waits for.
    pub upstream: Vec<Vec<usize>>,
    /// The tasks that wait for each task.
    pub downstream: Vec<Vec<usize>>,
    /// All tasks, each one after everything that it waits for.
    pub order: Vec<usize>,
}

impl Shape {
    /// The graph of this DAG. Linear in its tasks and edges.
    pub fn of(dag: &Dag) -> Self {
        todo!("{dag:?}")
    }
}
