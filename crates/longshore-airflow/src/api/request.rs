//! Every request of the Execution API that the task SDK sends, read and checked.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{
    dag_run::TriggerDagRun,
    query::{
        AssetSelector, EventFilter, PreviousRunQuery, PreviousTaskInstanceQuery, RunFilter,
        SetXComQuery, SliceQuery, TaskInstanceFilter, VariableKeysQuery, XComQuery,
    },
    store::{ConnectionTestResult, HitlRequest, HitlUpdate, StoreValue, TaskStorePut, VariablePut},
    task_instance::{EnterRunning, HeartbeatInfo, SkipDownstream, StateUpdate},
};

/// A request, whose path, query and body are valid.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// `GET /health`, `GET /health/ping`.
    Health,
    /// About the task instance of this id, whose token must be that of the request.
    TaskInstance(Uuid, TaskInstanceRequest),
    /// `GET /task-instances/count`.
    CountTaskInstances(TaskInstanceFilter),
    /// `GET /task-instances/states`.
    TaskStates(TaskInstanceFilter),
    /// `GET /task-instances/breadcrumbs`.
    Breadcrumbs {
        /// The DAG.
        dag_id: String,
        /// The run.
        run_id: String,
    },
    /// `GET /task-instances/previous/{dag_id}/{task_id}`.
    PreviousTaskInstance {
        /// The DAG.
        dag_id: String,
        /// The task.
        task_id: String,
        /// Which one.
        query: PreviousTaskInstanceQuery,
    },
    /// `GET /task-reschedules/{task_instance_id}/start_date`: when the sensor's first look began.
    FirstReschedule(Uuid),
    /// `GET /assets/by-name`, `GET /assets/by-uri`.
    Asset(AssetSelector),
    /// `GET /assets/by-alias`.
    AssetsOfAlias(String),
    /// `GET /asset-events/by-asset`.
    AssetEvents(EventFilter),
    /// `GET /asset-events/by-asset-alias`.
    AliasEvents(EventFilter),
    /// `GET /connection-tests/{id}/connection`.
    TestedConnection(Uuid),
    /// `PATCH /connection-tests/{id}`.
    ConnectionTested(Uuid, ConnectionTestResult),
    /// `GET /connections/{id}`.
    Connection(String),
    /// `GET /dags/{id}`.
    Dag(String),
    /// `GET /dag-runs/{dag_id}/{run_id}`.
    DagRun(RunAddress),
    /// `POST /dag-runs/{dag_id}/{run_id}`.
    TriggerDagRun(RunAddress, TriggerDagRun),
    /// `POST /dag-runs/{dag_id}/{run_id}/clear`.
    ClearDagRun(RunAddress),
    /// `GET /dag-runs/{dag_id}/{run_id}/state`.
    DagRunState(RunAddress),
    /// `GET /dag-runs/count`.
    CountDagRuns(RunFilter),
    /// `GET /dag-runs/previous`, and `GET /dag-runs/{dag_id}/previous` of old clients.
    PreviousDagRun(PreviousRunQuery),
    /// `GET /variables/keys`.
    VariableKeys(VariableKeysQuery),
    /// `GET /variables/{key}`.
    Variable(String),
    /// `PUT /variables/{key}`.
    PutVariable(String, VariablePut),
    /// `DELETE /variables/{key}`.
    DeleteVariable(String),
    /// About the XCom at this address.
    XCom(XComAddress, XComRequest),
    /// About the store of the task instance of this id, whose token must be that of the request.
    TaskStore(Uuid, StoreRequest<TaskStorePut>),
    /// About the store of an asset.
    AssetStore(AssetSelector, StoreRequest<StoreValue>),
}

/// A request about one task instance.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskInstanceRequest {
    /// `PATCH …/run`.
    Run(EnterRunning),
    /// `PATCH …/state`.
    State(StateUpdate),
    /// `PATCH …/skip-downstream`.
    SkipDownstream(SkipDownstream),
    /// `PUT …/heartbeat`.
    Heartbeat(HeartbeatInfo),
    /// `PUT …/rtif`: the rendered template fields, by name.
    RenderedFields(Map<String, Value>),
    /// `PATCH …/rendered-map-index`: the name of a mapped task instance for people.
    RenderedMapIndex(String),
    /// `GET …/previous-successful-dagrun`.
    PreviousSuccessfulRun,
    /// `GET …/validate-inlets-and-outlets`.
    InactiveAssets,
    /// `POST /hitlDetails/{id}`.
    AskHuman(HitlRequest),
    /// `PATCH /hitlDetails/{id}`.
    AnswerForHuman(HitlUpdate),
    /// `GET /hitlDetails/{id}`.
    HumanAnswer,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAddress {
    /// The DAG.
    pub dag_id: String,
    /// The run.
    pub run_id: String,
}

