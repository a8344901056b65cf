//! What the end of a parser says about its file.

use std::collections::BTreeSet;

use longshore_airflow::parser::{ParseRequest, ParserQuestion, ParsingResult};
use longshore_core::error::chain;

use crate::{
    end::{End, TooLong},
    keeper::LAST_LINES,
    tail::Tail,
};

/// What parsing a file came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// What the file holds. Where it is to blame for not being parsed, that is an import error.
    Found(Box<ParsingResult>),
    /// Nothing is known of the file: what was known still holds, and it is to be parsed again.
    Again {
        /// Why.
        why: String,
    },
}

/// What the code of a file has asked of our rows while it was imported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AskedRows {
    /// Variables, by their keys.
    pub variables: BTreeSet<String>,
    /// Connections, by their ids.
    pub connections: BTreeSet<String>,
    /// Lists of variables, states of runs and tasks, or XComs, which change all the time.
    pub has_asked_more: bool,
}

impl AskedRows {
    pub(super) fn note(&mut self, question: &ParserQuestion) {
        use ParserQuestion as Q;
        match question {
            Q::Variable(key) => {
                self.variables.insert(key.clone());
            }
            Q::Connection(id) => {
                self.connections.insert(id.clone());
            }
            Q::PutVariable(..) | Q::DeleteVariable(_) | Q::MaskSecret => {}
            Q::VariableKeys(_)
            | Q::CountTaskInstances(_)
            | Q::TaskStates(_)
            | Q::PreviousTaskInstance { .. }
            | Q::PreviousDagRun(_)
            | Q::PreviousSuccessfulRun(_)
            | Q::XCom(..)
            | Q::CountXComs(_)
            | Q::XComItem(..)
            | Q::XComSlice(..) => self.has_asked_more = true,
        }
    }
}

/// What it says about the file that its parser ended in this way. `problem` is what was wrong with its messages.
pub(super) fn judge(
    request: &ParseRequest,
    result: Option<ParsingResult>,
    problem: Option<String>,
    end: &End,
    output: &Tail,
) -> Outcome {
    // Whatever happened afterwards: the file was parsed, and what it holds is known.
    if let Some(result) = result {
        return Outcome::Found(Box::new(result));
    }
    let why = match end {
        End::NotStarted(why) => return Outcome::Again { why: chain(why) },
        End::Stopped | End::KeeperLost(_) => {
            return Outcome::Again {
                why: end.to_string(),
            };
        }
        // Somebody else did that, perhaps the system without memory. A file that is to blame meets the limit first.
        End::Signalled(9) => {
            return Outcome::Again {
                why: end.to_string(),
            };
        }
        End::TooLong(TooLong::Wall(limit)) => format!(
            "the file took longer than {limit:?} to import ([dag_processor] dag_file_processor_timeout), and its parser \
             was killed: move what takes time from the file's top level into tasks, or raise the limit"
        ),
        End::Exited(0) => {
            "the parser ended without a result: does the file exit, or replace the process?"
                .to_owned()
        }
        End::Exited(_)
        | End::Signalled(_)
        | End::TooLong(TooLong::Silence(_))
        | End::TooLarge(_)
        | End::Garbage(_)
        | End::ClosedPipe { .. } => end.to_string(),
    };
    let why = problem.unwrap_or(why);
    let printed = output.last_lines(LAST_LINES);
    let text = if printed.is_empty() {
        why
    } else {
        format!("{why}\nIts last lines:\n{printed}")
    };
    Outcome::Found(Box::new(ParsingResult::failed(request, text)))
}

/// The environment has no parser: that says nothing about the file.
pub(super) fn no_parser(why: &[String]) -> Outcome {
    let why = why.join("; ");
    Outcome::Again {
        why: format!(
            "expected Airflow 3.1 or newer in the Python environment that parses DAG files, found none that can be \
             imported ({why}): install apache-airflow there, or name another interpreter"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        end::{NotStarted, TooLarge},
        frame::FrameError,
    };

    fn request() -> ParseRequest {
        ParseRequest::of_file("b", "/dags", "a.py")
    }

    fn judged(end: &End, printed: &str) -> Outcome {
        let mut output = Tail::new(1000);
        output.push(printed.as_bytes());
        judge(&request(), None, None, end, &output)
    }

    #[test]
    fn what_is_the_fault_of_the_file_is_an_import_error_of_it() {
        let memory = TooLarge::Memory { found: 3, max: 2 };
        for (end, words) in [
            (End::Exited(0), "without a result"),
            (End::Exited(3), "found 3"),
            (End::Signalled(11), "SIGSEGV"),
            (
                End::TooLong(TooLong::Wall(Duration::from_secs(50))),
                "dag_file_processor_timeout",
            ),
            (End::TooLarge(memory), "memory"),
            (End::Garbage(FrameError::Trailing(1)), "protocol"),
            (
                End::ClosedPipe {
                    after: Duration::from_secs(10),
                },
                "closed its pipe",
            ),
        ] {
            let Outcome::Found(result) = judged(&end, "ValueError: no\n") else {
                panic!("{end:?}");
            };
            let text = &result.import_errors["a.py"];
            assert!(text.contains(words), "{text}");
            assert!(text.ends_with("Its last lines:\nValueError: no"), "{text}");
            assert!(result.dags.is_empty());
        }
    }

    #[test]
    fn what_is_not_says_nothing_about_the_file() {
        for (end, words) in [
            (
                End::NotStarted(NotStarted::Slow(Duration::from_secs(1))),
                "overloaded",
            ),
            (End::Stopped, "stopped"),
            (End::KeeperLost(String::new()), "start it again"),
            (End::Signalled(9), "SIGKILL"),
        ] {
            let Outcome::Again { why } = judged(&end, "") else {
                panic!("{end:?}");
            };
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn a_result_counts_however_its_parser_ends() {
        let result = ParsingResult {
            dags: Vec::new(),
            import_errors: [("a.py".to_owned(), "Traceback".to_owned())].into(),
            warnings: Vec::new(),
        };
        for end in [End::Exited(1), End::Signalled(9), End::Stopped] {
            let judged = judge(&request(), Some(result.clone()), None, &end, &Tail::new(0));
            assert_eq!(judged, Outcome::Found(Box::new(result.clone())));
        }
    }
}
