//! XComs, variables, connections, and the store of a task instance.

use std::{num::NonZeroU64, sync::Arc};

use futures::{StreamExt, stream, stream::BoxStream};
use longshore_airflow::api::{
    ApiError, XComAddress,
    query::{SetXComQuery, SliceQuery, VariableKeysQuery, XComQuery},
    store::{Connection, TaskStorePut, Variable, VariableKeys, VariablePut},
};
use longshore_airflow_api::{JsonText, StateError, StateResult};
use longshore_store::{
    FromTry, RunKey, Sealed, Shared, StoreError, StoredVariable, TellError, XCom, XComKey,
};
use serde_json::Value;
use uuid::Uuid;

use super::{Execution, unavailable};

impl Execution {
    pub(super) async fn find_xcom(
        &self,
        at: &XComAddress,
        query: XComQuery,
    ) -> StateResult<Option<JsonText>> {
        if let Some(place) = query.offset {
            return self.at_place(at, place).await;
        }
        let (told, key) = (&self.store.told, xcom_key(at));
        let found = if query.include_prior_dates {
            told.xcom_of_this_or_earlier_runs(&key, query.map_index)
                .await
        } else {
            told.xcom(&key, query.map_index).await
        };
        Ok(found.map_err(unavailable)?.map(JsonText::stored))
    }

    pub(super) async fn n_xcoms(&self, at: &XComAddress) -> StateResult<u64> {
        let n = self.store.told.count_xcoms(&xcom_key(at)).await;
        n.map_err(unavailable)
    }

    /// The value at a place; a negative one counts from the end.
    pub(super) async fn at_place(
        &self,
        at: &XComAddress,
        place: i64,
    ) -> StateResult<Option<JsonText>> {
        let place = match u64::try_from(place) {
            Ok(place) => place,
            Err(_) => {
                let n = self.n_xcoms(at).await?;
                let from_end = NonZeroU64::new(place.unsigned_abs());
                match from_end.and_then(|back| n.checked_sub(back.get())) {
                    Some(place) => place,
                    None => return Ok(None),
                }
            }
        };
        let found = self.store.told.xcoms(&xcom_key(at), place, 1).await;
        let found = found.map_err(unavailable)?.into_iter().next();
        Ok(found.map(JsonText::stored))
    }

