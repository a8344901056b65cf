//! What a parser sends: questions, and its result.

use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::{ParseRequest, ParsingResult};
use crate::api::{
    TaskInstanceState, UtcDateTime, XComAddress,
    query::{
        PreviousRunQuery, PreviousTaskInstanceQuery, SliceQuery, TaskInstanceFilter,
        VariableKeysQuery, XComQuery,
    },
    store::VariablePut,
};

/// A message of a parser.
#[derive(Clone, Debug, PartialEq)]
pub enum FromParser {
    /// What it has found. It ends after the answer.
    Result(Box<ParsingResult>),
    /// It goes on after the answer.
    Question(ParserQuestion),
}

/// What the code of a DAG file asks while it is imported.
#[derive(Clone, Debug, PartialEq)]
pub enum ParserQuestion {
    /// A variable.
    Variable(String),
    /// Keys of variables.
    VariableKeys(VariableKeysQuery),
    /// Writes a variable.
    PutVariable(String, VariablePut),
    /// Deletes a variable.
    DeleteVariable(String),
    /// A connection.
    Connection(String),
    /// How many task instances there are.
    CountTaskInstances(TaskInstanceFilter),
    /// The states of task instances.
    TaskStates(TaskInstanceFilter),
    /// An earlier instance of a task.
    PreviousTaskInstance {
        /// The DAG.
        dag_id: String,
        /// The task.
        task_id: String,
        /// Which one.
        query: PreviousTaskInstanceQuery,
    },
    /// An earlier run.
    PreviousDagRun(PreviousRunQuery),
    /// The last successful run before that of a task instance.
    PreviousSuccessfulRun(Uuid),
    /// An XCom.
    XCom(XComAddress, XComQuery),
    /// How many values an XCom has.
    CountXComs(XComAddress),
    /// The value of an XCom at a place.
    XComItem(XComAddress, i64),
    /// The values of an XCom at places.
    XComSlice(XComAddress, SliceQuery),
    /// A secret that logs must not show.
    MaskSecret,
}

/// A message that is none of a parser's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a message of Airflow 3.1 to 3.3's parser, found `{kind}`: {why}; is this environment's version supported?"
)]
pub struct UnknownMessage {
    /// Its type.
    pub kind: String,
    /// What is wrong with it.
    pub why: String,
}

/// The bodies as they are written. Members that a later version adds are left out.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum Body {
    GetVariable {
        key: String,
    },
    GetVariableKeys(VariableKeysQuery),
    PutVariable {
        key: String,
        value: Option<String>,
        description: Option<String>,
    },
    DeleteVariable {
        key: String,
    },
    GetConnection {
        conn_id: String,
    },
    GetTICount(TaskInstanceFilter),
    GetTaskStates(TaskInstanceFilter),
    GetPreviousTI {
        dag_id: String,
        task_id: String,
        logical_date: Option<UtcDateTime>,
        #[serde(default = "unmapped")]
        map_index: i32,
        state: Option<TaskInstanceState>,
    },
    GetPreviousDagRun(PreviousRunQuery),
    GetPrevSuccessfulDagRun {
        ti_id: Uuid,
    },
    GetXCom {
        #[serde(flatten)]
        at: XCom,
        map_index: Option<i32>,
        #[serde(default)]
        include_prior_dates: bool,
    },
    GetXComCount(XCom),
    GetXComSequenceItem {
        #[serde(flatten)]
        at: XCom,
        offset: i64,
    },
    GetXComSequenceSlice {
        #[serde(flatten)]
        at: XCom,
        start: Option<i64>,
        stop: Option<i64>,
        step: Option<i64>,
        #[serde(default)]
        include_prior_dates: bool,
    },
    MaskSecret {},
}

#[derive(Deserialize)]
struct XCom {
    dag_id: String,
    run_id: String,
    task_id: String,
    key: String,
}

fn unmapped() -> i32 {
    -1
}

impl From<XCom> for XComAddress {
    fn from(at: XCom) -> Self {
        let XCom {
            dag_id,
            run_id,
            task_id,
            key,
        } = at;
        Self {
            dag_id,
            run_id,
            task_id,
            key,
        }
    }
}

impl FromParser {
    /// Reads the body of a frame of the parser that got `request`.
    ///
    /// # Errors
    /// It is none that a parser sends.
    pub fn read(body: Value, request: &ParseRequest) -> Result<Self, UnknownMessage> {
        let kind = body.get("type").and_then(Value::as_str);
        let kind = kind.unwrap_or("a body without a type").to_owned();
        let read = if kind == ParsingResult::TYPE {
            ParsingResult::read(body, request).map(|it| Self::Result(Box::new(it)))
        } else {
            let body = serde_json::from_value::<Body>(body);
            body.map(|it| Self::Question(it.into()))
        };
        read.map_err(|error| UnknownMessage {
            kind,
            why: error.to_string(),
        })
    }
}

impl From<Body> for ParserQuestion {
    fn from(body: Body) -> Self {
        match body {
            Body::GetVariable { key } => Self::Variable(key),
            Body::GetVariableKeys(query) => Self::VariableKeys(query),
            Body::PutVariable {
                key,
                value: val,
                description,
            } => Self::PutVariable(key, VariablePut { val, description }),
            Body::DeleteVariable { key } => Self::DeleteVariable(key),
            Body::GetConnection { conn_id } => Self::Connection(conn_id),
            Body::GetTICount(filter) => Self::CountTaskInstances(filter),
            Body::GetTaskStates(filter) => Self::TaskStates(filter),
            Body::GetPreviousTI {
                dag_id,
                task_id,
                logical_date,
                map_index,
                state,
            } => {
                let query = PreviousTaskInstanceQuery {
                    logical_date,
                    map_index,
                    state,
                };
                Self::PreviousTaskInstance {
                    dag_id,
                    task_id,
                    query,
                }
            }
            Body::GetPreviousDagRun(query) => Self::PreviousDagRun(query),
            Body::GetPrevSuccessfulDagRun { ti_id } => Self::PreviousSuccessfulRun(ti_id),
            Body::GetXCom {
                at,
                map_index,
                include_prior_dates,
            } => {
                let query = XComQuery {
                    map_index: map_index.unwrap_or_else(unmapped),
                    include_prior_dates,
                    offset: None,
                };
                Self::XCom(at.into(), query)
            }
            Body::GetXComCount(at) => Self::CountXComs(at.into()),
            Body::GetXComSequenceItem { at, offset } => Self::XComItem(at.into(), offset),
            Body::GetXComSequenceSlice {
                at,
                start,
                stop,
                step,
                include_prior_dates,
            } => {
                let slice = SliceQuery {
                    start,
                    stop,
                    step,
                    include_prior_dates,
                };
                Self::XComSlice(at.into(), slice)
            }
            Body::MaskSecret {} => Self::MaskSecret,
        }
    }
}
