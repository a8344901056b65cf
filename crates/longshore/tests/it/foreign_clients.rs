//! Clients that others wrote, unmodified, find in `longshore standalone` what they find in a cluster: Helm, a manager
//! of controller-runtime, client-go, the client for Python, and fabric8, all of them on one service, which is killed
//! once in between. Skipped where `LONGSHORE_TEST_CLIENTS` names no directory of them; `cargo xtask clients` makes one.

mod objects;
mod operator;
mod scripts;

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
};

use objects::Objects;
use operator::Operator;
use scripts::Scripts;
use serde_json::json;
use tempfile::TempDir;

use crate::{repository, service_process::Service};

/// What `cargo xtask clients` has made.
struct Given(PathBuf);

impl Given {
    fn from_environment() -> Option<Self> {
        #[expect(clippy::disallowed_methods, reason = "tests read the environment")]
        let folder = std::env::var_os("LONGSHORE_TEST_CLIENTS").filter(|it| !it.is_empty());
        if folder.is_none() {
            println!("clients: skipped, LONGSHORE_TEST_CLIENTS names none");
        }
        folder.map(|folder| Self(folder.into()))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// A file of the sources of our own parts of them.
fn source(name: &str) -> PathBuf {
    repository()
        .join("crates/longshore/tests/clients")
        .join(name)
}

/// The service, and the clients.
struct World {
    given: Given,
    /// Ends before its directory goes: its processes are found by the files that they have open.
    service: Service,
    folder: TempDir,
}

impl World {
    /// Clients outside of the cluster come back to the port that they know, so it stays the same.
    fn start(given: Given) -> Self {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["data", "dags", "home"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        let images = json!({
            "manager:1": {"entrypoint": [given.file("bin/manager")], "network": "pod"},
            "check:1": {"network": "pod"},
            "script:1": {
                "entrypoint": [given.file("venv/bin/python"), source("python/client.py")],
                "env": {"PYTHONDONTWRITEBYTECODE": "1"},
                "network": "pod",
            },
            "target:1": {},
        });
        fs::write(path("data/images.yaml"), images.to_string()).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port().to_string();
        drop(free);
        let more = ["--kube-port", port.as_str()];
        let service = Service::start_in_with(&path("data"), &path("dags"), &more);
        Self {
            given,
            folder,
            service,
        }
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn kubeconfig(&self) -> String {
        self.service.ready("kubeconfig")
    }

    async fn objects(&self) -> Objects {
        Objects::of(Path::new(&self.kubeconfig())).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_others_wrote_find_a_cluster() {
    let Some(given) = Given::from_environment() else {
        return;
    };
    let mut world = World::start(given);
    let objects = world.objects().await;
    let scripts = Scripts::start(&world, &objects).await;
    let operator = Operator::install(&world);
    operator.is_installed(&objects).await;
    scripts.until_they_watch(&objects).await;

    world.service.kill();
    world.service.restart();
    let objects = world.objects().await;
    scripts.tell_the_restart(&objects).await;
    scripts.end(&objects).await;

    operator.follows_another_leader(&objects).await;
    operator.is_upgraded(&objects).await;
    operator.is_rolled_back(&objects).await;
    operator.is_removed(&objects).await;
}