    /// The values are read one after the other, while they are sent. One that is gone by then ends the list.
    pub(super) async fn slice(
        &self,
        at: XComAddress,
        slice: SliceQuery,
    ) -> StateResult<BoxStream<'static, StateResult<JsonText>>> {
        let mut key = xcom_key(&at);
        if slice.include_prior_dates {
            let run = self.store.asked.latest_run_with_xcom(&key).await;
            key.run = run.map_err(unavailable)?.unwrap_or(key.run);
        }
        let n = self
            .store
            .told
            .count_xcoms(&key)
            .await
            .map_err(unavailable)?;
        let places = slice.places(usize::try_from(n).unwrap_or(usize::MAX));
        let told = Arc::clone(&self.store.told);
        let values = stream::iter(places).then(move |place| {
            let (told, key) = (Arc::clone(&told), key.clone());
            async move {
                let place = u64::try_from(place).unwrap_or(u64::MAX);
                told.xcoms(&key, place, 1).await
            }
        });
        Ok(values
            .map(|found| match found {
                Ok(values) => values.into_iter().next().map(|it| Ok(JsonText::stored(it))),
                Err(error) => Some(Err(unavailable(error))),
            })
            .take_while(|found| std::future::ready(found.is_some()))
            .filter_map(std::future::ready)
            .boxed())
    }

    /// A run that is not there refuses the value.
    pub(super) async fn write_xcom(
        &self,
        caller: Uuid,
        at: XComAddress,
        query: SetXComQuery,
        value: &JsonText,
    ) -> StateResult<()> {
        let length = query.mapped_length.and_then(|it| u32::try_from(it).ok());
        let told = self.store.told.tell(
            caller,
            FromTry::XCom(XCom {
                key: xcom_key(&at),
                map_index: query.map_index,
                value: value.as_str().into(),
                mapped_length: length,
                is_dag_result: query.dag_result,
                written_at: self.now(),
            }),
        );
        match told.await {
            Ok(_) => Ok(()),
            Err(TellError::Unknown { .. }) => Err(ApiError::no_task_instance().into()),
            Err(TellError::Earlier { .. }) => Err(ApiError::archived_task_instance().into()),
            Err(TellError::Store(StoreError::Conflict { .. })) => {
                Err(ApiError::no_dag_run(&at.dag_id, &at.run_id).into())
            }
            Err(TellError::Store(error)) => Err(unavailable(error)),
        }
    }

    pub(super) async fn remove_xcom(
        &self,
        caller: Uuid,
        at: &XComAddress,
        map_index: i32,
    ) -> StateResult<()> {
        let key = xcom_key(at);
        self.tell(caller, FromTry::NoXCom { key, map_index }).await
    }

    pub(super) async fn find_variable(&self, key: &str) -> StateResult<Option<Variable>> {
        let found = self.store.told.variable(key).await.map_err(unavailable)?;
        found
            .map(|found| {
                Ok(Variable {
                    value: Some(self.open(&found.value)?),
                    key: found.key,
                })
            })
            .transpose()
    }

    pub(super) async fn keys_of_variables(
        &self,
        query: VariableKeysQuery,
    ) -> StateResult<VariableKeys> {
        let prefix = query.prefix.unwrap_or_default();
        let (from, limit) = (query.offset, query.limit);
        let page = self.store.told.variable_keys(&prefix, from, limit).await;
        let page = page.map_err(unavailable)?;
        Ok(VariableKeys {
            keys: page.keys,
            total_entries: page.n_all,
        })
    }

    /// A value that is null is the text that Python makes of it, as upstream stores it.
    pub(super) async fn write_variable(
        &self,
        caller: Uuid,
        key: String,
        put: VariablePut,
    ) -> StateResult<()> {
        let value = put.val.unwrap_or_else(|| "None".to_owned());
        let sealed = self.secrets.seal(&value, self.now());
        let variable = Shared::Variable(StoredVariable {
            key,
            value: sealed.map_err(StateError::unavailable)?,
            description: put.description,
        });
        self.tell(caller, FromTry::Shared(variable)).await
    }

    pub(super) async fn remove_variable(&self, caller: Uuid, key: &str) -> StateResult<()> {
        let gone = Shared::NoVariable(key.to_owned());
        self.tell(caller, FromTry::Shared(gone)).await
    }

    pub(super) async fn find_connection(&self, id: &str) -> StateResult<Option<Connection>> {
        let found = self.store.told.connection(id).await.map_err(unavailable)?;
        let Some(found) = found else {
            return Ok(None);
        };
        let open = |sealed: Option<&Sealed>| sealed.map(|it| self.open(it)).transpose();
        Ok(Some(Connection {
            password: open(found.password.as_ref())?,
            extra: open(found.extra.as_ref())?,
            conn_id: found.conn_id,
            conn_type: found.conn_type,
            host: found.host,
            schema: found.schema,
            login: found.login,
            port: found.port,
        }))
    }

    fn open(&self, sealed: &Sealed) -> StateResult<String> {
        self.secrets.open(sealed).map_err(StateError::unavailable)
    }

    pub(super) async fn kept_value(&self, id: Uuid, key: &str) -> StateResult<Option<Value>> {
        let found = self.store.told.task_state(id, key, self.now()).await;
        let found = found.map_err(unavailable)?;
        let read = |text: Arc<str>| serde_json::from_str(&text).map_err(StateError::unavailable);
        found.map(read).transpose()
    }

    pub(super) async fn keep_value(
        &self,
        id: Uuid,
        key: String,
        put: TaskStorePut,
    ) -> StateResult<()> {
        let state = FromTry::State {
            key,
            value: put.value.to_string().into(),
            expires_at: put.expires_at.map(|at| at.0),
        };
        self.tell(id, state).await
    }

    pub(super) async fn forget_values(&self, id: Uuid, key: Option<&str>) -> StateResult<()> {
        self.tell(id, FromTry::NoState(key.map(str::to_owned)))
            .await
    }
}

fn xcom_key(at: &XComAddress) -> XComKey {
    XComKey {
        run: RunKey {
            dag_id: at.dag_id.clone(),
            run_id: at.run_id.clone(),
        },
        task_id: at.task_id.clone(),
        key: at.key.clone(),
    }
}
