//! Why a store did not do what was asked for.

use longshore_core::{Class, Classify, text::shorten_to};
use object_store::Error;

/// What is quoted of a store's words, in bytes.
const MAX_QUOTE: usize = 1024;

/// A store that did not do what was asked for. Nothing is known of the file.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// No store is configured for URLs of this kind.
    #[error("expected a URL of a store that is configured ({configured}), found {url}")]
    Unsupported {
        /// The URL.
        url: String,
        /// Schemes of URLs that can be used.
        configured: String,
    },
    /// No file can be there, whatever the store has: to wait would not help.
    #[error("no file can be at {url}: {why}")]
    Impossible {
        /// The URL.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The configuration names what actions of this namespace may use, and the URL is not among it.
    #[error(
        "expected a URL that actions of namespace {namespace} may name ({allowed}), found {url}"
    )]
    NotAllowed {
        /// The URL.
        url: String,
        /// The namespace.
        namespace: String,
        /// What they may name.
        allowed: String,
    },
    /// The store knows us, or does not, and does not let us.
    #[error("{url} cannot be {action}: its store refuses with {why}")]
    Refused {
        /// The URL.
        url: String,
        /// What was to be done.
        action: Action,
        /// The store's own words.
        why: String,
    },
    /// There is no such bucket.
    #[error("{url} cannot be {action}: there is no such bucket")]
    NoBucket {
        /// The URL.
        url: String,
        /// What was to be done.
        action: Action,
    },
    /// A file system that has no such directory, and does not let us make it.
    #[error("the directory {url} cannot be made")]
    NoDirectory {
        /// The URL.
        url: String,
        /// Why.
        source: std::io::Error,
    },
    /// Anything else.
    #[error("{url} cannot be {action}")]
    Failed {
        /// The URL.
        url: String,
        /// What was to be done.
        action: Action,
        /// Why.
        source: Error,
    },
}

/// What is done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is read.
    Read,
    /// It is written.
    Written,
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Written => "written",
        })
    }
}

impl Classify for DataError {
    fn class(&self) -> Class {
        match self {
            Self::Unsupported { .. } | Self::Impossible { .. } | Self::NotAllowed { .. } => {
                Class::Invalid
            }
            Self::Refused { .. }
            | Self::NoBucket { .. }
            | Self::NoDirectory { .. }
            | Self::Failed { .. } => Class::Retry,
        }
    }
}

impl DataError {
    /// Whether the store has answered, or there is none to ask: the same request gets the same answer. Otherwise the store
    /// has failed for the moment.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Unsupported { .. }
            | Self::Impossible { .. }
            | Self::NotAllowed { .. }
            | Self::Refused { .. }
            | Self::NoBucket { .. } => true,
            Self::NoDirectory { .. } | Self::Failed { .. } => false,
        }
    }

    /// The whole of it in one line that is the same as long as the trouble is the same: the error, and what is at the
    /// bottom of it. Between them are counts and times.
    pub fn why(&self) -> String {
        let mut last: Option<&dyn std::error::Error> = std::error::Error::source(self);
        while let Some(next) = last.and_then(std::error::Error::source) {
            last = Some(next);
        }
        match last {
            Some(last) => format!("{self}: {}", answer(&last.to_string())),
            None => self.to_string(),
        }
    }

    /// What an error of a store means. A file that is missing is none, unless it is the bucket that is.
    pub(crate) fn of(url: &str, action: Action, source: Error) -> Self {
        let url = url.to_owned();
        let words = source.to_string();
        if ["NoSuchBucket", "ContainerNotFound"]
            .iter()
            .any(|code| words.contains(code))
        {
            return Self::NoBucket { url, action };
        }
        if let Error::PermissionDenied { .. } | Error::Unauthenticated { .. } = source {
            let why = answer(&words);
            return Self::Refused { url, action, why };
        }
        Self::Failed {
            url,
            action,
            source,
        }
    }
}

/// The code and message in an answer of S3 or Azure, or what there is. Azure adds the id and the time of the request, and
/// its service for tokens does the same: the trouble stays the same where they differ.
fn answer(words: &str) -> String {
    let between = |open: &str, close: &str| {
        let (_, rest) = words.split_once(open)?;
        Some(rest.split_once(close)?.0)
    };
    let code = between("<Code>", "</Code>");
    let message = between("<Message>", "</Message>");
    let message = message.and_then(|message| message.lines().next());
    let quote = match (code, message) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => {
            let (words, _) = words.split_once(" Trace ID:").unwrap_or((words, ""));
            words.to_owned()
        }
    };
    shorten_to(quote, MAX_QUOTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_store_are_quoted_in_short() {
        let long = "a".repeat(1 << 20);
        for (words, expected) in [
            ("<Code>No</Code>".to_owned(), "No".to_owned()),
            (
                format!("<Code>No</Code><Message>{long}</Message>"),
                shorten_to(format!("No: {long}"), MAX_QUOTE),
            ),
            (long.clone(), shorten_to(long, MAX_QUOTE)),
            (
                "<Code>No</Code><Message>Not now.\nRequestId:1\nTime:2</Message>".to_owned(),
                "No: Not now.".to_owned(),
            ),
            (
                "AADSTS70021: no such client. Trace ID: 1 Timestamp: 2".to_owned(),
                "AADSTS70021: no such client.".to_owned(),
            ),
        ] {
            assert_eq!(answer(&words), expected);
        }
    }
}
