//! What the code of DAG files asks while it is imported: variables and connections.

use std::sync::Arc;

use longshore_airflow::{
    api::store::{Connection, Variable, VariableKeys},
    parser::{ParserQuestion, ParserReply},
};
use longshore_core::error::chain;
use longshore_kit::Clock;
use longshore_python::parser::ParserRows;
use longshore_store::{Sealed, Shared, StoreError, StoredConnection, StoredVariable, ToldStore};

use crate::secrets::{SecretError, Secrets};

/// Variables and connections of the database.
pub(super) struct Questions {
    told: Arc<dyn ToldStore>,
    secrets: Secrets,
    clock: Arc<dyn Clock>,
}

/// Why a question has no answer. The code sees an exception.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error("the database does not answer")]
    Store(#[from] StoreError),
    #[error("a stored secret cannot be read")]
    Secret(#[from] SecretError),
    #[error(
        "runs, task instances and XComs cannot be asked for while a DAG file is parsed: ask for them in a task"
    )]
    NotWhileParsing,
}

impl Questions {
    pub(super) fn new(told: Arc<dyn ToldStore>, secrets: Secrets, clock: Arc<dyn Clock>) -> Self {
        Self {
            told,
            secrets,
            clock,
        }
    }

    async fn reply(&self, question: &ParserQuestion) -> Result<ParserReply, NoAnswer> {
        use ParserQuestion as Q;
        Ok(match question {
            Q::Variable(key) => match self.told.variable(key).await? {
                Some(stored) => ParserReply::Variable(Variable {
                    key: stored.key,
                    value: Some(self.secrets.open(&stored.value)?),
                }),
                None => ParserReply::Missing,
            },
            Q::VariableKeys(query) => {
                let prefix = query.prefix.as_deref().unwrap_or_default();
                let page = self.told.variable_keys(prefix, query.offset, query.limit);
                let page = page.await?;
                ParserReply::VariableKeys(VariableKeys {
                    keys: page.keys,
                    total_entries: page.n_all,
                })
            }
            Q::PutVariable(key, put) => {
                let value = put.val.as_deref().unwrap_or_default();
                let variable = StoredVariable {
                    key: key.clone(),
                    value: self.secrets.seal(value, self.clock.now())?,
                    description: put.description.clone(),
                };
                self.told.keep(Shared::Variable(variable)).await?;
                ParserReply::Done
            }
            Q::DeleteVariable(key) => {
                self.told.keep(Shared::NoVariable(key.clone())).await?;
                ParserReply::Done
            }
            Q::Connection(id) => match self.told.connection(id).await? {
                Some(stored) => ParserReply::Connection(self.connection(stored)?),
                None => ParserReply::Missing,
            },
            Q::MaskSecret => ParserReply::Done,
            Q::CountTaskInstances(_)
            | Q::TaskStates(_)
            | Q::PreviousTaskInstance { .. }
            | Q::PreviousDagRun(_)
            | Q::PreviousSuccessfulRun(_)
            | Q::XCom(..)
            | Q::CountXComs(_)
            | Q::XComItem(..)
            | Q::XComSlice(..) => return Err(NoAnswer::NotWhileParsing),
        })
    }

    fn connection(&self, stored: StoredConnection) -> Result<Connection, SecretError> {
        let open = |sealed: Option<Sealed>| sealed.map(|it| self.secrets.open(&it)).transpose();
        Ok(Connection {
            conn_id: stored.conn_id,
            conn_type: stored.conn_type,
            host: stored.host,
            schema: stored.schema,
            login: stored.login,
            password: open(stored.password)?,
            port: stored.port,
            extra: open(stored.extra)?,
        })
    }
}

impl ParserRows for Questions {
    async fn answer(&self, question: &ParserQuestion) -> ParserReply {
        let reply = self.reply(question).await;
        reply.unwrap_or_else(|why| ParserReply::Failed(chain(&why)))
    }
}
