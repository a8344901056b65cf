//! Questions about XComs. Their values stay the texts that they came as.

use bytes::Bytes;
use longshore_airflow::api::{
    ApiError, XComAddress, XComRequest, query::SetXComQuery, task_instance::Message,
};
use serde_json::Value;

use super::Question;
use crate::{json_text::JsonText, reply::Reply, state::StateResult};

impl Question<'_> {
    pub(super) async fn of_xcom(
        &self,
        xcom: XComAddress,
        request: XComRequest,
        body: Bytes,
    ) -> StateResult<Reply> {
        let state = self.state;
        match request {
            XComRequest::Get(query) => {
                let which = match query.offset {
                    Some(offset) => format!("offset={offset}"),
                    None => format!("map_index={}", query.map_index),
                };
                let value = state.xcom(&xcom, query).await?;
                let value = value.ok_or_else(|| missing(&xcom, &which))?;
                // The object of the schema `XComResponse`, which is the same in all versions.
                let head = format!("{{\"key\":{},\"value\":", Value::from(xcom.key.as_str()));
                Ok(Reply::Pieces(vec![
                    head.into(),
                    value.bytes(),
                    Bytes::from_static(b"}"),
                ]))
            }
            XComRequest::Head { map_index: Some(_) } => Err(ApiError::map_index_in_head().into()),
            XComRequest::Head { map_index: None } => {
                Ok(Reply::MapIndexes(state.count_xcoms(&xcom).await?))
            }
            XComRequest::Item(place) => {
                let value = state.xcom_item(&xcom, place).await?;
                let value = value.ok_or_else(|| missing(&xcom, &format!("offset={place}")))?;
                Ok(Reply::Json(value.bytes()))
            }
            XComRequest::Slice(slice) => Ok(Reply::List(state.xcom_slice(xcom, slice).await?)),
            XComRequest::Set(query) => {
                self.bound_length(&query)?;
                let value = JsonText::of_checked(body);
                state.set_xcom(self.caller, xcom, query, value).await?;
                self.json(&Message::xcom_set())
            }
            XComRequest::Delete { map_index } => {
                state.delete_xcom(self.caller, &xcom, map_index).await?;
                self.json(&Message::xcom_deleted(&xcom.key))
            }
        }
    }

    /// Refuses a value that is too long to map over.
    fn bound_length(&self, query: &SetXComQuery) -> Result<(), ApiError> {
        let length = query
            .mapped_length
            .and_then(|length| u64::try_from(length).ok());
        match length {
            Some(length) if length > self.max_map_length => Err(ApiError::unmappable_length()),
            Some(_) | None => Ok(()),
        }
    }
}

fn missing(xcom: &XComAddress, which: &str) -> ApiError {
    let XComAddress {
        dag_id,
        run_id,
        task_id,
        key,
    } = xcom;
    ApiError::no_xcom(key, which, task_id, run_id, dag_id)
}
