//! When a certificate is replaced, and with it the token. Pure. [`tokens`](crate::tokens) says when
//! a token is replaced by itself.
//!
//! A new certificate is made when a third of the old one's life is left, and is not served at first: its authority is
//! published to API servers beside the old one's. The server serves the new certificate only when the publication was
//! read back, and [`OVERLAP`] has passed. The authority of the old certificate stays published until the next rotation,
//! because a replica may serve the old one for a moment more. A crash between any two writes leaves a served
//! certificate that some published authority vouches for.

use jiff::{SignedDuration, Timestamp};

use crate::{
    issue::{LIFETIME, Pair},
    kept::Kept,
    token::Token,
    tokens::{self, Circumstances, TokenStep, Tokens},
};

/// How often a replica checks whether a step is due.
pub const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(60);
/// How long a certificate waits to be served after its authority was published: every replica has read the Secret
/// several times by then.
pub const OVERLAP: SignedDuration = SignedDuration::from_mins(5);

/// What is to be done about certificates and tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing is due.
    Keep,
    /// Serve a new certificate at once: there is none that is of use.
    Begin,
    /// Make the next certificate, and publish its authority.
    Prepare,
    /// Serve the next certificate.
    Promote,
    /// Only the tokens change.
    Tokens(TokenStep),
}

/// What is to be done. `is_published` says whether API servers know all authorities of `kept`; `token` is about its
/// current token.
pub(crate) fn step(
    kept: Option<&Kept>,
    names: &[String],
    is_published: bool,
    token: Circumstances,
    now: Timestamp,
) -> Step {
    let Some(kept) = kept else {
        return Step::Begin;
    };
    match certificate_step(kept, names, is_published, now) {
        Step::Keep => match tokens::step(kept.tokens.as_ref(), token, now) {
            TokenStep::Keep => Step::Keep,
            step
            @ (TokenStep::Begin | TokenStep::Note | TokenStep::Forget | TokenStep::Replace) => {
                Step::Tokens(step)
            }
        },
        step @ (Step::Begin | Step::Prepare | Step::Promote | Step::Tokens(_)) => step,
    }
}

fn certificate_step(kept: &Kept, names: &[String], is_published: bool, now: Timestamp) -> Step {
    let left = kept.current.not_after.duration_since(now);
    if kept.names != names || left <= SignedDuration::ZERO {
        return Step::Begin;
    }
    match &kept.next {
        Some((_, made_at)) if is_published && now.duration_since(*made_at) >= OVERLAP => {
            Step::Promote
        }
        Some(_) => Step::Keep,
        None if left < LIFETIME / 3 => Step::Prepare,
        None => Step::Keep,
    }
}

