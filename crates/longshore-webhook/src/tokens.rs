//! Which tokens are accepted, and when a token is replaced. Pure.
//!
//! An API server puts the whole URL of a webhook, and so the token, into the error that its client gets when the
//! webhook does not answer. A token therefore lasts no longer than [`LIFETIME`], and a process replaces the token that
//! it finds at its start: while no process ran, requests of API servers failed with that token in the error. The new
//! token is accepted as soon as the Secret has it, and is published only then. The token before it is accepted until
//! [`OVERLAP`] after all webhook configurations were seen with the new one: API servers watch the configurations.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use subtle::Choice;

use crate::token::Token;

/// How long a token is still accepted after all webhook configurations had the next one.
pub const OVERLAP: SignedDuration = SignedDuration::from_secs(60);
/// How old a token becomes: the bound for errors of API servers that no replica sees, as after a network partition.
pub const LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// How old a token has to be before a request that was given up replaces it: an attacker who can
/// make API servers give requests up must not cause a write for each.
const GIVEN_UP: SignedDuration = SignedDuration::from_mins(10);
/// Tokens that are still accepted, beside the current one. More than that is a process that starts again and again.
const MAX_PREVIOUS: usize = 16;

/// The tokens, as the Secret has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tokens {
    /// What webhook configurations have, or will have in a moment.
    pub(crate) current: Token,
    made_at: Timestamp,
    /// Whether all webhook configurations were seen with it.
    is_published: bool,
    /// Earlier tokens that API servers may still use.
    previous: Vec<Previous>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Previous {
    token: Token,
    /// Until when the token is accepted; without end while the next token is not published.
    until: Option<Timestamp>,
}

/// Why clients of API servers may know a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Suspicion {
    /// Nothing suggests that the token has leaked.
    #[default]
    None,
    /// An API server gave up a request that this process had not answered yet.
    GivenUp,
    /// The token was there when this process started.
    FoundAtStart,
}

/// What is known about the current token beside what the Secret has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Circumstances {
    /// Whether this process has seen all webhook configurations with it.
    pub(crate) is_published: bool,
    pub(crate) suspicion: Suspicion,
    /// Whether this process publishes the token: it writes webhook configurations, and callers name tokens. A token
    /// that an administrator publishes by hand is never replaced, because no process could publish the next one.
    pub(crate) is_ours_to_publish: bool,
}

/// What a process knows of the current token beside what the Secret has.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Whether the process has seen the Secret, or that there is none.
    has_begun: bool,
    suspect: Option<(Token, Suspicion)>,
}

impl Memory {
    /// What is known of the current token, of which `published` was last seen in all webhook configurations. A token that
    /// is there before the process is suspect, and stays so until this process or another one replaces it.
    pub(crate) fn circumstances(
        &mut self,
        tokens: Option<&Tokens>,
        published: Option<&Token>,
        is_ours_to_publish: bool,
    ) -> Circumstances {
        let current = tokens.map(|tokens| &tokens.current);
        if !std::mem::replace(&mut self.has_begun, true) {
            self.suspect = current.map(|token| (token.clone(), Suspicion::FoundAtStart));
        }
        self.suspect = self.suspect.take().filter(|(it, _)| Some(it) == current);
        let suspicion = self.suspect.as_ref().map(|(_, why)| *why);
        Circumstances {
            is_published: current.is_some() && published == current,
            suspicion: suspicion.unwrap_or_default(),
            is_ours_to_publish,
        }
    }

    /// An API server that named this token gave up a request.
    pub(crate) fn gave_up(&mut self, token: Token) {
        self.suspect.get_or_insert((token, Suspicion::GivenUp));
    }

    /// Whether a request that is given up would change nothing.
    pub(crate) fn is_suspicious(&self) -> bool {
        self.suspect.is_some()
    }
}

/// The next step about tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenStep {
    /// Nothing is due.
    Keep,
    /// Make the first token.
    Begin,
    /// Note that the current token is published. From then on the time of the tokens before it runs.
    Note,
    /// Forget the tokens whose time is over.
    Forget,
    /// Make another token.
    Replace,
}