/// The XComs of one key of one task in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XComAddress {
    /// The DAG.
    pub dag_id: String,
    /// The run.
    pub run_id: String,
    /// The task.
    pub task_id: String,
    /// The key, which may hold `/`.
    pub key: String,
}

/// A request about XComs.
#[derive(Clone, Debug, PartialEq)]
pub enum XComRequest {
    /// `GET`.
    Get(XComQuery),
    /// `HEAD`: how many map indexes there are. One of them only is refused with 400.
    Head {
        /// That one.
        map_index: Option<i32>,
    },
    /// `GET …/item/{offset}`: the value at this place; a negative one counts from the end.
    Item(i64),
    /// `GET …/slice`.
    Slice(SliceQuery),
    /// `POST`: the value is the body of the request, null where there is none. It is JSON, and may be large: who reads
    /// the request keeps it as the text that it is.
    Set(SetXComQuery),
    /// `DELETE`: the value of this map index.
    Delete {
        /// -1 of a task that is not mapped.
        map_index: i32,
    },
}

/// A request about a store of values by key.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreRequest<P> {
    /// `GET`.
    Get(String),
    /// `PUT`.
    Put(String, P),
    /// `DELETE` of a key.
    Delete(String),
    /// `DELETE` of all.
    Clear,
}

/// The parts of a request that its route has checked.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    /// Parameters of the path, decoded.
    pub(super) path: Map<String, Value>,
    /// Parameters of the query, in their kinds.
    pub(super) query: Value,
    /// The body; null where there is none, or where it may be anything.
    pub(super) body: Value,
}

/// Reads checked parts. `None` would be a schema that allows what its type does not, which the tests exclude.
pub(super) type Read = fn(Parts) -> Option<Request>;

impl Parts {
    fn text(&self, name: &str) -> Option<String> {
        Some(self.path.get(name)?.as_str()?.to_owned())
    }

    fn task_instance(&self) -> Option<Uuid> {
        Uuid::try_parse(self.path.get("task_instance_id")?.as_str()?).ok()
    }

    fn connection_test(&self) -> Option<Uuid> {
        Uuid::try_parse(self.path.get("connection_test_id")?.as_str()?).ok()
    }

    fn run(&self) -> Option<RunAddress> {
        Some(RunAddress {
            dag_id: self.text("dag_id")?,
            run_id: self.text("run_id")?,
        })
    }

    fn xcom(&self) -> Option<XComAddress> {
        Some(XComAddress {
            dag_id: self.text("dag_id")?,
            run_id: self.text("run_id")?,
            task_id: self.text("task_id")?,
            key: self.text("key")?,
        })
    }

    fn query<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_value(self.query.clone()).ok()
    }

    fn query_text(&self, name: &str) -> Option<String> {
        Some(self.query.get(name)?.as_str()?.to_owned())
    }

    fn body<T: DeserializeOwned>(self) -> Option<T> {
        serde_json::from_value(self.body).ok()
    }

    fn map_index(&self) -> Option<Option<i32>> {
        match self.query.get("map_index").and_then(Value::as_i64) {
            Some(index) => i32::try_from(index).ok().map(Some),
            None => Some(None),
        }
    }
}

pub(super) fn health(_: Parts) -> Option<Request> {
    Some(Request::Health)
}

/// A request about the task instance of the path, with a body.
fn of_task_instance<T: DeserializeOwned>(
    parts: Parts,
    request: impl FnOnce(T) -> TaskInstanceRequest,
) -> Option<Request> {
    let id = parts.task_instance()?;
    Some(Request::TaskInstance(id, request(parts.body()?)))
}

pub(super) fn run(parts: Parts) -> Option<Request> {
    of_task_instance(parts, TaskInstanceRequest::Run)
}

pub(super) fn state(parts: Parts) -> Option<Request> {
    of_task_instance(parts, TaskInstanceRequest::State)
}