/// What is kept after a step. `issue` makes a certificate, `token` a token.
pub(crate) fn apply<E>(
    step: Step,
    kept: Option<&Kept>,
    names: &[String],
    now: Timestamp,
    issue: impl Fn(&[String], Timestamp) -> Result<Pair, E>,
    token: impl Fn() -> Result<Token, E>,
) -> Result<Option<Kept>, E> {
    let before = kept.and_then(|kept| kept.tokens.as_ref());
    Ok(match (step, kept) {
        (Step::Begin, kept) => Some(Kept {
            current: issue(names, now)?,
            next: None,
            previous_authority: kept.map(|kept| kept.current.authority.clone()),
            names: names.to_vec(),
            tokens: Some(Tokens::after(before, token()?, now)),
        }),
        (Step::Prepare, Some(kept)) => Some(Kept {
            next: Some((issue(names, now)?, now)),
            previous_authority: None,
            ..kept.clone()
        }),
        (Step::Promote, Some(kept)) => match &kept.next {
            None => None,
            Some((next, _)) => Some(Kept {
                current: next.clone(),
                next: None,
                previous_authority: Some(kept.current.authority.clone()),
                names: kept.names.clone(),
                tokens: Some(Tokens::after(before, token()?, now)),
            }),
        },
        (Step::Tokens(step), Some(kept)) => {
            tokens::apply(step, before, now, token)?.map(|tokens| Kept {
                tokens: Some(tokens),
                ..kept.clone()
            })
        }
        (Step::Keep | Step::Prepare | Step::Promote | Step::Tokens(_), _) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::tokens::Suspicion;

    const TOKEN: Circumstances = Circumstances {
        is_published: true,
        suspicion: Suspicion::None,
        is_ours_to_publish: false,
    };

    fn token() -> Result<Token, ()> {
        Ok(Token::of_test("t"))
    }

    fn names() -> Vec<String> {
        vec!["a.b.svc".to_owned()]
    }

    fn start() -> Timestamp {
        "2026-11-22T00:00:00Z".parse().unwrap()
    }

    /// Authorities are numbered lines, so that a bundle can be taken apart.
    fn numbered(next: &Cell<u32>) -> impl Fn(&[String], Timestamp) -> Result<Pair, ()> {
        move |_, now| {
            next.set(next.get() + 1);
            let number = format!("{}\n", next.get());
            Ok(Pair {
                authority: number.clone(),
                certificate: number,
                key: String::new(),
                not_after: now + LIFETIME,
            })
        }
    }

    /// For two years, with a crash after every single write: the writer of the Secret, what API servers know, and what
    /// the slowest replica serves go on one at a time, in the worst order.
    #[test]
    fn at_every_moment_a_published_authority_vouches_for_what_any_replica_serves() {
        let counter = Cell::new(0);
        let issue = numbered(&counter);
        let mut now = start();
        let mut kept = apply(Step::Begin, None, &names(), now, &issue, token)
            .unwrap()
            .unwrap();
        let mut published = kept.bundle();
        // What a replica serves that read the Secret as long ago as it may.
        let mut late = kept.current.certificate.clone();
        let mut steps = Vec::new();
        while now < start() + SignedDuration::from_hours(2 * 365 * 24) {
            let is_published = published == kept.bundle();
            let step = step(Some(&kept), &names(), is_published, TOKEN, now);
            if let Some(after) = apply(step, Some(&kept), &names(), now, &issue, token).unwrap() {
                steps.push(step);
                // The crash: the Secret is written, nothing else has happened yet.
                kept = after;
                for served in [&late, &kept.current.certificate] {
                    assert!(published.lines().any(|it| it == served.trim()), "{steps:?}");
                }
            }
            now += OVERLAP;
            published = kept.bundle();
            assert!(published.lines().any(|it| it == late.trim()), "{steps:?}");
            late = kept.current.certificate.clone();
        }
        assert!(steps.len() >= 20, "{steps:?}");
        for pair in steps.chunks(2) {
            assert!(
                matches!(pair, [Step::Prepare, Step::Promote] | [Step::Prepare]),
                "{steps:?}"
            );
        }
    }

    #[test]
    fn what_is_of_no_use_is_replaced_at_once_and_nothing_is_promoted_unpublished() {
        let counter = Cell::new(0);
        let issue = numbered(&counter);
        let kept = apply(Step::Begin, None, &names(), start(), &issue, token)
            .unwrap()
            .unwrap();
        let later = |hours: i64| start() + SignedDuration::from_hours(hours);
        assert_eq!(step(None, &names(), true, TOKEN, start()), Step::Begin);
        assert_eq!(
            step(Some(&kept), &["other".to_owned()], true, TOKEN, start()),
            Step::Begin
        );
        for (hours, expected) in [
            (0, Step::Keep),
            (59 * 24, Step::Keep),
            (61 * 24, Step::Prepare),
            (90 * 24, Step::Begin),
        ] {
            assert_eq!(
                step(Some(&kept), &names(), true, TOKEN, later(hours)),
                expected,
                "{hours}"
            );
        }
        let due = later(61 * 24);
        let next = apply(Step::Prepare, Some(&kept), &names(), due, &issue, token)
            .unwrap()
            .unwrap();
        assert_eq!(next.current, kept.current);
        assert_eq!(step(Some(&next), &names(), true, TOKEN, due), Step::Keep);
        assert_eq!(
            step(Some(&next), &names(), false, TOKEN, due + OVERLAP),
            Step::Keep
        );
        assert_eq!(
            step(Some(&next), &names(), true, TOKEN, due + OVERLAP),
            Step::Promote
        );
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let counter = Cell::new(0);
        let issue = numbered(&counter);
        let first = apply(Step::Begin, None, &names(), start(), &issue, token)
            .unwrap()
            .unwrap();
        let second = apply(
            Step::Prepare,
            Some(&first),
            &names(),
            start(),
            &issue,
            token,
        )
        .unwrap()
        .unwrap();
        let third = apply(
            Step::Promote,
            Some(&second),
            &names(),
            start(),
            &issue,
            token,
        )
        .unwrap()
        .unwrap();
        for kept in [first, second, third] {
            let secret = serde_json::json!({"data": kept.data()});
            assert_eq!(Kept::of(&secret), Some(kept));
        }
        assert_eq!(
            Kept::of(&serde_json::json!({"data": {"tls.crt": "eA=="}})),
            None
        );
    }
}
