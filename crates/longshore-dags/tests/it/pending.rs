//! What keeps the pods of queued tasks from their start is told to those who follow the run.

use longshore_dags::{Change, StateChange};

use crate::world::{RUN_ID, World, undisturbed};

const NO_IMAGE: &str = "
dag_id: no_image
tasks:
  a: {command: [x], env: {SCRIPT: waiting ErrImagePull}}
  b: {command: [x], env: {SCRIPT: run 1s}}
";

#[tokio::test(start_paused = true)]
async fn a_pod_without_an_image_says_so_while_its_task_is_queued() {
    let world = World::new(NO_IMAGE).await;
    let dags = world.start(&undisturbed()).await;
    let mut changes = dags.changes();
    let run = world.request(&dags, RUN_ID).await;
    dags.ended(&run).await.unwrap();
    let mut told = Vec::new();
    while let Ok(StateChange { change, .. }) = changes.try_recv() {
        if let Change::Pending {
            task_id, message, ..
        } = change
        {
            told.push((task_id, message.unwrap_or_default()));
        }
    }
    let (task_id, message) = &told[0];
    assert_eq!(task_id, "a");
    assert!(message.starts_with("ErrImagePull"), "{told:?}");
    assert!(told.iter().all(|(task_id, _)| task_id == "a"), "{told:?}");
}
