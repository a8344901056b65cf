//! The `{{ … }}` of a task's command, arguments and environment.
//!
//! | Expression | Becomes |
//! |---|---|
//! | `{{ run_id }}`, `{{ dag_id }}`, `{{ task_id }}`, `{{ try_number }}` | that |
//! | `{{ logical_date }}` | `2026-01-01T00:00:00+00:00`, nothing for a run without one |
//! | `{{ params.NAME }}` | the parameter of the run |
//! | `{{ xcom.TASK }}`, `{{ xcom.TASK.FIELD }}` | the result of an upstream task, or a field of it |
//! | `{{ '{{' }}` | the text in quotes |
//!
//! A text is put in as it is, other JSON in its compact form. There is no logic: a DAG that needs logic is written by a program.

use std::{collections::BTreeMap, fmt, ops::Range};

use jiff::{Timestamp, tz::Offset};
use longshore_api::dags::{ENV_RETURN, MAX_RESULT_BYTES};
use serde_json::Value;

use crate::model::Task;

/// The words that may stand alone.
pub(crate) const VARIABLES: [&str; 5] =
    ["run_id", "dag_id", "task_id", "logical_date", "try_number"];

/// A text with expressions in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Text(String),
    Expression(Expression, Range<usize>),
}

/// What stands between the braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// A fact about the task instance.
    Variable(Variable),
    /// A parameter of the run, by what follows `params.`.
    Param(String),
    /// A result of an upstream task, by what follows `xcom.`.
    XCom(String),
}

/// A fact about the task instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// The run.
    RunId,
    /// The DAG.
    DagId,
    /// The task.
    TaskId,
    /// The instant that the run is about.
    LogicalDate,
    /// The try, from 1.
    TryNumber,
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct SyntaxError {
    /// What is wrong.
    pub kind: SyntaxErrorKind,
    /// The bytes of the text that it is about.
    pub range: Range<usize>,
}

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxErrorKind {
    /// Opened, never closed.
    #[error("`{{{{` has no `}}}}`")]
    Unclosed,
    /// Nothing between the braces.
    #[error("there is nothing between `{{{{` and `}}}}`")]
    Empty,
    /// A name that means nothing.
    #[error("template variable `{0}` does not exist")]
    UnknownVariable(String),
    /// More than a name.
    #[error("template expression `{0}` is more than a name")]
    NotAName(String),
}

/// Why a template cannot be filled in now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The text is no template.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// No parameter of that name.
    #[error("the run has no parameter `{path}`; it has {known}")]
    NoParam {
        /// What follows `params.`.
        path: String,
        /// The parameters that there are.
        known: String,
    },
    /// The upstream task has no result.
    #[error(
        "`{{{{ xcom.{path} }}}}` needs the result of task `{task_id}`, but {why}; let that task write JSON of at most \
         {max} bytes to the file that ${file} names",
        max = MAX_RESULT_BYTES,
        file = ENV_RETURN
    )]
    NoResult {
        /// The task.
        task_id: String,
        /// Why it has none.
        why: String,
        /// What follows `xcom.`.
        path: String,
    },
    /// The upstream task's result does not have the field.
    #[error(
        "`{{{{ xcom.{path} }}}}` needs field `{field}` of the result of task `{task_id}`, which was {result}"
    )]
    NoField {
        /// The task.
        task_id: String,
        /// The field that is missing.
        field: String,
        /// What follows `xcom.`.
        path: String,
        /// The result, as compact JSON, cut if it is long.
        result: String,
    },
}

/// Everything that can be filled in.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// The DAG.
    pub dag_id: &'a str,
    /// The run.
    pub run_id: &'a str,
    /// The task.
    pub task_id: &'a str,
    /// The instant that the run is about.
    pub logical_date: Option<Timestamp>,
    /// The try, from 1.
    pub try_number: u32,
    /// The parameters of the run.
    pub params: &'a BTreeMap<String, Value>,
    /// The tasks of the DAG: which of their ids an `xcom.` path begins with.
    pub tasks: &'a BTreeMap<String, Task>,
    /// What the tasks of the run left.
    pub results: &'a dyn Results,
}

/// What the tasks of a run left. One pod needs the results of few of them, and a run may have thousands.
pub trait Results: fmt::Debug {
    /// The result of a task.
    fn result(&self, task_id: &str) -> Option<&Value>;

    /// Why what a task left is no result.
    fn note(&self, task_id: &str) -> Option<&str>;
}

impl Template {
    /// Reads a text. One without `{{` is a template of itself.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        let mut segments = Vec::new();
        let mut at = 0;
        while let Some(open) = text[at..].find("{{").map(|found| at + found) {
            push_text(&mut segments, &text[at..open]);
            let inner = open + 2;
            let close = closing(text, inner).ok_or(SyntaxError {
                kind: SyntaxErrorKind::Unclosed,
                range: open..text.len(),
            })?;
            let range = open..close + 2;
            let expression = text[inner..close].trim();
            match literal(expression) {
                Some(literal) => push_text(&mut segments, literal),
                None => match Expression::parse(expression) {
                    Ok(expression) => {
                        segments.push(Segment::Expression(expression, range.clone()));
                    }
                    Err(kind) => return Err(SyntaxError { kind, range }),
                },
            }
            at = range.end;
        }
        push_text(&mut segments, &text[at..]);
        Ok(Self { segments })
    }

    /// The expressions, with their bytes in the text.
    pub fn expressions(&self) -> impl Iterator<Item = (&Expression, Range<usize>)> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Text(_) => None,
            Segment::Expression(expression, range) => Some((expression, range.clone())),
        })
    }

    /// Fills it in.
    pub fn render(&self, context: &Context<'_>) -> Result<String, RenderError> {
        let mut text = String::new();
        for segment in &self.segments {
            match segment {
                Segment::Text(literal) => text.push_str(literal),
                Segment::Expression(expression, _) => {
                    text.push_str(&expression.evaluate(context)?);
                }
            }
        }
        Ok(text)
    }
}

