//! The SDK in its virtual environment, and the server in it that speaks S3.

use std::{
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::{repository, service_process::until};

/// The environment variables about S3 that the SDK reads: endpoint, credentials and region.
pub(super) const VARIABLES: [&str; 4] = [
    "FLYTE_AWS_ENDPOINT",
    "FLYTE_AWS_ACCESS_KEY_ID",
    "FLYTE_AWS_SECRET_ACCESS_KEY",
    "AWS_REGION",
];

/// The SDK in its virtual environment.
pub(super) struct Sdk {
    venv: PathBuf,
}

impl Sdk {
    pub(super) fn given() -> Option<Self> {
        #[expect(clippy::disallowed_methods, reason = "tests read the environment")]
        let Some(venv) = std::env::var_os("LONGSHORE_TEST_FLYTE_SDK") else {
            println!(
                "skipped: no Flyte SDK (`cargo xtask flyte-sdk` makes what LONGSHORE_TEST_FLYTE_SDK names)"
            );
            return None;
        };
        Some(Self { venv: venv.into() })
    }

    /// `$PATH` of a container that has it.
    pub(super) fn path(&self) -> String {
        format!(
            "{}:/usr/local/bin:/usr/bin:/bin",
            self.venv.join("bin").display()
        )
    }

    /// What `testdata/flyte/sdk.py` prints.
    pub(super) fn run(
        &self,
        folder: &Path,
        variables: &[(&'static str, String)],
        arguments: &[&str],
    ) -> Value {
        let output = Command::new(self.venv.join("bin/python"))
            .arg(repository().join("crates/longshore/testdata/flyte/sdk.py"))
            .args(arguments)
            .current_dir(folder)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// A server that speaks S3 and keeps everything in memory.
pub(super) struct Moto {
    child: Child,
    address: String,
}

impl Moto {
    pub(super) fn start(sdk: &Sdk) -> Self {
        // The server cannot report its port: this one was free a moment ago.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let child = Command::new(sdk.venv.join("bin/moto_server"))
            .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let moto = Self {
            child,
            address: address.to_string(),
        };
        until("the server that speaks S3 listens", || {
            TcpStream::connect(&moto.address).is_ok()
        });
        moto
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
