//! The routes of the Execution API: method and path, since and until when, what is asked and what is answered.

use super::{
    request::{self, Read},
    schema::{Life, Schema, ValueKind},
    schemas as s,
    version::ApiVersion,
};

/// Method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `PATCH`.
    Patch,
    /// `DELETE`.
    Delete,
}

impl Method {
    /// The method of this name, which is written in capitals.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let all = [
            Self::Get,
            Self::Head,
            Self::Post,
            Self::Put,
            Self::Patch,
            Self::Delete,
        ];
        all.into_iter().find(|method| method.as_str() == name)
    }

    /// The name, in capitals.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// Whose token a route accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// No token is needed.
    Open,
    /// The token of any running task.
    Task,
    /// The token of the task instance of the path, while it runs.
    SameTask,
    /// The token of the task instance of the path, also the one of its workload.
    SameTaskOrWorkload,
    /// Any token, also the one of a workload.
    TaskOrWorkload,
}

/// A route.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path below `/execution`, as upstream's OpenAPI document writes it.
    pub path: &'static str,
    /// The parameter of the path that may hold `/`.
    pub(super) greedy: Option<&'static str>,
    /// In which versions it exists.
    pub life: Life,
    /// Whose token it accepts.
    pub access: Access,
    /// Its query.
    pub query: &'static Schema,
    /// Its body.
    pub body: Option<ValueKind>,
    /// The status of success.
    pub status: u16,
    /// The body of success, where it has a schema.
    pub answer: Option<ValueKind>,
    /// Reads the checked parts.
    pub(super) read: Read,
}

const fn route(method: Method, path: &'static str, access: Access, read: Read) -> Route {
    Route {
        method,
        path,
        greedy: None,
        life: Life::Always,
        access,
        query: &s::NO_QUERY,
        body: None,
        status: 200,
        answer: None,
        read,
    }
}

impl Route {
    const fn query(self, query: &'static Schema) -> Self {
        Self { query, ..self }
    }

    const fn body(self, kind: ValueKind) -> Self {
        Self {
            body: Some(kind),
            ..self
        }
    }

    const fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    const fn answer(self, kind: ValueKind) -> Self {
        Self {
            answer: Some(kind),
            ..self
        }
    }

    const fn greedy(self, parameter: &'static str) -> Self {
        Self {
            greedy: Some(parameter),
            ..self
        }
    }

    const fn since(self, version: ApiVersion) -> Self {
        Self {
            life: Life::Since(version),
            ..self
        }
    }

    const fn before(self, version: ApiVersion) -> Self {
        Self {
            life: Life::Before(version),
            ..self
        }
    }
}

use Access::{Open, SameTask, SameTaskOrWorkload, Task, TaskOrWorkload};
use ApiVersion::{V2026_04_06, V2026_06_30};
use Method::{Delete, Get, Head, Patch, Post, Put};
use ValueKind::{Json, List, Map, Nullable, Object, Text};

const XCOM: &str = "/xcoms/{dag_id}/{run_id}/{task_id}/{key}";

