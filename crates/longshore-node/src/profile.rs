//! How far containers can be set apart from the host on this machine.

use std::{fmt, path::Path};

use crate::{config::NodeConfig, shim::ARG_PROBE};

/// An isolation profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// As root: mount, pid and host name namespaces, the host under a private writable layer.
    Full,
    /// As any user, inside a user namespace: the same, where the kernel lets a user layer a directory.
    User,
    /// Plain child processes.
    None,
}

impl Profile {
    /// The name in flags and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::User => "user",
            Self::None => "none",
        }
    }

    /// The isolation that pods do not have in this profile, as a sentence for the user who starts the node.
    #[must_use]
    pub fn what_is_lost(self) -> &'static str {
        match self {
            Self::Full => {
                "Pods share the host's network unless their image says `network: pod`, and limits of processor are not \
                 enforced."
            }
            Self::User => {
                "Pods share the host's network unless their image says `network: pod`, limits of processor are not \
                 enforced, each container has a single user, and host directories that cannot be layered are read-only."
            }
            Self::None => {
                "Containers are plain child processes: pods with volume mounts, image mounts, another root file system \
                 or a network of their own are refused, the token of the service account is not mounted, \
                 terminationMessagePath is not read, and containers see and change the host's files."
            }
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Tries the profiles from the best one down and takes the first that works.
pub(crate) async fn detect(config: &NodeConfig) -> Profile {
    for profile in [Profile::Full, Profile::User] {
        match attempt(config, profile).await {
            Ok(()) => return profile,
            Err(why) => tracing::debug!(%profile, %why, "profile not available"),
        }
    }
    Profile::None
}

async fn attempt(config: &NodeConfig, profile: Profile) -> Result<(), String> {
    let scratch = config.root.join("probe");
    let output = run_probe(config, profile, &scratch).await;
    drop(std::fs::remove_dir_all(&scratch));
    let output = output.map_err(|e| e.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

async fn run_probe(
    config: &NodeConfig,
    profile: Profile,
    scratch: &Path,
) -> std::io::Result<std::process::Output> {
    std::fs::create_dir_all(scratch)?;
    let (program, args) = config
        .shim_command
        .split_first()
        .ok_or_else(|| std::io::Error::other("the node has no shim command"))?;
    tokio::process::Command::new(program)
        .args(args)
        .args([ARG_PROBE, profile.as_str()])
        // The layers are beside the directory of an attempt.
        .arg(scratch.join("0"))
        .output()
        .await
}
