//! Commands that call a service: its address, the meaning of names, and the printing of responses.

use std::{
    future::Future,
    io::{BufRead, IsTerminal},
    path::PathBuf,
    str::FromStr,
};

use clap::Args;
use longshore_console::{
    Problem, RunName, TaskName,
    client::{Client, ClientError, ClientFile, normal_address},
    names::{NameError, is_id},
    token::Token,
};
use tokio::runtime;

use crate::{cli::is_on_command_line, data_dir, error::CliError, output};

pub(crate) mod actions;
pub(crate) mod dags;
pub(crate) mod flink;
mod follow;
pub(crate) mod images;
pub(crate) mod logs;
pub(crate) mod pods;
pub(crate) mod pools;
mod print;
pub(crate) mod runs;
mod table;
pub(crate) mod tasks;
mod watch;

/// The word for the newest run of a DAG.
const LATEST: &str = "latest";

/// The service that a command calls.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerArgs {
    /// Address of the service [default: the one in client.yaml]
    #[arg(long, value_name = "URL", env = "LONGSHORE_SERVER", hide_env = true)]
    server: Option<String>,
    /// Data directory of the service, with its client.yaml
    #[arg(long, value_name = "DIR", env = "LONGSHORE_DATA_DIR", hide_env = true)]
    data_dir: Option<PathBuf>,
    // Hidden: other users of the machine see the command line.
    /// Token for the service that --server names [default: that of client.yaml]
    #[arg(long, hide = true, env = "LONGSHORE_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

impl ServerArgs {
    /// A client of the service.
    ///
    /// The token of `client.yaml` goes only to the address that the file names: another one gets the token of the
    /// environment, or none.
    fn connect(&self) -> Result<Client, CliError> {
        let given = self.server.as_deref().map(normal_address).transpose()?;
        let token = self.token.as_deref().map(Token::new);
        if token.is_some() && is_on_command_line("--token", std::env::args_os()) {
            output::note(
                "the token is on the command line, where every user of this machine can read it: set LONGSHORE_TOKEN, or name the data directory with --data-dir, whose client.yaml has the token",
            );
        }
        if let (Some(server), Some(token)) = (&given, &token) {
            return Ok(Client::new(server, Some(token.clone()))?);
        }
        let data_dir = match (&self.data_dir, data_dir::default_path()) {
            (Some(given), _) => given.clone(),
            (None, Ok(default)) => default,
            // A user who names the service needs no home directory.
            (None, Err(_)) if given.is_some() => PathBuf::new(),
            (None, Err(error)) => return Err(error),
        };
        let file = ClientFile::read(&data_dir)?;
        match (given, file) {
            (None, None) => Err(CliError::NoServer {
                file: ClientFile::path(&data_dir),
            }),
            (None, Some(file)) => Ok(Client::new(
                &file.server,
                Some(token.unwrap_or(file.token)),
            )?),
            (Some(server), file) => {
                let known = file.filter(|file| {
                    normal_address(&file.server).is_ok_and(|address| address == server)
                });
                let token = token.or(known.map(|file| file.token));
                Ok(Client::new(&server, token)?)
            }
        }
    }

    /// The flags that name the same service on the next command line, with a blank in front.
    fn flags(&self) -> String {
        let server = self.server.as_ref().map(|url| format!(" --server {url}"));
        let data_dir = self.data_dir.as_ref();
        let data_dir = data_dir.map(|path| format!(" --data-dir {}", path.display()));
        server.into_iter().chain(data_dir).collect()
    }
}

/// Runs what a command does with the service.
fn block_on<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|_| CliError::Internal {
        place: "the runtime of the command".to_owned(),
    })?;
    runtime.block_on(work)
}

/// A run as people name it: `DAG/RUN`, or `DAG` and `DAG/latest` for its newest one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunTarget {
    dag_id: String,
    run_id: Option<String>,
}

