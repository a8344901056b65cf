//! A foreign system that plays a script: it answers the questions that a controller asks beside its rounds.
//!
//! It belongs to the world, so that it remembers the questions while the controller is killed and
//! started again. Each start of the controller has a [`ForeignClient`] of its own, which has the
//! faults of the run: the point of a question is `ask <kind>`.

use std::{
    collections::BTreeMap,
    fmt,
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use longshore_core::{AskError, NoAnswer};

use crate::faults::{Injected, Process};

/// What the system does with a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Answers at once.
    Answers(String),
    /// Answers after this time. A process that was killed meanwhile does not get the answer.
    AnswersAfter(Duration, String),
    /// Takes the question in after this time, even if the client no longer waits for the answer.
    LandsAfter(Duration, String),
    /// Takes the question in and says nothing.
    Hangs,
    /// Fails at once with this cause and text.
    Fails(NoAnswer, String),
}

/// A foreign system. Clones are the same one.
#[derive(Clone)]
pub struct ForeignSystem {
    shared: Arc<Shared>,
}

struct Shared {
    script: Script,
    log: Mutex<Log>,
}

type Script = Box<dyn Fn(&str, u32) -> Reply + Send + Sync>;

#[derive(Debug, Default)]
struct Log {
    n_sent: BTreeMap<String, u32>,
    taken_in: Vec<String>,
}

/// The client of a foreign system for one start of the process under test.
#[derive(Clone, Debug)]
pub struct ForeignClient {
    system: ForeignSystem,
    process: Process,
}

impl fmt::Debug for ForeignSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ForeignSystem").field(&*self.log()).finish()
    }
}

impl ForeignSystem {
    /// A system whose reply is `script(question, n)` when it gets a question for the n-th time, counted from 1.
    pub fn new(script: impl Fn(&str, u32) -> Reply + Send + Sync + 'static) -> Self {
        Self {
            shared: Arc::new(Shared {
                script: Box::new(script),
                log: Mutex::default(),
            }),
        }
    }

    /// The questions that it has taken in, in their order.
    pub fn taken_in(&self) -> Vec<String> {
        self.log().taken_in.clone()
    }

    /// The way to it for one start of the process under test.
    pub fn through(&self, process: &Process) -> ForeignClient {
        ForeignClient {
            system: self.clone(),
            process: process.clone(),
        }
    }

    async fn take(&self, question: &str) -> Result<String, AskError> {
        let n = {
            let mut log = self.log();
            let n = log.n_sent.entry(question.to_owned()).or_default();
            *n += 1;
            *n
        };
        let reply = (self.shared.script)(question, n);
        if let Reply::LandsAfter(time, answer) = reply {
            let (system, question) = (self.clone(), question.to_owned());
            let landing = tokio::spawn(async move {
                tokio::time::sleep(time).await;
                system.log().taken_in.push(question);
            });
            let landed = landing.await;
            return landed
                .map(|()| answer)
                .map_err(|error| AskError::new(NoAnswer::Unreachable, error.to_string()));
        }
        self.log().taken_in.push(question.to_owned());
        match reply {
            Reply::Answers(answer) | Reply::LandsAfter(_, answer) => Ok(answer),
            Reply::AnswersAfter(time, answer) => {
                tokio::time::sleep(time).await;
                Ok(answer)
            }
            Reply::Hangs => pending().await,
            Reply::Fails(why, message) => Err(AskError { why, message }),
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        let log = self.shared.log.lock();
        log.unwrap_or_else(PoisonError::into_inner)
    }
}

impl ForeignClient {
    /// Sends a question, under the faults of the run.
    ///
    /// # Errors
    /// The error of the script, or of the fault: a refused question does not arrive, a lost answer
    /// is one that timed out.
    pub async fn ask(&self, kind: &'static str, question: &str) -> Result<String, AskError> {
        let point = format!("ask {kind}");
        let (system, question) = (self.system.clone(), question.to_owned());
        let taken = async move { system.take(&question).await };
        let asked = self.process.request(&point, taken);
        asked.await.unwrap_or_else(|injected| {
            let why = match injected {
                Injected::Refused(_) => NoAnswer::Unreachable,
                Injected::Lost => NoAnswer::TimedOut,
            };
            Err(AskError::new(why, injected.to_string()))
        })
    }
}