pub(super) fn skip_downstream(parts: Parts) -> Option<Request> {
    of_task_instance(parts, TaskInstanceRequest::SkipDownstream)
}

pub(super) fn heartbeat(parts: Parts) -> Option<Request> {
    of_task_instance(parts, TaskInstanceRequest::Heartbeat)
}

pub(super) fn rendered_fields(parts: Parts) -> Option<Request> {
    of_task_instance(parts, TaskInstanceRequest::RenderedFields)
}

pub(super) fn rendered_map_index(parts: Parts) -> Option<Request> {
    of_task_instance(parts, TaskInstanceRequest::RenderedMapIndex)
}

pub(super) fn ask_human(parts: Parts) -> Option<Request> {
    of_task_instance(parts, TaskInstanceRequest::AskHuman)
}

pub(super) fn answer_for_human(parts: Parts) -> Option<Request> {
    of_task_instance(parts, TaskInstanceRequest::AnswerForHuman)
}

pub(super) fn human_answer(parts: Parts) -> Option<Request> {
    let id = parts.task_instance()?;
    Some(Request::TaskInstance(id, TaskInstanceRequest::HumanAnswer))
}

pub(super) fn previous_successful(parts: Parts) -> Option<Request> {
    let request = TaskInstanceRequest::PreviousSuccessfulRun;
    Some(Request::TaskInstance(parts.task_instance()?, request))
}

pub(super) fn inactive_assets(parts: Parts) -> Option<Request> {
    let request = TaskInstanceRequest::InactiveAssets;
    Some(Request::TaskInstance(parts.task_instance()?, request))
}

pub(super) fn count_task_instances(parts: Parts) -> Option<Request> {
    parts.query().map(Request::CountTaskInstances)
}

pub(super) fn task_states(parts: Parts) -> Option<Request> {
    parts.query().map(Request::TaskStates)
}

pub(super) fn breadcrumbs(parts: Parts) -> Option<Request> {
    Some(Request::Breadcrumbs {
        dag_id: parts.query_text("dag_id")?,
        run_id: parts.query_text("run_id")?,
    })
}

pub(super) fn previous_task_instance(parts: Parts) -> Option<Request> {
    Some(Request::PreviousTaskInstance {
        dag_id: parts.text("dag_id")?,
        task_id: parts.text("task_id")?,
        query: parts.query()?,
    })
}

pub(super) fn first_reschedule(parts: Parts) -> Option<Request> {
    parts.task_instance().map(Request::FirstReschedule)
}

/// The asset that a query names.
fn selector(parts: &Parts) -> Option<AssetSelector> {
    let name = parts.query_text("name").map(AssetSelector::Name);
    name.or_else(|| parts.query_text("uri").map(AssetSelector::Uri))
}

pub(super) fn asset(parts: Parts) -> Option<Request> {
    selector(&parts).map(Request::Asset)
}

pub(super) fn assets_of_alias(parts: Parts) -> Option<Request> {
    parts.query_text("alias_name").map(Request::AssetsOfAlias)
}

pub(super) fn asset_events(parts: Parts) -> Option<Request> {
    parts.query().map(Request::AssetEvents)
}

pub(super) fn alias_events(parts: Parts) -> Option<Request> {
    parts.query().map(Request::AliasEvents)
}

pub(super) fn tested_connection(parts: Parts) -> Option<Request> {
    parts.connection_test().map(Request::TestedConnection)
}

pub(super) fn connection_tested(parts: Parts) -> Option<Request> {
    let id = parts.connection_test()?;
    Some(Request::ConnectionTested(id, parts.body()?))
}

pub(super) fn connection(parts: Parts) -> Option<Request> {
    parts.text("connection_id").map(Request::Connection)
}

pub(super) fn dag(parts: Parts) -> Option<Request> {
    parts.text("dag_id").map(Request::Dag)
}

pub(super) fn dag_run(parts: Parts) -> Option<Request> {
    parts.run().map(Request::DagRun)
}

pub(super) fn trigger_dag_run(parts: Parts) -> Option<Request> {
    let run = parts.run()?;
    Some(Request::TriggerDagRun(run, parts.body()?))
}

pub(super) fn clear_dag_run(parts: Parts) -> Option<Request> {
    parts.run().map(Request::ClearDagRun)
}

