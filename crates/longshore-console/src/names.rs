//! How runs and tasks are named on the command line and in messages: `DAG/RUN` and `DAG/RUN/TASK`.

use std::{fmt, str::FromStr};

/// Airflow's bound on ids.
const MAX_LENGTH: usize = 250;

/// The name of a run: `DAG/RUN`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunName {
    /// The id of the DAG.
    pub dag_id: String,
    /// The run, unique within the DAG.
    pub run_id: String,
}

/// A task of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskName {
    /// The run.
    pub run: RunName,
    /// The id of the task within the DAG.
    pub task_id: String,
    /// -1 for an unmapped task.
    pub map_index: i32,
}

/// Why a text is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text has too few or too many parts.
    #[error("expected {expected}, found {found:?}")]
    Form {
        /// The form, as `DAG/RUN`.
        expected: &'static str,
        /// The text that was given.
        found: String,
    },
    /// A part is empty, too long, or has characters that no id has.
    #[error("an id has 1 to 250 characters and no control characters, found {0:?}")]
    Id(String),
    /// The index of a mapped task is no number.
    #[error("expected a number in brackets, as TASK[3], found {0:?}")]
    Index(String),
}

/// Whether a text can be the id of something. Whether it is one, only the service knows. `.` and `..` cannot: every
/// client library resolves them away in a path.
pub fn is_id(text: &str) -> bool {
    !matches!(text, "" | "." | "..")
        && text.chars().count() <= MAX_LENGTH
        && !text.chars().any(char::is_control)
}

/// Whether a new run may have this id: Airflow's `allowed_run_id_pattern`.
pub fn is_new_run_id(text: &str) -> bool {
    is_id(text)
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.~:+-".contains(&byte))
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.dag_id, self.run_id)
    }
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.run, self.task_id)?;
        if self.map_index >= 0 {
            write!(f, "[{}]", self.map_index)?;
        }
        Ok(())
    }
}

impl FromStr for RunName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let [dag_id, run_id] = parts(text, "DAG/RUN")?;
        Ok(Self { dag_id, run_id })
    }
}

impl FromStr for TaskName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let [dag_id, run_id, task] = parts(text, "DAG/RUN/TASK")?;
        let (task_id, map_index) =
            match task.strip_suffix(']').and_then(|task| task.split_once('[')) {
                None => (task, -1),
                Some((task_id, index)) => match index.parse() {
                    Ok(index) if index >= 0 && is_id(task_id) => (task_id.to_owned(), index),
                    Ok(_) | Err(_) => return Err(NameError::Index(task)),
                },
            };
        let run = RunName { dag_id, run_id };
        Ok(Self {
            run,
            task_id,
            map_index,
        })
    }
}

fn parts<const N: usize>(text: &str, expected: &'static str) -> Result<[String; N], NameError> {
    let parts: Vec<String> = text.split('/').map(str::to_owned).collect();
    if let Some(wrong) = parts.iter().find(|part| !is_id(part)) {
        return Err(NameError::Id(wrong.clone()));
    }
    parts.try_into().map_err(|_| NameError::Form {
        expected,
        found: text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back_as_it_is_printed() {
        for text in ["etl/manual__2026-11-21T10:00:00+00:00", "a.b/c"] {
            assert_eq!(text.parse::<RunName>().unwrap().to_string(), text);
        }
        for text in ["etl/r1/extract", "etl/r1/part[3]"] {
            assert_eq!(text.parse::<TaskName>().unwrap().to_string(), text);
        }
        assert_eq!("etl/r1/part[3]".parse::<TaskName>().unwrap().map_index, 3);
    }

    #[test]
    fn what_is_no_name_says_what_was_expected() {
        for (text, expected) in [
            ("etl", "expected DAG/RUN/TASK, found \"etl\""),
            ("a/b/c/d", "expected DAG/RUN/TASK, found \"a/b/c/d\""),
            (
                "a//c",
                "an id has 1 to 250 characters and no control characters, found \"\"",
            ),
            (
                "a/b/c[x]",
                "expected a number in brackets, as TASK[3], found \"c[x]\"",
            ),
            (
                "a/b/c[-1]",
                "expected a number in brackets, as TASK[3], found \"c[-1]\"",
            ),
            (
                "a/b/[1]",
                "expected a number in brackets, as TASK[3], found \"[1]\"",
            ),
        ] {
            assert_eq!(text.parse::<TaskName>().unwrap_err().to_string(), expected);
        }
        for path in ["../..", "a/."] {
            assert!(path.parse::<RunName>().is_err(), "{path}");
        }
        assert!("a/b\u{7}".parse::<RunName>().is_err());
        assert!(format!("a/{}", "b".repeat(251)).parse::<RunName>().is_err());
    }
}
