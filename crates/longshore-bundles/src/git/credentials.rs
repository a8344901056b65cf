//! How git proves who it is: by a file or by a program, never by an argument. Pure.

use std::{ffi::OsString, path::PathBuf};

use super::remote::{Remote, Transport};

/// What git may use to be let in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Nothing: a public repository.
    #[default]
    None,
    /// For `https`: a file whose first line is a password or token. Git's helper reads it for each fetch, so a token
    /// that is replaced on disk is used from then on.
    PasswordFile {
        /// The user; Airflow's default is `user`.
        user: String,
        /// The file. Other users must not be able to read it.
        file: PathBuf,
    },
    /// For `https`: a program that speaks git's protocol of credential helpers.
    Helper {
        /// The program, absolute.
        program: PathBuf,
    },
    /// For `ssh`.
    Ssh(Ssh),
}

/// How `ssh` is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ssh {
    /// The private key, without a passphrase. Without one, ssh's agent is asked.
    pub key_file: Option<PathBuf>,
    /// The known hosts; the user's own if there is none.
    pub known_hosts_file: Option<PathBuf>,
    /// A configuration file of ssh.
    pub config_file: Option<PathBuf>,
    /// Which hosts are believed.
    pub host_keys: HostKeys,
}

/// Which hosts `ssh` believes (Airflow: `strict_host_key_checking` of the connection).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostKeys {
    /// Those with a known key only.
    #[default]
    Known,
    /// Those with a known key, and those that are met for the first time.
    AcceptNew,
}

/// What git is told by its environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Entries of git's configuration.
    pub(crate) config: Vec<(String, String)>,
    /// Variables.
    pub(crate) variables: Vec<(OsString, OsString)>,
}

/// Answers git from a file, with what every shell has built in.
const FILE_HELPER: &str = r#"!f() { test "$1" = get || return 0; IFS= read -r p < "$LONGSHORE_GIT_FILE" || test -n "$p" || return 1; printf 'username=%s\npassword=%s\n' "$LONGSHORE_GIT_USER" "$p"; }; f"#;

/// A connection that gives no sign of life ends by itself, also when nobody is left who would end it.
const SSH_LIMITS: &str = "-o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=15 -o ServerAliveCountMax=4 -o ControlPath=none";

impl Credentials {
    pub(crate) fn tell(&self, remote: &Remote) -> Told {
        let key = format!("credential.{}.helper", remote.scope());
        // An empty helper takes those away that other configuration names.
        let helper = |value: String| vec![(key.clone(), String::new()), (key.clone(), value)];
        let is_https = remote.transport() == Transport::Https;
        match self {
            Self::PasswordFile { user, file } if is_https => Told {
                config: helper(FILE_HELPER.to_owned()),
                variables: vec![
                    ("LONGSHORE_GIT_USER".into(), user.into()),
                    ("LONGSHORE_GIT_FILE".into(), file.into()),
                ],
            },
            Self::Helper { program } if is_https => Told {
                config: helper(format!("!{}", quoted(&program.to_string_lossy()))),
                variables: Vec::new(),
            },
            Self::Ssh(ssh) => ssh.tell(),
            Self::None | Self::PasswordFile { .. } | Self::Helper { .. } => Ssh::default().tell(),
        }
    }
}

impl Ssh {
    fn tell(&self) -> Told {
        let mut command = format!("ssh {SSH_LIMITS}");
        let path = |path: &PathBuf| quoted(&path.to_string_lossy());
        if let Some(file) = &self.key_file {
            command += &format!(" -i {} -o IdentitiesOnly=yes", path(file));
        }
        if let Some(file) = &self.known_hosts_file {
            command += &format!(" -o UserKnownHostsFile={}", path(file));
        }
        if let Some(file) = &self.config_file {
            command += &format!(" -F {}", path(file));
        }
        command += match self.host_keys {
            HostKeys::Known => " -o StrictHostKeyChecking=yes",
            HostKeys::AcceptNew => " -o StrictHostKeyChecking=accept-new",
        };
        Told {
            config: Vec::new(),
            variables: vec![("GIT_SSH_COMMAND".into(), command.into())],
        }
    }
}

/// One word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::{super::remote::AllowedRemotes, *};

    #[test]
    fn paths_are_one_word_for_the_shell() {
        for (text, expected) in [("a b", "'a b'"), ("a'b", r"'a'\''b'"), ("$(x)", "'$(x)'")] {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn each_transport_gets_its_own() {
        let file = Credentials::PasswordFile {
            user: "u".to_owned(),
            file: "/f".into(),
        };
        let ssh = Credentials::Ssh(Ssh {
            key_file: Some("/k y".into()),
            known_hosts_file: Some("/h".into()),
            config_file: Some("/c".into()),
            host_keys: HostKeys::AcceptNew,
        });
        let command = |end: &str| format!("ssh {SSH_LIMITS}{end}");
        let strict = command(" -o StrictHostKeyChecking=yes");
        let full = command(
            " -i '/k y' -o IdentitiesOnly=yes -o UserKnownHostsFile='/h' -F '/c' -o StrictHostKeyChecking=accept-new",
        );
        for (credentials, url, n_helpers, ssh) in [
            (&file, "https://h:1/a", 2, None),
            (&file, "ssh://h/a", 0, Some(&strict)),
            (&Credentials::None, "ssh://h/a", 0, Some(&strict)),
            (&ssh, "git@h:a", 0, Some(&full)),
        ] {
            let remote = Remote::parse(url, AllowedRemotes::HttpsAndSsh).unwrap();
            let told = credentials.tell(&remote);
            assert_eq!(told.config.len(), n_helpers, "{url}");
            assert!(
                told.config
                    .iter()
                    .all(|(key, _)| key == "credential.https://h:1.helper")
            );
            let found = told
                .variables
                .iter()
                .find(|(name, _)| name == "GIT_SSH_COMMAND");
            let found = found.map(|(_, value)| value.to_string_lossy().into_owned());
            assert_eq!(found.as_ref(), ssh, "{url}");
        }
    }
}
