//! The parts in front of a scheduler: its folder of DAG files, and the HTTP API.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use kube::{Api, Client};
use longshore_console::{
    Access, Checks, Feed, Hosts, Token, beside, client::ClientFile, router, serve::serve,
};
use longshore_kit::{SystemClock, Tasks};
use tokio::net::TcpListener;

use crate::{
    control::{Logs, ServiceControl, publish_changes},
    engine::scheduling::Scheduling,
    error::CliError,
    progress::phases::Phases,
};

/// How long requests under way have to end.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// The front of a scheduler. Dropping it cuts its connections.
pub(crate) struct Front {
    tasks: Tasks,
    control: Arc<ServiceControl>,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.tasks.abort();
    }
}

impl Front {
    /// Reads the folder, and serves the API when the scheduler knows what is in it.
    pub(crate) async fn start(
        scheduling: &Scheduling,
        client: Client,
        dags_folder: &Path,
        phases: &Phases,
    ) -> Result<Self, CliError> {
        phases.wait_for("the DAG folder to be read");
        let followed = scheduling.dags.follow(dags_folder);
        followed.map_err(|source| CliError::DagsFolder {
            path: dags_folder.to_owned(),
            source,
        })?;
        scheduling.dags.first_look().await;

        let (tasks, feed) = (Tasks::new(), Feed::default());
        let changes = publish_changes(scheduling.dags.changes(), feed.clone());
        let stopping = tasks.shutdown();
        tasks.spawn("console.feed", async move {
            stopping.run_until_cancelled(changes).await;
        });
        let control = Arc::new(ServiceControl {
            dags: scheduling.dags.clone(),
            store: scheduling.store.catalog(),
            logs: Logs {
                directory: scheduling.logs.clone(),
                pods: Api::namespaced(client, &scheduling.namespace),
            },
            feed,
            clock: Arc::new(SystemClock),
            metrics: scheduling.metrics.clone(),
        });
        Ok(Self { tasks, control })
    }

    /// Serves the API to clients with this token, and the Task Execution API to workers with theirs.
    pub(crate) fn serve(
        &self,
        scheduling: &mut Scheduling,
        listener: TcpListener,
        token: Token,
        hosts: Hosts,
    ) {
        let access = Access { token, hosts };
        let mut api = router(self.control.clone(), access, self.tasks.shutdown());
        if let Some(execution) = scheduling.serve_workers(&self.tasks) {
            api = beside(api, "/execution", execution);
        }
        let served = serve(listener, api, self.tasks.shutdown());
        self.tasks.spawn("console", served);
    }

    /// The checks of everything that the service needs in order to serve.
    pub(crate) fn checks(&self) -> Arc<dyn Checks> {
        self.control.clone()
    }

    /// The tasks of the front: what is spawned there ends with it.
    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Waits until a part of the front broke.
    pub(crate) async fn broken(&self) -> String {
        self.tasks.shutdown().cancelled().await;
        "a part of the APIs broke".to_owned()
    }

    /// Takes no more requests, and lets those under way end.
    pub(crate) async fn stop(&self) {
        if !self.tasks.stop(DRAIN_LIMIT).await {
            tracing::warn!("some requests did not end in time");
        }
    }
}

/// Writes the address of the API into a file for clients on this machine; returns their token.
pub(crate) fn tell_clients(data_dir: &Path, server: &str) -> Result<Token, CliError> {
    Ok(ClientFile::renew(data_dir, server)?.token)
}

/// The folder of DAG files. The default one is made where it is missing; one that was named has to be there.
pub(crate) fn dags_folder(named: Option<&PathBuf>, data_dir: &Path) -> Result<PathBuf, CliError> {
    if let Some(folder) = named {
        return Ok(folder.clone());
    }
    let folder = data_dir.join("dags");
    match std::fs::create_dir_all(&folder) {
        Ok(()) => Ok(folder),
        Err(source) => Err(CliError::in_data_dir(folder, source)),
    }
}
