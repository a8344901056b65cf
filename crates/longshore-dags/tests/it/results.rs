//! Results that are not taken: the row of the task says why, and so does the failure of a task that reads the result.

use longshore_store::TaskState;

use crate::world::{RUN_ID, World, undisturbed};

const READS: &str = "
dag_id: results
tasks:
  none: {command: [x], env: {SCRIPT: run 1s}}
  text: {command: [x], env: {SCRIPT: run 1s message plain}}
  u1: {command: [x, '{{ xcom.none }}'], depends_on: none}
  u2: {command: [x, '{{ xcom.text }}'], depends_on: text}
";

#[tokio::test(start_paused = true)]
async fn a_result_that_was_not_taken_is_named_with_the_reason() {
    let world = World::new(READS).await;
    let dags = world.start(&undisturbed()).await;
    let run = world.request(&dags, RUN_ID).await;
    dags.ended(&run).await.unwrap();
    let (_, rows) = world.rows(&run).await;
    let row = |id: &str| rows.iter().find(|row| row.key.task_id == id).unwrap();
    let message = |id: &str| row(id).failure.as_ref().unwrap().message.as_str();
    assert_eq!(row("none").result_note, None);
    assert_eq!(row("text").state, Some(TaskState::Success));
    let note = row("text").result_note.as_deref().unwrap();
    assert!(note.starts_with("the result is not JSON: "), "{note}");
    let told = message("u1");
    assert!(
        told.contains("needs the result of task `none`, but the task left none"),
        "{told}"
    );
    let told = message("u2");
    assert!(
        told.contains("of task `text`, but it was not taken: the result is not JSON"),
        "{told}"
    );
    drop(dags);
}
