//! The text of `status.error`.

use regex::Regex;
use serde::Serialize;

use crate::{
    conf::{Defaulted, FlinkConfig, InvalidOption, operator},
    jackson,
};

/// The error of a job that the cluster does not know. Written as it is, without JSON.
pub const JOB_NOT_FOUND: &str = "Job Not Found";

/// What an error is, by upstream's class, which dashboards match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorType {
    /// The spec is not valid.
    Validation,
    /// A stateful upgrade has no state to restore.
    UpgradeFailure,
    /// The JobManager's Deployment cannot start.
    DeploymentFailed,
    /// The JobManager's Deployment disappeared.
    MissingJobManager,
    /// Anything else that keeps a resource from being reconciled.
    Reconciliation,
}

impl ErrorType {
    /// Upstream's class.
    pub const fn class(self) -> &'static str {
        match self {
            Self::Validation => {
                "org.apache.flink.kubernetes.operator.exception.ValidationException"
            }
            Self::UpgradeFailure => {
                "org.apache.flink.kubernetes.operator.exception.UpgradeFailureException"
            }
            Self::DeploymentFailed => {
                "org.apache.flink.kubernetes.operator.exception.DeploymentFailedException"
            }
            Self::MissingJobManager => {
                "org.apache.flink.kubernetes.operator.exception.MissingJobManagerException"
            }
            Self::Reconciliation => {
                "org.apache.flink.kubernetes.operator.exception.ReconciliationException"
            }
        }
    }
}

/// An error, or what caused one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// Its class: that of an [`ErrorType`], or the class that Flink named.
    pub class: String,
    /// Its message.
    pub message: Option<String>,
    /// The stack trace that Flink sent.
    pub stack_trace: Option<String>,
    /// The status of the HTTP response that it is about.
    pub http_response_code: Option<u16>,
    /// The reason by which Kubernetes names it.
    pub reason: Option<String>,
}

impl Cause {
    /// An error of this operator.
    pub fn new(kind: ErrorType, message: impl Into<String>) -> Self {
        Self {
            class: kind.class().to_owned(),
            message: Some(message.into()),
            ..Self::default()
        }
    }
}

/// How much of an error the status holds (`kubernetes.operator.exception.*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorLimits {
    /// Characters of each field.
    pub field: usize,
    /// Characters of a stack trace; none where there is to be no stack trace.
    pub stack_trace: Option<usize>,
    /// Causes below the error.
    pub n_causes: usize,
}

impl ErrorLimits {
    /// The limits of a configuration of the operator. A negative one is 0.
    ///
    /// # Errors
    /// An option has an invalid value.
    pub fn of(config: &FlinkConfig) -> Result<Self, InvalidOption> {
        let number = |option: &Defaulted<i32>| {
            let number = config.get(option)?;
            Ok::<_, InvalidOption>(usize::try_from(number).unwrap_or_default())
        };
        let trace_length = number(&operator::ERROR_TRACE_LENGTH)?;
        Ok(Self {
            field: number(&operator::ERROR_FIELD_LENGTH)?,
            stack_trace: config.get(&operator::ERROR_TRACES)?.then_some(trace_length),
            n_causes: number(&operator::ERROR_CAUSES)?,
        })
    }
}

impl Default for ErrorLimits {
    fn default() -> Self {
        Self {
            field: 2048,
            stack_trace: None,
            n_causes: 2,
        }
    }
}

/// Labels for errors whose message, or that of a cause, matches a pattern (`kubernetes.operator.exception.label.mapper`).
#[derive(Clone, Debug, Default)]
pub struct LabelMapper {
    labels: Vec<(Regex, String)>,
}

/// Why there are no labels.
#[derive(Debug, thiserror::Error)]
pub enum InvalidLabelMapper {
    /// A pattern is no regular expression.
    #[error(
        "kubernetes.operator.exception.label.mapper: expected a regular expression, found {pattern:?}"
    )]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        #[source]
        source: regex::Error,
    },
    /// The option is no map.
    #[error(transparent)]
    Option(#[from] InvalidOption),
}

impl LabelMapper {
    /// The mapper of a configuration.
    ///
    /// # Errors
    /// The option is no map, or a pattern is no regular expression.
    pub fn of(config: &FlinkConfig) -> Result<Self, InvalidLabelMapper> {
        let entries = config.map(&operator::ERROR_LABELS.key)?;
        Self::new(
            entries
                .iter()
                .map(|(pattern, label)| (pattern.as_str(), label.as_str())),
        )
    }

    /// A mapper from patterns to labels.
    ///
    /// # Errors
    /// A pattern is no regular expression.
    pub fn new<'a>(
        entries: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, InvalidLabelMapper> {
        let compiled = entries.into_iter().map(|(pattern, label)| {
            let regex = Regex::new(pattern).map_err(|source| InvalidLabelMapper::Pattern {
                pattern: pattern.to_owned(),
                source,
            })?;
            Ok::<_, InvalidLabelMapper>((regex, label.to_owned()))
        });
        Ok(Self {
            labels: compiled.collect::<Result<_, _>>()?,
        })
    }

    fn labels(&self, chain: &[Cause]) -> Vec<&str> {
        let matches = |regex: &Regex| {
            let mut messages = chain
                .iter()
                .map(|it| it.message.as_deref().unwrap_or_default());
            messages.any(|message| regex.is_match(message))
        };
        let labels = self.labels.iter().filter(|(regex, _)| matches(regex));
        labels.map(|(_, label)| label.as_str()).collect()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack_trace: Option<String>,
    additional_metadata: Metadata<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    throwable_list: Option<Vec<Self>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    http_response_code: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    labels: Vec<&'a str>,
}

/// The text of `status.error` for an error and what caused it, the error first (upstream:
/// `FlinkResourceExceptionUtils`).
pub fn error_report(
    error: &Cause,
    causes: &[Cause],
    limits: ErrorLimits,
    labels: &LabelMapper,
) -> String {
    let mut chain = vec![error.clone()];
    chain.extend_from_slice(causes);
    let below = (1..chain.len()).take(limits.n_causes);
    let below = below.map(|index| {
        let limits = ErrorLimits {
            stack_trace: None,
            ..limits
        };
        report(&chain[index..], limits, labels)
    });
    let below = below.collect();
    let mut whole = report(&chain, limits, labels);
    whole.throwable_list = Some(below);
    jackson::to_text(&whole)
}

/// The report of the first error of a chain.
fn report<'a>(chain: &[Cause], limits: ErrorLimits, labels: &'a LabelMapper) -> Report<'a> {
    let error = chain.first().cloned().unwrap_or_default();
    let stack_trace = limits.stack_trace.zip(error.stack_trace);
    Report {
        r#type: cut(error.class, limits.field),
        message: error.message.map(|it| cut(it, limits.field)),
        stack_trace: stack_trace.map(|(limit, it)| cut(it, limit)),
        additional_metadata: Metadata {
            http_response_code: error.http_response_code,
            reason: error.reason.map(|it| cut(it, limits.field)),
            labels: labels.labels(chain),
        },
        throwable_list: None,
    }
}

/// The beginning of a text. Java counts in units of UTF-16.
fn cut(text: String, limit: usize) -> String {
    let mut n_units = 0;
    let end = text.char_indices().find(|(_, letter)| {
        n_units += letter.len_utf16();
        n_units > limit
    });
    match end {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}
