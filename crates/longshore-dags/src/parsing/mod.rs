//! Python DAG files: from the files of bundles to rows.
//!
//! ```text
//! bundle ─▶ look (local.rs, git.rs) ─▶ units to parse (bundle.rs) ─▶ child ─▶ found.rs ─▶ Catalog ─▶ scheduler's round
//! ```
//!
//! Each bundle is followed by a loop of its own, and all of them share the children. What a child finds is news for the
//! catalog; `catalog/parsed.rs` decides which rows change, and the scheduler's round commits them. Nothing here writes
//! rows, so a parse that is repeated after a crash has the same effect.

mod bundle;
mod found;
mod git;
mod local;
mod questions;

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

use jiff::SignedDuration;
use longshore_bundles::{
    BundleName, Discovery, IgnoreSyntax, QueueSettings,
    git::{GitBundle, PruneSettings},
};
use longshore_python::{
    Limits, Prefork, PreforkSpec, Restarts, Starter,
    parser::{PARSER_MODULES, Parser},
};
use longshore_store::ToldStore;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{base::shared::Shared, secrets::Secrets};
use bundle::Following;
use questions::Questions;

/// How long the modules of the parser may take to be imported. A machine under load needs many seconds.
const PRELOAD_LIMIT: Duration = Duration::from_secs(120);

/// The environment of Python that has Airflow.
#[derive(Clone)]
pub struct PythonEnvironment {
    /// The interpreter: `bin/python` of a virtual environment.
    pub interpreter: PathBuf,
    /// The whole environment of children.
    pub env: BTreeMap<OsString, OsString>,
    /// Their working directory.
    pub cwd: PathBuf,
}

/// Without the values of the environment, which may be secrets.
impl std::fmt::Debug for PythonEnvironment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PythonEnvironment")
            .field("interpreter", &self.interpreter)
            .field("env", &self.env.keys())
            .field("cwd", &self.cwd)
            .finish()
    }
}

/// How files are parsed; the names are those of Airflow's configuration.
#[derive(Clone, Debug)]
pub struct ParsingSettings {
    /// Children at the same time, for all bundles; `[dag_processor] parsing_processes`.
    pub parsing_processes: usize,
    /// From a parse to the next one of a file whose code asks for variables and the like; `[dag_processor]
    /// min_file_process_interval`.
    pub min_file_process_interval: SignedDuration,
    /// A child that takes longer is killed; `[dag_processor] dag_file_processor_timeout`.
    pub dag_file_processor_timeout: Duration,
    /// Which modules are parsed; `[core] dag_discovery_safe_mode`.
    pub discovery: Discovery,
    /// How lines of `.airflowignore` are read; `[core] dag_ignore_file_syntax`.
    pub ignore_syntax: IgnoreSyntax,
    /// Whether a DAG that does not say so is paused when it is first seen; `[core] dags_are_paused_at_creation`.
    pub are_paused_at_creation: bool,
    /// Which old commits are removed from the disk.
    pub prune: PruneSettings,
}

impl Default for ParsingSettings {
    fn default() -> Self {
        let queue = QueueSettings::default();
        Self {
            parsing_processes: queue.n_parallel,
            min_file_process_interval: queue.refresh_interval,
            dag_file_processor_timeout: Duration::from_secs(50),
            discovery: Discovery::default(),
            ignore_syntax: IgnoreSyntax::default(),
            are_paused_at_creation: true,
            prune: PruneSettings::default(),
        }
    }
}

/// A bundle that is followed.
#[derive(Debug)]
pub struct FollowedBundle {
    /// Its name, as workers have it too.
    pub name: BundleName,
    /// How often it is looked at without a notification, or fetched; `refresh_interval`.
    pub refresh_interval: Duration,
    /// Where its files are.
    pub source: BundleSource,
}

/// Where the files of a bundle are.
#[derive(Debug)]
pub enum BundleSource {
    /// In a folder, as they are now.
    Local(PathBuf),
    /// In the work trees of a git repository.
    Git(Box<GitBundle>),
}

/// Everything that parsing needs.
pub struct ParsingConfig {
    /// The environment with Airflow.
    pub python: PythonEnvironment,
    /// The bundles.
    pub bundles: Vec<FollowedBundle>,
    /// How their files are parsed.
    pub settings: ParsingSettings,
    /// Variables and connections, which DAG files ask for.
    pub told: Arc<dyn ToldStore>,
    /// How those are encrypted.
    pub secrets: Secrets,
}

impl std::fmt::Debug for ParsingConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParsingConfig")
            .field("interpreter", &self.python.interpreter)
            .field("bundles", &self.bundles)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// What the loops of all bundles share.
struct Parsers {
    parser: Parser,
    questions: Questions,
    /// A place for each child.
    free: Semaphore,
    settings: ParsingSettings,
}

/// Follows all bundles until shutdown.
pub(crate) async fn follow(
    shared: Arc<Shared>,
    config: ParsingConfig,
    shutdown: CancellationToken,
) {
    let ParsingConfig {
        python,
        bundles,
        settings,
        told,
        secrets,
    } = config;
    let parsers = Arc::new(Parsers {
        parser: parser(python, &settings),
        questions: Questions::new(told, secrets, shared.clock.clone()),
        free: Semaphore::new(settings.parsing_processes.max(1)),
        settings,
    });
    let following = bundles.into_iter().map(|bundle| {
        let FollowedBundle {
            name,
            refresh_interval,
            source,
        } = bundle;
        let (shared, parsers) = (Arc::clone(&shared), Arc::clone(&parsers));
        let of_bundle = Following::new(shared, parsers, name);
        let shutdown = shutdown.clone();
        async move {
            match source {
                BundleSource::Local(folder) => {
                    local::follow(of_bundle, &folder, refresh_interval, shutdown).await;
                }
                BundleSource::Git(git) => {
                    git::follow(of_bundle, &git, refresh_interval, shutdown).await;
                }
            }
        }
    });
    futures::future::join_all(following).await;
}

fn parser(python: PythonEnvironment, settings: &ParsingSettings) -> Parser {
    let PythonEnvironment {
        interpreter,
        env,
        cwd,
    } = python;
    let spec = PreforkSpec {
        interpreter,
        env: env.clone(),
        cwd: cwd.clone(),
        preload: PARSER_MODULES.map(str::to_owned).to_vec(),
        preload_timeout: PRELOAD_LIMIT,
    };
    let prefork = Prefork::new(spec, Restarts::default());
    let limits = Limits {
        wall: Some(settings.dag_file_processor_timeout),
        ..Limits::PARSER
    };
    Parser::new(Starter::Prefork(Box::new(prefork)), env, cwd, limits)
}

#[cfg(test)]
mod tests;
