//! DAG files in Python: the environment with Airflow, its configuration, and the bundles. Off unless an interpreter is
//! named.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use jiff::SignedDuration;
use longshore_airflow::{
    config::{AirflowConfig, CoreSettings, DagProcessorSettings, IgnoreFileSyntax, InvalidValue},
    fernet::Fernet,
};
use longshore_bundles::{
    BundleConfig, BundleName, Discovery, IgnoreSyntax,
    config::{GitConfig, Source},
    git::{
        GitBundle, GitLimits, GitProgram, GitSettings, PruneSettings, credentials::Credentials,
        remote::AllowedRemotes,
    },
};
use longshore_core::error::chain;
use longshore_dags::{
    parsing::{BundleSource, FollowedBundle, ParsingConfig, ParsingSettings, PythonEnvironment},
    secrets::Secrets,
};

use super::scheduling::Scheduling;
use crate::error::CliError;

/// Airflow's name of the bundle that is its folder of DAG files.
const DAGS_FOLDER: &str = "dags-folder";

/// Variables that git needs: proxies, certificates, an agent of ssh, and where programs are.
const OF_GIT: [&str; 11] = [
    "PATH",
    "HOME",
    "SSH_AUTH_SOCK",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// How DAG files in Python are parsed.
// Hidden: the help has to fit the first screen.
#[derive(Args, Clone, Debug)]
pub(crate) struct AirflowArgs {
    /// Python with Airflow, which parses DAG files in Python; without it, they are left alone
    #[arg(
        long,
        hide = true,
        value_name = "FILE",
        env = "LONGSHORE_AIRFLOW_PYTHON",
        hide_env = true
    )]
    airflow_python: Option<PathBuf>,
    /// Airflow's configuration [default: the variables AIRFLOW__SECTION__KEY alone]
    #[arg(
        long,
        hide = true,
        value_name = "FILE",
        env = "AIRFLOW_CONFIG",
        hide_env = true
    )]
    airflow_config: Option<PathBuf>,
}

/// What is parsed, and with what.
#[derive(Clone)]
pub(crate) struct AirflowPlan {
    python: PythonEnvironment,
    settings: DagProcessorSettings,
    /// `None`: the folder of DAG files alone.
    bundles: Option<Vec<BundleConfig>>,
    fernet_key: String,
    storage: PathBuf,
}

/// Without the key of secrets.
impl std::fmt::Debug for AirflowPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AirflowPlan")
            .field("python", &self.python)
            .field("settings", &self.settings)
            .field("bundles", &self.bundles)
            .finish_non_exhaustive()
    }
}

impl AirflowArgs {
    /// What the arguments and the environment say; `None` where no interpreter is named.
    pub(crate) fn plan(
        &self,
        data_dir: &Path,
        remotes: AllowedRemotes,
    ) -> Result<Option<AirflowPlan>, CliError> {
        let Some(interpreter) = &self.airflow_python else {
            return Ok(None);
        };
        let interpreter = std::path::absolute(interpreter).unwrap_or_else(|_| interpreter.clone());
        if !interpreter.is_file() {
            return Err(CliError::FileMissing { path: interpreter });
        }
        let variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        let file = self.airflow_config.as_ref();
        let text = file.map_or(Ok(String::new()), fs::read_to_string);
        let text = text.map_err(|source| CliError::FileUnreadable {
            path: file.cloned().unwrap_or_default(),
            source,
        })?;
        let texts = variables.iter();
        let texts = texts.filter_map(|(name, value)| {
            Some((name.to_str()?.to_owned(), value.to_str()?.to_owned()))
        });
        let config = AirflowConfig::read(&text, &texts.collect());
        for problem in config.problems() {
            tracing::info!(%problem, "Airflow's configuration");
        }
        let settings = DagProcessorSettings::read(&config).map_err(invalid)?;
        let core = CoreSettings::read(&config).map_err(invalid)?;
        let list = settings.bundle_list.as_deref();
        let bundles = list.map(|list| BundleConfig::parse_list(list, remotes));
        let bundles = bundles.transpose().map_err(|error| wrong(&error))?;
        let home = data_dir.join("airflow");
        let storage = settings.bundle_storage_path.as_ref();
        Ok(Some(AirflowPlan {
            python: environment(interpreter, file, variables, home)?,
            storage: storage.map_or_else(|| data_dir.join("bundles"), PathBuf::from),
            bundles,
            settings,
            fernet_key: core.fernet_key,
        }))
    }
}

/// The environment of children: ours, without what is Longshore's own.
fn environment(
    interpreter: PathBuf,
    config: Option<&PathBuf>,
    variables: BTreeMap<OsString, OsString>,
    home: PathBuf,
) -> Result<PythonEnvironment, CliError> {
    let is_ours = |name: &OsString| name.to_string_lossy().starts_with("LONGSHORE_");
    let others = variables.into_iter().filter(|(name, _)| !is_ours(name));
    let mut env: BTreeMap<OsString, OsString> = others.collect();
    fs::create_dir_all(&home).map_err(|source| CliError::in_data_dir(home.clone(), source))?;
    let mut set_default = |name: &str, value: OsString| {
        env.entry(name.into()).or_insert(value);
    };
    set_default("AIRFLOW_HOME", home.clone().into());
    set_default("AIRFLOW__CORE__LOAD_EXAMPLES", "False".into());
    if let Some(config) = config {
        let config = std::path::absolute(config).unwrap_or_else(|_| config.clone());
        set_default("AIRFLOW_CONFIG", config.into());
    }
    Ok(PythonEnvironment {
        interpreter,
        env,
        cwd: home,
    })
}

