//! Where a repository is fetched from. Pure.
//!
//! A user writes the URL, so only schemes without surprises are allowed (section 5.5 of the ecosystem specification).

use std::fmt;

use percent_encoding::percent_decode_str;
use thiserror::Error;
use url::Url;

/// Which remotes a configuration may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedRemotes {
    /// Those behind `https` and `ssh`.
    HttpsAndSsh,
    /// Repositories on this machine, too: for a laptop.
    LocalToo,
}

/// How a remote is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// `https`.
    Https,
    /// `ssh`.
    Ssh,
    /// A folder of this machine.
    File,
}

impl Transport {
    /// Git's name of it.
    pub(crate) fn protocol(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Ssh => "ssh",
            Self::File => "file",
        }
    }
}

/// Why a remote may not be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "expected `https://HOST/PATH`, `ssh://HOST/PATH` or `USER@HOST:PATH` as the URL of a repository: {0}"
)]
pub struct InvalidRemote(&'static str);

/// A password, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The password itself.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// The user and password of a URL that has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Embedded {
    /// The user.
    pub(crate) user: String,
    /// The password.
    pub(crate) password: Secret,
}

/// A repository to fetch from. Its text has no password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    url: String,
    transport: Transport,
    embedded: Option<Embedded>,
}

impl Remote {
    /// The remote of a URL.
    ///
    /// # Errors
    /// The URL is none, or has a scheme that is not allowed. The error does not contain the URL.
    pub fn parse(text: &str, allowed: AllowedRemotes) -> Result<Self, InvalidRemote> {
        if text.starts_with('-') || text.chars().any(char::is_control) {
            return Err(InvalidRemote(
                "it begins with `-` or has control characters",
            ));
        }
        let local = match text.strip_prefix("file://") {
            Some(path) => Some(path),
            None => text.starts_with('/').then_some(text),
        };
        if local.is_some_and(|path| path.starts_with('/')) {
            return match allowed {
                AllowedRemotes::HttpsAndSsh => Err(InvalidRemote(
                    "a folder of this machine is allowed in standalone mode only",
                )),
                AllowedRemotes::LocalToo => Ok(Self::plain(text, Transport::File)),
            };
        }
        match text.split_once("://") {
            Some(("https", _)) => Self::https(text),
            Some(("ssh", rest)) => {
                let (authority, _) = rest.split_once('/').unwrap_or((rest, ""));
                ssh_authority(authority)?;
                Ok(Self::plain(text, Transport::Ssh))
            }
            Some(_) => Err(InvalidRemote("this scheme is not allowed")),
            None => {
                let (authority, path) = text
                    .split_once(':')
                    .filter(|(authority, _)| authority.contains('@') && !authority.contains('/'))
                    .ok_or(InvalidRemote("it has no scheme"))?;
                if path.is_empty() || path.starts_with(['-', ':']) {
                    return Err(InvalidRemote("it has no path"));
                }
                ssh_authority(authority)?;
                Ok(Self::plain(text, Transport::Ssh))
            }
        }
    }

    fn plain(url: &str, transport: Transport) -> Self {
        Self {
            url: url.to_owned(),
            transport,
            embedded: None,
        }
    }

    fn https(text: &str) -> Result<Self, InvalidRemote> {
        let invalid = InvalidRemote("it cannot be read");
        let mut url = Url::parse(text).map_err(|_| invalid.clone())?;
        if url.host_str().is_none_or(str::is_empty) {
            return Err(InvalidRemote("it has no host"));
        }
        let Some(password) = url.password() else {
            return Ok(Self::plain(text, Transport::Https));
        };
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let embedded = Embedded {
            user: decoded(url.username()),
            password: Secret(decoded(password)),
        };
        url.set_password(None).map_err(|()| invalid.clone())?;
        url.set_username("").map_err(|()| invalid)?;
        Ok(Self {
            embedded: Some(embedded),
            ..Self::plain(url.as_str(), Transport::Https)
        })
    }

    /// The URL, as git is given it, without a password.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How it is reached.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    pub(crate) fn embedded(&self) -> Option<&Embedded> {
        self.embedded.as_ref()
    }

    /// The folder of a remote on this machine.
    pub(crate) fn local_path(&self) -> Option<&str> {
        let path = self.url.strip_prefix("file://").unwrap_or(&self.url);
        (self.transport == Transport::File).then_some(path)
    }

    /// What git compares with the URL before it asks for credentials: scheme, host and port.
    pub(crate) fn scope(&self) -> String {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("ssh", &self.url));
        let authority = rest.split('/').next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        format!("{scheme}://{host}")
    }
}

/// User and host become arguments of `ssh`: neither may look like an option.
fn ssh_authority(authority: &str) -> Result<(), InvalidRemote> {
    let (user, host) = authority.split_once('@').unwrap_or(("git", authority));
    if user.is_empty() || user.starts_with('-') || user.contains(':') {
        return Err(InvalidRemote(
            "it has no user, or a password, which ssh cannot use",
        ));
    }
    if host.is_empty() || host.starts_with(['-', ':']) || host.contains('@') {
        return Err(InvalidRemote("it has no host"));
    }
    Ok(())
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_remotes_without_surprises_are_read() {
        let local = AllowedRemotes::LocalToo;
        for (text, expected) in [
            ("https://example.org/a.git", Some(Transport::Https)),
            ("https://user@example.org:8443/a", Some(Transport::Https)),
            ("ssh://git@example.org:2222/a", Some(Transport::Ssh)),
            ("git@example.org:team/a.git", Some(Transport::Ssh)),
            ("file:///srv/a.git", Some(Transport::File)),
            ("/srv/a.git", Some(Transport::File)),
            ("http://example.org/a", None),
            ("git://example.org/a", None),
            ("ext::sh -c touch% /tmp/x", None),
            ("a@ext::sh", None),
            ("fd::3", None),
            ("--upload-pack=x", None),
            ("ssh://-oProxyCommand=x/a", None),
            ("ssh://-o@example.org/a", None),
            ("ssh://user:password@example.org/a", None),
            ("-o@example.org:a", None),
            ("git@-oProxyCommand=x:a", None),
            ("git@example.org:-x", None),
            ("git@example.org:", None),
            ("relative/a", None),
            ("../a", None),
            ("file://host/a", None),
            ("https://", None),
            ("https://example.org/a\nb", None),
            ("", None),
        ] {
            let remote = Remote::parse(text, local);
            assert_eq!(remote.map(|it| it.transport()).ok(), expected, "{text}");
        }
        for text in ["/srv/a.git", "file:///srv/a.git"] {
            assert!(Remote::parse(text, AllowedRemotes::HttpsAndSsh).is_err());
        }
    }

    #[test]
    fn a_password_is_taken_out_of_the_url_and_never_shown() {
        let text = "https://us%40er:pass%2Fword@example.org:8443/a.git";
        let remote = Remote::parse(text, AllowedRemotes::HttpsAndSsh).unwrap();
        assert_eq!(remote.url(), "https://example.org:8443/a.git");
        assert_eq!(remote.scope(), "https://example.org:8443");
        let embedded = remote.embedded().unwrap();
        assert_eq!(embedded.user, "us@er");
        assert_eq!(embedded.password.reveal(), "pass/word");
        let shown = format!("{remote} {remote:?}");
        for secret in ["pass/word", "pass%2Fword"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}
