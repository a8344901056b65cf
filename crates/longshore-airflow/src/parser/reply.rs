//! What a parser is answered.

use serde_json::{Value, json};

use super::{ParserQuestion, typed};
use crate::api::{
    XComAddress,
    dag_run::DagRun,
    store::{Connection, Variable, VariableKeys, XCom},
    task_instance::{PreviousSuccessfulRun, PreviousTaskInstance, TaskStates},
};

/// The answer to a question of a parser.
#[derive(Clone, Debug, PartialEq)]
pub enum ParserReply {
    /// It was done.
    Done,
    /// A variable.
    Variable(Variable),
    /// Keys of variables.
    VariableKeys(VariableKeys),
    /// A connection.
    Connection(Connection),
    /// How many task instances, or values of an XCom, there are.
    Count(u64),
    /// States of task instances.
    TaskStates(TaskStates),
    /// An earlier instance of a task, where there is one.
    PreviousTaskInstance(Option<PreviousTaskInstance>),
    /// An earlier run, where there is one.
    PreviousDagRun(Option<Box<DagRun>>),
    /// The last successful run.
    PreviousSuccessfulRun(PreviousSuccessfulRun),
    /// An XCom.
    XCom(XCom),
    /// The value at a place.
    XComItem(Value),
    /// The values at places.
    XComSlice(Vec<Value>),
    /// What was asked for is not there.
    Missing,
    /// It cannot be answered, for this reason. The file's import fails.
    Failed(String),
}

/// The two places of a frame in which an answer can be.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplyBody {
    /// The second; null is an empty answer.
    Body(Value),
    /// The third.
    Error(Value),
}

impl ParserReply {
    /// The answer as the parser reads it.
    #[must_use]
    pub fn to_body(&self, question: &ParserQuestion) -> ReplyBody {
        ReplyBody::Body(match self {
            // Deleting answers with a body, other writes with none.
            Self::Done if matches!(question, ParserQuestion::DeleteVariable(_)) => ok(),
            Self::Done => Value::Null,
            Self::Variable(variable) => typed("VariableResult", variable),
            Self::VariableKeys(keys) => typed("VariableKeysResult", keys),
            Self::Connection(connection) => typed("ConnectionResult", connection),
            Self::Count(n) if matches!(question, ParserQuestion::CountXComs(_)) => {
                json!({"type": "XComCountResponse", "len": n})
            }
            Self::Count(n) => json!({"type": "TICount", "count": n}),
            Self::TaskStates(states) => typed("TaskStatesResult", states),
            Self::PreviousTaskInstance(found) => {
                json!({"type": "PreviousTIResult", "task_instance": found})
            }
            Self::PreviousDagRun(found) => {
                json!({"type": "PreviousDagRunResult", "dag_run": found})
            }
            Self::PreviousSuccessfulRun(run) => typed("PrevSuccessfulDagRunResult", run),
            Self::XCom(xcom) => typed("XComResult", xcom),
            Self::XComItem(value) => json!({"type": "XComSequenceIndexResult", "root": value}),
            Self::XComSlice(values) => json!({"type": "XComSequenceSliceResult", "root": values}),
            Self::Missing => return missing(question),
            Self::Failed(why) => {
                return error(
                    "API_SERVER_ERROR",
                    &json!({"status_code": 500, "message": why}),
                );
            }
        })
    }
}

/// The answer to a result.
pub(super) fn ok() -> Value {
    json!({"type": "OKResponse", "ok": true})
}

fn error(kind: &str, detail: &Value) -> ReplyBody {
    ReplyBody::Error(json!({"type": "ErrorResponse", "error": kind, "detail": detail}))
}

/// How the SDK says that something is not there: by an error for what the code named, by null for what it looked for.
fn missing(question: &ParserQuestion) -> ReplyBody {
    use ParserQuestion as Q;
    match question {
        Q::Variable(key) | Q::PutVariable(key, _) | Q::DeleteVariable(key) => {
            error("VARIABLE_NOT_FOUND", &json!({"key": key}))
        }
        Q::Connection(id) => error("CONNECTION_NOT_FOUND", &json!({"conn_id": id})),
        Q::XCom(at, _) => {
            let (key, value) = (at.key.clone(), Value::Null);
            ReplyBody::Body(typed("XComResult", &XCom { key, value }))
        }
        Q::XComItem(at, offset) => {
            let mut detail = address(at);
            detail["offset"] = (*offset).into();
            error("XCOM_NOT_FOUND", &detail)
        }
        Q::XComSlice(at, _) | Q::CountXComs(at) => error("XCOM_NOT_FOUND", &address(at)),
        Q::PreviousTaskInstance { .. } => ParserReply::PreviousTaskInstance(None).to_body(question),
        Q::PreviousDagRun(_) => ParserReply::PreviousDagRun(None).to_body(question),
        Q::PreviousSuccessfulRun(_) => {
            ParserReply::PreviousSuccessfulRun(PreviousSuccessfulRun::default()).to_body(question)
        }
        Q::VariableKeys(_) | Q::CountTaskInstances(_) | Q::TaskStates(_) | Q::MaskSecret => {
            error("GENERIC_ERROR", &json!({"message": "not found"}))
        }
    }
}

fn address(at: &XComAddress) -> Value {
    let XComAddress {
        dag_id,
        run_id,
        task_id,
        key,
    } = at;
    json!({"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "key": key})
}