/// Reads and fills in a text.
pub fn render(text: &str, context: &Context<'_>) -> Result<String, RenderError> {
    Template::parse(text)?.render(context)
}

fn push_text(segments: &mut Vec<Segment>, text: &str) {
    if let Some(Segment::Text(last)) = segments.last_mut() {
        last.push_str(text);
    } else if !text.is_empty() {
        segments.push(Segment::Text(text.to_owned()));
    }
}

/// Where `}}` closes an expression that begins at `from`; braces in quotes do not.
fn closing(text: &str, from: usize) -> Option<usize> {
    let start = from + (text[from..].len() - text[from..].trim_start().len());
    let quote = text[start..]
        .chars()
        .next()
        .filter(|c| matches!(c, '\'' | '"'));
    let search = match quote.and_then(|quote| text[start + 1..].find(quote)) {
        Some(end_of_quote) => start + 1 + end_of_quote,
        None => from,
    };
    text[search..].find("}}").map(|found| search + found)
}

fn literal(expression: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|quote| {
        let inner = expression.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.contains(quote)).then_some(inner)
    })
}

impl Expression {
    fn parse(expression: &str) -> Result<Self, SyntaxErrorKind> {
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        let variable = match expression {
            "" => return Err(SyntaxErrorKind::Empty),
            "run_id" => Variable::RunId,
            "dag_id" => Variable::DagId,
            "task_id" => Variable::TaskId,
            "logical_date" => Variable::LogicalDate,
            "try_number" => Variable::TryNumber,
            _ if !expression.chars().all(is_name) => {
                return Err(SyntaxErrorKind::NotAName(expression.to_owned()));
            }
            _ => {
                return match expression.split_once('.') {
                    Some(("params", path)) if !path.is_empty() => Ok(Self::Param(path.to_owned())),
                    Some(("xcom", path)) if !path.is_empty() => Ok(Self::XCom(path.to_owned())),
                    _ => Err(SyntaxErrorKind::UnknownVariable(expression.to_owned())),
                };
            }
        };
        Ok(Self::Variable(variable))
    }

    fn evaluate(&self, context: &Context<'_>) -> Result<String, RenderError> {
        Ok(match self {
            Self::Variable(Variable::RunId) => context.run_id.to_owned(),
            Self::Variable(Variable::DagId) => context.dag_id.to_owned(),
            Self::Variable(Variable::TaskId) => context.task_id.to_owned(),
            Self::Variable(Variable::TryNumber) => context.try_number.to_string(),
            Self::Variable(Variable::LogicalDate) => {
                context.logical_date.map_or_else(String::new, |date| {
                    date.display_with_offset(Offset::UTC).to_string()
                })
            }
            Self::Param(path) => as_text(param(path, context)?),
            Self::XCom(path) => as_text(xcom(path, context)?),
        })
    }
}

fn param<'a>(path: &str, context: &Context<'a>) -> Result<&'a Value, RenderError> {
    split_name(path, |name| context.params.contains_key(name))
        .and_then(|(name, fields)| field(context.params.get(name)?, fields).ok())
        .ok_or_else(|| {
            let names: Vec<String> = context
                .params
                .keys()
                .map(|name| format!("`{name}`"))
                .collect();
            let known = if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            };
            RenderError::NoParam {
                path: path.to_owned(),
                known,
            }
        })
}

fn xcom<'a>(path: &str, context: &Context<'a>) -> Result<&'a Value, RenderError> {
    let (task_id, fields) =
        split_name(path, |name| context.tasks.contains_key(name)).unwrap_or((path, ""));
    let result = context
        .results
        .result(task_id)
        .ok_or_else(|| RenderError::NoResult {
            task_id: task_id.to_owned(),
            why: context.results.note(task_id).map_or_else(
                || "the task left none".to_owned(),
                |why| format!("it was not taken: {why}"),
            ),
            path: path.to_owned(),
        })?;
    field(result, fields).map_err(|field| RenderError::NoField {
        task_id: task_id.to_owned(),
        field,
        path: path.to_owned(),
        result: cut(&result.to_string()),
    })
}

/// Splits `NAME` or `NAME.FIELD.FIELD` where names may hold dots themselves: the longest known name counts.
pub(crate) fn split_name(path: &str, is_known: impl Fn(&str) -> bool) -> Option<(&str, &str)> {
    if is_known(path) {
        return Some((path, ""));
    }
    let mut dots = path.rmatch_indices('.');
    dots.find_map(|(dot, _)| is_known(&path[..dot]).then(|| (&path[..dot], &path[dot + 1..])))
}

/// The value at the end of a path of fields, else the field that is missing.
fn field<'a>(value: &'a Value, path: &str) -> Result<&'a Value, String> {
    let mut here = value;
    for name in path.split('.').filter(|_| !path.is_empty()) {
        here = here.get(name).ok_or_else(|| name.to_owned())?;
    }
    Ok(here)
}

fn as_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn cut(text: &str) -> String {
    const LONGEST: usize = 200;
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(Variable::RunId) => f.write_str("run_id"),
            Self::Variable(Variable::DagId) => f.write_str("dag_id"),
            Self::Variable(Variable::TaskId) => f.write_str("task_id"),
            Self::Variable(Variable::LogicalDate) => f.write_str("logical_date"),
            Self::Variable(Variable::TryNumber) => f.write_str("try_number"),
            Self::Param(path) => write!(f, "params.{path}"),
            Self::XCom(path) => write!(f, "xcom.{path}"),
        }
    }
}

#[cfg(test)]
mod tests;
