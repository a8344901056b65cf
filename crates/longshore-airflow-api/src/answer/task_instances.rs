//! Questions about task instances.

use longshore_airflow::api::{
    ApiError, StoreRequest, TaskInstanceRequest,
    store::{MAX_STORE_VALUE, StoreValue, TaskStorePut},
    task_instance::{MAX_RETRY_REASON, Message, StateUpdate},
};
use serde_json::Value;
use uuid::Uuid;

use super::Question;
use crate::{
    reply::Reply,
    state::{Change, StateResult},
};

impl Question<'_> {
    pub(super) async fn of_task_instance(
        &self,
        id: Uuid,
        request: TaskInstanceRequest,
    ) -> StateResult<Reply> {
        use TaskInstanceRequest as R;
        let state = self.state;
        match request {
            R::Run(start) => self.json(&state.run(id, start).await?),
            R::State(update) => match state.change_state(id, shortened(update)).await? {
                Change::Done => Ok(Reply::Empty),
                Change::Already => Ok(Reply::Already),
            },
            R::SkipDownstream(skip) => self.done(state.skip_downstream(id, skip).await),
            R::Heartbeat(worker) => self.done(state.heartbeat(id, worker).await),
            R::RenderedFields(fields) => {
                state.set_rendered_fields(id, fields).await?;
                self.json(&Message::rendered_fields_set())
            }
            R::RenderedMapIndex(name) if name.is_empty() => {
                Err(ApiError::empty_rendered_map_index().into())
            }
            R::RenderedMapIndex(name) => self.done(state.set_rendered_map_index(id, name).await),
            R::PreviousSuccessfulRun => self.json(&state.previous_successful_run(id).await?),
            R::InactiveAssets => self.json(&state.inactive_assets(id).await?),
            R::AskHuman(question) => self.json(&state.ask_human(id, question).await?),
            R::AnswerForHuman(answer) => self.json(&state.answer_for_human(id, answer).await?),
            R::HumanAnswer => self.json(&state.human_answer(id).await?),
        }
    }

    pub(super) async fn of_task_store(
        &self,
        id: Uuid,
        request: StoreRequest<TaskStorePut>,
    ) -> StateResult<Reply> {
        let state = self.state;
        match request {
            StoreRequest::Get(key) => {
                let value = state.task_store_value(id, &key).await?;
                self.found(value.map(|value| StoreValue { value }), || {
                    ApiError::no_store_key("Task state store", &key)
                })
            }
            StoreRequest::Put(key, put) => {
                bound(&put.value)?;
                self.done(state.put_task_store_value(id, key, put).await)
            }
            StoreRequest::Delete(key) => self.done(state.delete_task_store_value(id, &key).await),
            StoreRequest::Clear => self.done(state.clear_task_store(id).await),
        }
    }
}

/// Refuses a value that is too long for a store.
pub(super) fn bound(value: &Value) -> Result<(), ApiError> {
    if value.to_string().len() > MAX_STORE_VALUE {
        Err(ApiError::store_value_too_large())
    } else {
        Ok(())
    }
}

/// Cuts the reason of a retry policy, as upstream.
fn shortened(mut update: StateUpdate) -> StateUpdate {
    if let StateUpdate::Retry(retry) = &mut update
        && let Some(reason) = &mut retry.retry_reason
        && let Some((end, _)) = reason.char_indices().nth(MAX_RETRY_REASON)
    {
        reason.truncate(end);
    }
    update
}