/// Decides the next step about tokens.
pub(crate) fn step(
    tokens: Option<&Tokens>,
    circumstances: Circumstances,
    now: Timestamp,
) -> TokenStep {
    let Some(tokens) = tokens else {
        return TokenStep::Begin;
    };
    if !tokens.is_published {
        // The next token has to wait, or API servers might use a token that was never noted.
        return match circumstances.is_published && circumstances.is_ours_to_publish {
            true => TokenStep::Note,
            false => TokenStep::Keep,
        };
    }
    if tokens.previous.iter().any(|it| !it.is_accepted(now)) {
        return TokenStep::Forget;
    }
    let due = match circumstances.suspicion {
        Suspicion::None => LIFETIME,
        Suspicion::GivenUp => GIVEN_UP,
        Suspicion::FoundAtStart => SignedDuration::ZERO,
    };
    let is_due = now.duration_since(tokens.made_at) >= due
        || circumstances.suspicion == Suspicion::FoundAtStart;
    match is_due && circumstances.is_ours_to_publish && tokens.previous.len() < MAX_PREVIOUS {
        true => TokenStep::Replace,
        false => TokenStep::Keep,
    }
}

/// What is kept after a step; `None` where that is what was kept before. `make` makes a token.
pub(crate) fn apply<E>(
    step: TokenStep,
    tokens: Option<&Tokens>,
    now: Timestamp,
    make: impl Fn() -> Result<Token, E>,
) -> Result<Option<Tokens>, E> {
    Ok(match (step, tokens) {
        (TokenStep::Keep | TokenStep::Note | TokenStep::Forget, None) | (TokenStep::Keep, _) => {
            None
        }
        (TokenStep::Begin | TokenStep::Replace, tokens) => {
            Some(Tokens::after(tokens, make()?, now))
        }
        (TokenStep::Note, Some(tokens)) => Some(tokens.noted(now)),
        (TokenStep::Forget, Some(tokens)) => Some(Tokens {
            previous: tokens.accepted(now).cloned().collect(),
            ..tokens.clone()
        }),
    })
}

impl Tokens {
    /// This token, and those that API servers may still use.
    pub(crate) fn after(before: Option<&Self>, token: Token, now: Timestamp) -> Self {
        let mut previous: Vec<Previous> = before
            .into_iter()
            .flat_map(|before| before.accepted(now))
            .cloned()
            .collect();
        previous.extend(before.map(|before| Previous {
            token: before.current.clone(),
            until: None,
        }));
        Self {
            current: token,
            made_at: now,
            is_published: false,
            previous,
        }
    }

    /// The same tokens once the current one is published.
    fn noted(&self, now: Timestamp) -> Self {
        let end = now.saturating_add(OVERLAP).unwrap_or(Timestamp::MAX);
        let mut tokens = self.clone();
        tokens.is_published = true;
        for previous in &mut tokens.previous {
            previous.until.get_or_insert(end);
        }
        tokens
    }

    fn accepted(&self, now: Timestamp) -> impl Iterator<Item = &Previous> {
        self.previous
            .iter()
            .filter(move |previous| previous.is_accepted(now))
    }

    /// Whether this token is accepted now, which makes its caller an API server.
    pub(crate) fn accept(&self, text: &str, now: Timestamp) -> bool {
        let previous = self.accepted(now).map(|previous| &previous.token);
        let all = std::iter::once(&self.current).chain(previous);
        // Compares all tokens, however soon one fits: the time reveals nothing.
        all.fold(Choice::from(0), |found, token| found | token.is(text))
            .into()
    }

    /// When there is something to do next, unless something happens.
    pub(crate) fn due(&self, now: Timestamp) -> Option<Timestamp> {
        self.accepted(now).filter_map(|it| it.until).min()
    }
}

impl Previous {
    fn is_accepted(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

#[cfg(test)]
mod tests;
