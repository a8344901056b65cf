//! Airflow's parser of DAG files as a child: one process for each file (spec 5.1; reference: Airflow's parts, 4).
//!
//! The parser is that of the user's environment, unmodified. Around it runs a program of ours that notes which files of
//! the bundle the code has opened, imported or listed, so that a later change of one of them parses the file again and
//! a change of others does not.
//!
//! What the frames say is in `longshore-airflow`; who answers questions about rows is an implementation of
//! [`ParserRows`].

mod handler;
mod outcome;

use std::{collections::BTreeMap, ffi::OsString, future::Future, path::PathBuf, time::Duration};

use longshore_airflow::parser::{ParseRequest, ParserQuestion, ParserReply};
use rmpv::Value;
use tokio::time::Instant;

use crate::{
    child::{Child, Starter},
    end::Usage,
    launch::{Launch, Program},
    limits::Limits,
    tail::Tail,
    value,
};

use handler::Handler;
pub use outcome::{AskedRows, Outcome};

/// The program around Airflow's parser.
const PROGRAM: &str = include_str!("parser.py");

/// What a prefork server imports before it forks parsers: the parser, and what most DAG files import.
pub const PARSER_MODULES: [&str; 8] = [
    "airflow.dag_processing.processor",
    "airflow.sdk",
    "airflow.sdk.execution_time.task_runner",
    "airflow.serialization.serialized_objects",
    "airflow.providers.standard.operators.empty",
    "airflow.providers.standard.operators.bash",
    "airflow.providers.standard.operators.python",
    "airflow.providers.standard.decorators.python",
];

/// Answers the questions that the code of a DAG file asks while it is imported.
pub trait ParserRows: Sync {
    /// The answer to one question.
    ///
    /// *Cancellation*: the future is dropped when a limit ends the parser.
    fn answer(&self, question: &ParserQuestion) -> impl Future<Output = ParserReply> + Send;
}

/// Starts parsers in one environment of Python.
#[derive(Debug)]
pub struct Parser {
    starter: Starter,
    env: BTreeMap<OsString, OsString>,
    cwd: PathBuf,
    limits: Limits,
}

/// What parsing one file came to.
#[derive(Debug)]
pub struct Parsed {
    /// What was found, or that it is to be tried again.
    pub outcome: Outcome,
    /// What the code has read of the bundle: files by their paths from its root, and folders, which were listed, by
    /// those with `/` at the end; the root itself is `""`. `None` where the parser ended before it said so.
    pub reads: Option<Vec<String>>,
    /// What the code has asked of our rows: a change of these may change what is found.
    pub asked: AskedRows,
    /// The last part of what the code printed.
    pub output: Tail,
    /// What it took.
    pub usage: Usage,
    /// From the start to the end.
    pub took: Duration,
}

impl Parser {
    /// Parsers that `starter` starts, with this whole environment and working directory. [`Limits::PARSER`] has
    /// Airflow's limits.
    pub fn new(
        starter: Starter,
        env: BTreeMap<OsString, OsString>,
        cwd: PathBuf,
        limits: Limits,
    ) -> Self {
        Self {
            starter,
            env,
            cwd,
            limits,
        }
    }

    /// Parses one file. When `stop` is ready, the parser is ended and the outcome is [`Outcome::Again`].
    ///
    /// *Guarantees*: nothing that descends from the parser runs any more. What is the fault of the file, as a hang, an
    /// exit or garbage, is an import error of it; what is not, as a missing interpreter, says nothing about the file.
    ///
    /// *Cancellation*: the parser and all that descends from it are killed.
    pub async fn parse(
        &self,
        request: &ParseRequest,
        rows: &impl ParserRows,
        stop: impl Future<Output = ()>,
    ) -> Parsed {
        let started_at = Instant::now();
        let launch = Launch {
            program: Program::Code(PROGRAM.to_owned()),
            args: vec![request.bundle_path.clone().into()],
            env: self.env.clone(),
            cwd: self.cwd.clone(),
        };
        let handler = Handler::new(request, rows);
        // Texts and empty lists are always writable.
        let first = value::from_json(&request.to_json()).unwrap_or(Value::Nil);
        match Child::start(&self.starter, &launch, self.limits.clone()).await {
            Ok(child) => {
                let ended = child.supervise(Some(first), &handler, stop).await;
                handler.finish(ended, started_at.elapsed())
            }
            Err(why) => Parsed {
                outcome: Outcome::Again {
                    why: longshore_core::error::chain(&why),
                },
                reads: None,
                asked: AskedRows::default(),
                output: Tail::new(0),
                usage: Usage::default(),
                took: started_at.elapsed(),
            },
        }
    }
}