impl FromStr for RunTarget {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if is_id(text) && !text.contains('/') {
            return Ok(Self {
                dag_id: text.to_owned(),
                run_id: None,
            });
        }
        let RunName { dag_id, run_id } = text.parse()?;
        Ok(Self {
            dag_id,
            run_id: Some(run_id).filter(|run_id| run_id != LATEST),
        })
    }
}

impl RunTarget {
    /// The run that is meant now.
    async fn resolve(&self, client: &Client) -> Result<RunName, CliError> {
        let dag_id = self.dag_id.clone();
        if let Some(run_id) = self.run_id.clone() {
            return Ok(RunName { dag_id, run_id });
        }
        let query = [("dagId", dag_id.clone()), ("limit", "1".to_owned())];
        match client.runs(&query).await?.items.pop() {
            Some(run) => Ok(RunName {
                dag_id,
                run_id: run.run_id,
            }),
            None => Err(no_run(&dag_id).into()),
        }
    }
}

fn no_run(dag_id: &str) -> ClientError {
    let problem = Problem::new(
        http::StatusCode::NOT_FOUND,
        "LS1391",
        format!("there is no run of the DAG {dag_id}"),
        format!("`longshore dags trigger {dag_id}` starts one"),
    );
    ClientError::Refused(Box::new(problem))
}

/// A task as people name it: `DAG/RUN/TASK`, where RUN may be `latest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskTarget(TaskName);

impl FromStr for TaskTarget {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        text.parse().map(Self)
    }
}

impl TaskTarget {
    /// The task that is meant now.
    async fn resolve(&self, client: &Client) -> Result<TaskName, CliError> {
        let RunName { dag_id, run_id } = self.0.run.clone();
        let run_id = Some(run_id).filter(|run_id| run_id != LATEST);
        let run = RunTarget { dag_id, run_id }.resolve(client).await?;
        Ok(TaskName {
            run,
            ..self.0.clone()
        })
    }
}

/// Asks the user before a change that cannot be taken back; a program has to pass `--yes`.
pub(crate) fn confirm(what: &str, answered: Answered) -> Result<(), CliError> {
    if answered == Answered::Yes {
        return Ok(());
    }
    let not_confirmed = || CliError::NotConfirmed {
        what: what.to_owned(),
    };
    if !(std::io::stdin().is_terminal() && output::stderr_is_terminal()) {
        return Err(not_confirmed());
    }
    output::note(&format!("{what}? [y/N]"));
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    let is_yes = read.is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str());
    is_yes.then_some(()).ok_or_else(not_confirmed)
}

/// Whether the command line has confirmed, by `--yes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    Yes,
    No,
}

impl From<bool> for Answered {
    fn from(is_yes: bool) -> Self {
        if is_yes { Self::Yes } else { Self::No }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dag_alone_means_its_newest_run() {
        for (text, run_id) in [
            ("etl", Ok(None)),
            ("etl/latest", Ok(None)),
            ("etl/r1", Ok(Some("r1"))),
            ("etl/r1/x", Err(())),
            ("", Err(())),
        ] {
            let target = text.parse::<RunTarget>();
            let found = target.map(|target| target.run_id).map_err(|_| ());
            assert_eq!(found, run_id.map(|id| id.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn the_token_of_the_file_goes_to_the_server_of_the_file_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = ClientFile {
            server: "http://127.0.0.1:7080".to_owned(),
            token: Token::new("of-the-file"),
        };
        file.write(folder.path()).unwrap();
        let connect = |server: Option<&str>| {
            let args = ServerArgs {
                server: server.map(str::to_owned),
                data_dir: Some(folder.path().to_owned()),
                token: None,
            };
            let client = args.connect().unwrap();
            (client.server().to_owned(), client.has_token())
        };
        let own = "http://127.0.0.1:7080".to_owned();
        assert_eq!(connect(None), (own.clone(), true));
        assert_eq!(connect(Some("127.0.0.1:7080/")), (own, true));
        let other = "http://evil.example:7080";
        assert_eq!(connect(Some(other)), (other.to_owned(), false));
    }
}