impl AirflowPlan {
    /// Follows the bundles. `dags_folder` is that of the service.
    pub(crate) fn follow(
        &self,
        scheduling: &Scheduling,
        dags_folder: &Path,
    ) -> Result<(), CliError> {
        let settings = &self.settings;
        let fernet = Fernet::new(&self.fernet_key).map_err(|error| wrong(&error))?;
        let config = ParsingConfig {
            python: self.python.clone(),
            bundles: self.bundles(dags_folder)?,
            settings: ParsingSettings {
                parsing_processes: settings.parsing_processes as usize,
                min_file_process_interval: SignedDuration::try_from(
                    settings.min_file_process_interval,
                )
                .unwrap_or(SignedDuration::MAX),
                dag_file_processor_timeout: settings.dag_file_processor_timeout,
                discovery: match settings.is_discovery_safe {
                    true => Discovery::SafeMode,
                    false => Discovery::Everything,
                },
                ignore_syntax: match settings.ignore_file_syntax {
                    IgnoreFileSyntax::Glob => IgnoreSyntax::Glob,
                    IgnoreFileSyntax::Regexp => IgnoreSyntax::Regexp,
                },
                are_paused_at_creation: settings.are_paused_at_creation,
                prune: PruneSettings {
                    interval: settings.cleanup_interval,
                    age_threshold: settings.cleanup_age_threshold,
                    min_versions: settings.cleanup_min_versions as usize,
                },
            },
            told: Arc::clone(&scheduling.store) as _,
            secrets: Secrets::new(fernet),
        };
        scheduling.dags.follow_bundles(config);
        Ok(())
    }

    fn bundles(&self, dags_folder: &Path) -> Result<Vec<FollowedBundle>, CliError> {
        let said = self.settings.dags_folder.as_ref().map(PathBuf::from);
        let folder = said.unwrap_or_else(|| dags_folder.to_owned());
        let Some(bundles) = &self.bundles else {
            return Ok(vec![FollowedBundle {
                name: BundleName::new(DAGS_FOLDER).map_err(|error| wrong(&error))?,
                refresh_interval: self.settings.refresh_interval,
                source: BundleSource::Local(folder),
            }]);
        };
        let followed = bundles.iter().map(|bundle| {
            let interval = bundle.refresh_interval;
            let source = match &bundle.source {
                Source::Local { path } => {
                    BundleSource::Local(path.clone().unwrap_or_else(|| folder.clone()))
                }
                Source::Git(git) => BundleSource::Git(Box::new(self.git(&bundle.name, git)?)),
            };
            Ok(FollowedBundle {
                name: bundle.name.clone(),
                refresh_interval: interval.unwrap_or(self.settings.refresh_interval),
                source,
            })
        });
        followed.collect()
    }

    fn git(&self, name: &BundleName, git: &GitConfig) -> Result<GitBundle, CliError> {
        let Some(remote) = git.remote.clone() else {
            return Err(CliError::Usage {
                message: format!("the bundle {name} has no repo_url"),
                help: "write repo_url into its kwargs: Longshore does not take the URL from git_conn_id"
                    .to_owned(),
            });
        };
        let settings = GitSettings {
            remote,
            credentials: Credentials::None,
            tracking_ref: git.tracking_ref.clone(),
            subdir: git.subdir.clone(),
            sparse_dirs: git.sparse_dirs.clone(),
            limits: GitLimits::default(),
        };
        let env = self.python.env.iter();
        let env = env.filter(|(key, _)| OF_GIT.iter().any(|name| *key == name));
        let program = GitProgram {
            environment: env
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            ..GitProgram::default()
        };
        Ok(GitBundle::new(&self.storage, name, settings, program))
    }
}

/// Follows the bundles of a plan; where there is none, Python DAGs of earlier starts are not active.
pub(crate) fn follow(
    plan: Option<&AirflowPlan>,
    scheduling: &Scheduling,
    dags_folder: &Path,
) -> Result<(), CliError> {
    match plan {
        Some(plan) => plan.follow(scheduling, dags_folder),
        None => {
            scheduling.dags.follow_no_bundles();
            Ok(())
        }
    }
}

const HELP: &str =
    "correct the file that --airflow-config names, or the variable AIRFLOW__SECTION__KEY";

fn invalid(values: Vec<InvalidValue>) -> CliError {
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    CliError::Usage {
        message: format!(
            "Airflow's configuration has an invalid value: {}",
            values.join("; ")
        ),
        help: HELP.to_owned(),
    }
}

fn wrong(error: &(dyn std::error::Error + 'static)) -> CliError {
    CliError::Usage {
        message: chain(error),
        help: HELP.to_owned(),
    }
}