pub(super) fn dag_run_state(parts: Parts) -> Option<Request> {
    parts.run().map(Request::DagRunState)
}

pub(super) fn count_dag_runs(parts: Parts) -> Option<Request> {
    parts.query().map(Request::CountDagRuns)
}

pub(super) fn previous_dag_run(parts: Parts) -> Option<Request> {
    parts.query().map(Request::PreviousDagRun)
}

pub(super) fn previous_run_of_dag(mut parts: Parts) -> Option<Request> {
    // What is in the path for old clients is in the query for new ones.
    parts.query["dag_id"] = parts.text("dag_id")?.into();
    previous_dag_run(parts)
}

pub(super) fn variable_keys(parts: Parts) -> Option<Request> {
    parts.query().map(Request::VariableKeys)
}

pub(super) fn variable(parts: Parts) -> Option<Request> {
    parts.text("variable_key").map(Request::Variable)
}

pub(super) fn put_variable(parts: Parts) -> Option<Request> {
    let key = parts.text("variable_key")?;
    Some(Request::PutVariable(key, parts.body()?))
}

pub(super) fn delete_variable(parts: Parts) -> Option<Request> {
    parts.text("variable_key").map(Request::DeleteVariable)
}

pub(super) fn xcom_item(parts: Parts) -> Option<Request> {
    let offset = parts.path.get("offset")?.as_i64()?;
    Some(Request::XCom(parts.xcom()?, XComRequest::Item(offset)))
}

pub(super) fn xcom_slice(parts: Parts) -> Option<Request> {
    Some(Request::XCom(
        parts.xcom()?,
        XComRequest::Slice(parts.query()?),
    ))
}

pub(super) fn xcom_head(parts: Parts) -> Option<Request> {
    let map_index = parts.map_index()?;
    Some(Request::XCom(
        parts.xcom()?,
        XComRequest::Head { map_index },
    ))
}

pub(super) fn xcom(parts: Parts) -> Option<Request> {
    Some(Request::XCom(
        parts.xcom()?,
        XComRequest::Get(parts.query()?),
    ))
}

pub(super) fn set_xcom(parts: Parts) -> Option<Request> {
    Some(Request::XCom(
        parts.xcom()?,
        XComRequest::Set(parts.query()?),
    ))
}

pub(super) fn delete_xcom(parts: Parts) -> Option<Request> {
    let map_index = parts.map_index()?.unwrap_or(-1);
    Some(Request::XCom(
        parts.xcom()?,
        XComRequest::Delete { map_index },
    ))
}

pub(super) fn task_store_value(parts: Parts) -> Option<Request> {
    let request = StoreRequest::Get(parts.text("key")?);
    Some(Request::TaskStore(parts.task_instance()?, request))
}

pub(super) fn put_task_store_value(parts: Parts) -> Option<Request> {
    let (id, key) = (parts.task_instance()?, parts.text("key")?);
    Some(Request::TaskStore(
        id,
        StoreRequest::Put(key, parts.body()?),
    ))
}

pub(super) fn delete_task_store_value(parts: Parts) -> Option<Request> {
    let request = StoreRequest::Delete(parts.text("key")?);
    Some(Request::TaskStore(parts.task_instance()?, request))
}

pub(super) fn clear_task_store(parts: Parts) -> Option<Request> {
    Some(Request::TaskStore(
        parts.task_instance()?,
        StoreRequest::Clear,
    ))
}

pub(super) fn asset_store_value(parts: Parts) -> Option<Request> {
    let request = StoreRequest::Get(parts.query_text("key")?);
    Some(Request::AssetStore(selector(&parts)?, request))
}

pub(super) fn put_asset_store_value(parts: Parts) -> Option<Request> {
    let (asset, key) = (selector(&parts)?, parts.query_text("key")?);
    Some(Request::AssetStore(
        asset,
        StoreRequest::Put(key, parts.body()?),
    ))
}

pub(super) fn delete_asset_store_value(parts: Parts) -> Option<Request> {
    let request = StoreRequest::Delete(parts.query_text("key")?);
    Some(Request::AssetStore(selector(&parts)?, request))
}

pub(super) fn clear_asset_store(parts: Parts) -> Option<Request> {
    Some(Request::AssetStore(selector(&parts)?, StoreRequest::Clear))
}