/// All routes. Of two that match a path, the first counts.
pub const ROUTES: &[Route] = &[
    route(Get, "/health", Open, request::health).answer(Map),
    route(Get, "/health/ping", Open, request::health),
    // Task instances.
    route(
        Patch,
        "/task-instances/{task_instance_id}/run",
        SameTaskOrWorkload,
        request::run,
    )
    .body(Object(&s::ENTER_RUNNING))
    .answer(Object(&s::RUN_CONTEXT)),
    route(
        Patch,
        "/task-instances/{task_instance_id}/state",
        SameTask,
        request::state,
    )
    .body(s::STATE_UPDATE)
    .status(204),
    route(
        Patch,
        "/task-instances/{task_instance_id}/skip-downstream",
        SameTask,
        request::skip_downstream,
    )
    .body(Object(&s::SKIP_DOWNSTREAM))
    .status(204),
    route(
        Put,
        "/task-instances/{task_instance_id}/heartbeat",
        SameTask,
        request::heartbeat,
    )
    .body(Object(&s::HEARTBEAT))
    .status(204),
    route(
        Put,
        "/task-instances/{task_instance_id}/rtif",
        SameTask,
        request::rendered_fields,
    )
    .body(Map)
    .status(201),
    route(
        Patch,
        "/task-instances/{task_instance_id}/rendered-map-index",
        SameTask,
        request::rendered_map_index,
    )
    .body(Text)
    .status(204),
    route(
        Get,
        "/task-instances/{task_instance_id}/previous-successful-dagrun",
        SameTask,
        request::previous_successful,
    )
    .answer(Object(&s::PREVIOUS_SUCCESSFUL)),
    route(
        Get,
        "/task-instances/{task_instance_id}/validate-inlets-and-outlets",
        SameTask,
        request::inactive_assets,
    )
    .answer(Object(&s::INACTIVE_ASSETS)),
    route(
        Get,
        "/task-instances/count",
        Task,
        request::count_task_instances,
    )
    .query(&s::COUNT_TASK_INSTANCES)
    .answer(ValueKind::Integer),
    route(Get, "/task-instances/states", Task, request::task_states)
        .query(&s::TASK_STATES)
        .answer(Object(&s::STATES)),
    route(
        Get,
        "/task-instances/breadcrumbs",
        Task,
        request::breadcrumbs,
    )
    .query(&s::BREADCRUMBS_OF_RUN)
    .answer(Object(&s::BREADCRUMBS)),
    route(
        Get,
        "/task-instances/previous/{dag_id}/{task_id}",
        Task,
        request::previous_task_instance,
    )
    .query(&s::PREVIOUS_TASK_INSTANCE)
    .answer(Nullable(&Object(&s::PREVIOUS_TI))),
    route(
        Get,
        "/task-reschedules/{task_instance_id}/start_date",
        Task,
        request::first_reschedule,
    )
    .answer(Nullable(&ValueKind::Instant)),
    // Assets.
    route(Get, "/assets/by-name", Task, request::asset)
        .query(&s::BY_NAME)
        .answer(Object(&s::ASSET)),
    route(Get, "/assets/by-uri", Task, request::asset)
        .query(&s::BY_URI)
        .answer(Object(&s::ASSET)),
    route(Get, "/assets/by-alias", Task, request::assets_of_alias)
        .since(V2026_06_30)
        .query(&s::BY_ALIAS)
        .answer(List(&Object(&s::ASSET))),
    route(Get, "/asset-events/by-asset", Task, request::asset_events)
        .query(&s::EVENTS_BY_ASSET)
        .answer(Object(&s::ASSETS_EVENTS)),
    route(
        Get,
        "/asset-events/by-asset-alias",
        Task,
        request::alias_events,
    )
    .query(&s::EVENTS_BY_ALIAS)
    .answer(Object(&s::ASSETS_EVENTS)),
    // Connections.
    route(
        Get,
        "/connection-tests/{connection_test_id}/connection",
        TaskOrWorkload,
        request::tested_connection,
    )
    .since(V2026_06_30)
    .answer(Object(&s::CONNECTION_TEST)),
    route(
        Patch,
        "/connection-tests/{connection_test_id}",
        TaskOrWorkload,
        request::connection_tested,
    )
    .since(V2026_06_30)
    .body(Object(&s::CONNECTION_TEST_RESULT))
    .status(204),
    route(
        Get,
        "/connections/{connection_id}",
        Task,
        request::connection,
    )
    .answer(Object(&s::CONNECTION)),
    // DAGs and runs.
    route(Get, "/dags/{dag_id}", Task, request::dag)
        .since(V2026_04_06)
        .answer(Object(&s::DAG)),
    route(Get, "/dag-runs/count", Task, request::count_dag_runs)
        .query(&s::COUNT_RUNS)
        .answer(ValueKind::Integer),
    route(Get, "/dag-runs/previous", Task, request::previous_dag_run)
        .since(V2026_04_06)
        .query(&s::PREVIOUS_RUN)
        .answer(Nullable(&Object(&s::DAG_RUN))),
    route(
        Get,
        "/dag-runs/{dag_id}/previous",
        Task,
        request::previous_run_of_dag,
    )
    .before(V2026_04_06)
    .query(&s::PREVIOUS_RUN_OF_DAG)
    .answer(Nullable(&Object(&s::DAG_RUN))),
    route(Get, "/dag-runs/{dag_id}/{run_id}", Task, request::dag_run)
        .since(V2026_04_06)
        .answer(Object(&s::DAG_RUN)),
    route(
        Post,
        "/dag-runs/{dag_id}/{run_id}",
        Task,
        request::trigger_dag_run,
    )
    .body(Object(&s::TRIGGER))
    .status(204),
    route(
        Post,
        "/dag-runs/{dag_id}/{run_id}/clear",
        Task,
        request::clear_dag_run,
    )
    .status(204),
    route(
        Get,
        "/dag-runs/{dag_id}/{run_id}/state",
        Task,
        request::dag_run_state,
    )
    .answer(Object(&s::DAG_RUN_STATE)),
    // Variables.
    route(Get, "/variables/keys", Task, request::variable_keys)
        .since(V2026_06_30)
        .query(&s::LIST_VARIABLES)
        .answer(Object(&s::VARIABLE_KEYS)),
    route(Get, "/variables/{variable_key}", Task, request::variable)
        .greedy("variable_key")
        .answer(Object(&s::VARIABLE)),
    route(
        Put,
        "/variables/{variable_key}",
        Task,
        request::put_variable,
    )
    .greedy("variable_key")
    .body(Object(&s::VARIABLE_PUT))
    .status(201),
    route(
        Delete,
        "/variables/{variable_key}",
        Task,
        request::delete_variable,
    )
    .greedy("variable_key")
    .status(204),
    // XComs.
    route(
        Get,
        "/xcoms/{dag_id}/{run_id}/{task_id}/{key}/item/{offset}",
        Task,
        request::xcom_item,
    )
    .greedy("key")
    .answer(Json),
    route(
        Get,
        "/xcoms/{dag_id}/{run_id}/{task_id}/{key}/slice",
        Task,
        request::xcom_slice,
    )
    .greedy("key")
    .query(&s::SLICE_XCOM)
    .answer(List(&Json)),
    route(Head, XCOM, Task, request::xcom_head)
        .greedy("key")
        .query(&s::HEAD_XCOM),
    route(Get, XCOM, Task, request::xcom)
        .greedy("key")
        .query(&s::GET_XCOM)
        .answer(Object(&s::XCOM)),
    route(Post, XCOM, Task, request::set_xcom)
        .greedy("key")
        .query(&s::SET_XCOM)
        .body(Json)
        .status(201),
    route(Delete, XCOM, Task, request::delete_xcom)
        .greedy("key")
        .query(&s::DELETE_XCOM),
    // Questions to humans.
    route(
        Post,
        "/hitlDetails/{task_instance_id}",
        SameTask,
        request::ask_human,
    )
    .body(Object(&s::HITL_REQUEST))
    .status(201)
    .answer(Object(&s::HITL_REQUEST)),
    route(
        Patch,
        "/hitlDetails/{task_instance_id}",
        SameTask,
        request::answer_for_human,
    )
    .body(Object(&s::HITL_UPDATE))
    .answer(Object(&s::HITL_RESPONSE)),
    route(
        Get,
        "/hitlDetails/{task_instance_id}",
        SameTask,
        request::human_answer,
    )
    .answer(Object(&s::HITL_RESPONSE)),
    // Stores.
    route(
        Get,
        "/store/ti/{task_instance_id}/{key}",
        SameTask,
        request::task_store_value,
    )
    .since(V2026_06_30)
    .greedy("key")
    .answer(Object(&s::TASK_STORE_VALUE)),
    route(
        Put,
        "/store/ti/{task_instance_id}/{key}",
        SameTask,
        request::put_task_store_value,
    )
    .since(V2026_06_30)
    .greedy("key")
    .body(Object(&s::TASK_STORE_PUT))
    .status(204),
    route(
        Delete,
        "/store/ti/{task_instance_id}/{key}",
        SameTask,
        request::delete_task_store_value,
    )
    .since(V2026_06_30)
    .greedy("key")
    .status(204),
    route(
        Delete,
        "/store/ti/{task_instance_id}",
        SameTask,
        request::clear_task_store,
    )
    .since(V2026_06_30)
    .status(204),
    route(
        Get,
        "/store/asset/by-name/value",
        Task,
        request::asset_store_value,
    )
    .since(V2026_06_30)
    .query(&s::STORE_BY_NAME)
    .answer(Object(&s::ASSET_STORE_VALUE)),
    route(
        Put,
        "/store/asset/by-name/value",
        Task,
        request::put_asset_store_value,
    )
    .since(V2026_06_30)
    .query(&s::STORE_BY_NAME)
    .body(Object(&s::ASSET_STORE_PUT))
    .status(204),
    route(
        Delete,
        "/store/asset/by-name/value",
        Task,
        request::delete_asset_store_value,
    )
    .since(V2026_06_30)
    .query(&s::STORE_BY_NAME)
    .status(204),
    route(
        Delete,
        "/store/asset/by-name/clear",
        Task,
        request::clear_asset_store,
    )
    .since(V2026_06_30)
    .query(&s::BY_NAME)
    .status(204),
    route(
        Get,
        "/store/asset/by-uri/value",
        Task,
        request::asset_store_value,
    )
    .since(V2026_06_30)
    .query(&s::STORE_BY_URI)
    .answer(Object(&s::ASSET_STORE_VALUE)),
    route(
        Put,
        "/store/asset/by-uri/value",
        Task,
        request::put_asset_store_value,
    )
    .since(V2026_06_30)
    .query(&s::STORE_BY_URI)
    .body(Object(&s::ASSET_STORE_PUT))
    .status(204),
    route(
        Delete,
        "/store/asset/by-uri/value",
        Task,
        request::delete_asset_store_value,
    )
    .since(V2026_06_30)
    .query(&s::STORE_BY_URI)
    .status(204),
    route(
        Delete,
        "/store/asset/by-uri/clear",
        Task,
        request::clear_asset_store,
    )
    .since(V2026_06_30)
    .query(&s::BY_URI)
    .status(204),
];
