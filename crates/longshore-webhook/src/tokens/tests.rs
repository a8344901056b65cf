use std::cell::Cell;

use super::*;

/// How late an API server may learn of a change of a webhook configuration.
const LAG: SignedDuration = SignedDuration::from_secs(15);
/// By then a token that was printed before a start is refused: the start publishes at once, replicas that know nothing of
/// it look once a minute, and the simulated machine is slow.
const BOUND: SignedDuration = SignedDuration::from_mins(5);

fn start() -> Timestamp {
    "2026-11-23T00:00:00Z".parse().unwrap()
}

fn seconds(n: u32) -> SignedDuration {
    SignedDuration::from_secs(n.into())
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).unwrap() % n
    }
}

/// What a replica does next. Each is one request, and a crash may come before and after each.
#[derive(Clone, Debug)]
enum Next {
    ReadConfiguration,
    ReadSecretToPublish {
        version: usize,
        found: Option<Token>,
    },
    WriteConfiguration {
        version: usize,
        token: Token,
    },
    ReadSecret,
    WriteSecret {
        version: u32,
        tokens: Tokens,
    },
    SleepUntil(Timestamp),
}

struct Replica {
    next: Next,
    memory: Memory,
    published: Option<Token>,
    /// What it accepts without another look; `None` while it does not serve.
    view: Option<Tokens>,
}

impl Replica {
    fn new() -> Self {
        Self {
            next: Next::ReadSecret,
            memory: Memory::default(),
            published: None,
            view: None,
        }
    }
}

struct World {
    now: Timestamp,
    dice: Dice,
    n_tokens: Cell<u32>,
    secret: (u32, Option<Tokens>),
    /// Every version of the configuration, and since when it is there.
    configurations: Vec<(Timestamp, Token)>,
    replicas: [Option<Replica>; 2],
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            now: start(),
            dice: Dice(seed),
            n_tokens: Cell::new(0),
            secret: (0, None),
            configurations: Vec::new(),
            replicas: [Some(Replica::new()), Some(Replica::new())],
        }
    }

    /// Tokens that API servers may still use.
    fn in_use(&self) -> Vec<&Token> {
        let since = self.now - LAG;
        let old = self.configurations.iter().rposition(|(at, _)| *at <= since);
        let used = &self.configurations[old.unwrap_or(0)..];
        used.iter().map(|(_, token)| token).collect()
    }

    /// Whether a replica accepts a token. It reads the Secret again where it does not know it.
    fn is_accepted(&self, view: &Tokens, token: &Token) -> bool {
        let has = |tokens: &Tokens| tokens.accept(token.text(), self.now);
        has(view) || self.secret.1.as_ref().is_some_and(has)
    }

    fn views(&self) -> impl Iterator<Item = &Tokens> {
        let replicas = self.replicas.iter().flatten();
        replicas.filter_map(|replica| replica.view.as_ref())
    }

    fn act(&mut self, which: usize) {
        let Some(mut replica) = self.replicas[which].take() else {
            return;
        };
        let now = self.now;
        replica.next = match replica.next.clone() {
            Next::ReadConfiguration => Next::ReadSecretToPublish {
                version: self.configurations.len(),
                found: self.configurations.last().map(|(_, token)| token.clone()),
            },
            Next::ReadSecretToPublish { version, found } => {
                let token = self.secret.1.as_ref().unwrap().current.clone();
                if found.as_ref() == Some(&token) {
                    replica.published = Some(token);
                    Next::ReadSecret
                } else {
                    Next::WriteConfiguration { version, token }
                }
            }
            Next::WriteConfiguration { version, token } => {
                if version == self.configurations.len() {
                    self.configurations.push((now, token.clone()));
                    replica.published = Some(token);
                }
                Next::ReadSecret
            }
            Next::ReadSecret => self.look(&mut replica),
            Next::WriteSecret { version, tokens } => {
                if version == self.secret.0 {
                    self.secret = (version + 1, Some(tokens.clone()));
                    replica.view = Some(tokens);
                    Next::ReadConfiguration
                } else {
                    // Another replica was first: this one reads the Secret again.
                    Next::ReadSecret
                }
            }
            Next::SleepUntil(at) if at > now => Next::SleepUntil(at),
            Next::SleepUntil(_) => Next::ReadConfiguration,
        };
        self.replicas[which] = Some(replica);
    }

    fn look(&self, replica: &mut Replica) -> Next {
        let (version, tokens) = &self.secret;
        let published = replica.published.as_ref();
        let circumstances = replica
            .memory
            .circumstances(tokens.as_ref(), published, true);
        let step = step(tokens.as_ref(), circumstances, self.now);
        let make = || -> Result<Token, ()> {
            self.n_tokens.set(self.n_tokens.get() + 1);
            Ok(Token::of_test(&format!("token {}", self.n_tokens.get())))
        };
        match apply(step, tokens.as_ref(), self.now, make).unwrap() {
            Some(tokens) => Next::WriteSecret {
                version: *version,
                tokens,
            },
            None => {
                replica.view.clone_from(tokens);
                Next::SleepUntil(self.now + seconds(60))
            }
        }
    }
}

/// Two replicas that share a Secret, for days: each request of each replica by itself, in any order, with crashes before
/// and after every single one.
#[test]
fn at_every_moment_every_replica_accepts_what_any_api_server_may_name_and_a_printed_token_ends() {
    let mut n_replaced = 0;
    for seed in 0..12 {
        let mut world = World::new(seed);
        for round in 1..=60_u32 {
            let begin = start() + SignedDuration::from_mins(20) * i32::try_from(round).unwrap();
            let quiet = begin - SignedDuration::from_mins(10);
            let mut printed: Vec<Token> = Vec::new();
            let mut last_start = world.now;
            while world.now < begin {
                let which = usize::try_from(world.dice.below(2)).unwrap();
                let crashes = world.now < quiet && world.dice.below(60) == 0;
                if crashes && world.replicas[which].is_some() {
                    world.replicas[which] = None;
                } else if world.replicas[which].is_none() {
                    if world.now >= quiet || world.dice.below(10) == 0 {
                        // Whatever API servers used so far, they may have printed.
                        printed.extend(world.in_use().into_iter().cloned());
                        world.replicas[which] = Some(Replica::new());
                        last_start = world.now;
                    }
                } else {
                    world.act(which);
                }
                world.now += SignedDuration::from_millis(world.dice.below(2_000).into());
                for view in world.views() {
                    for token in world.in_use() {
                        assert!(
                            world.is_accepted(view, token),
                            "seed {seed}, round {round}: {view:?}"
                        );
                    }
                }
                if world.now.duration_since(last_start) > BOUND {
                    for view in world.views() {
                        let known = printed.iter().find(|it| world.is_accepted(view, it));
                        assert!(known.is_none(), "seed {seed}, round {round}: {view:?}");
                    }
                }
            }
            assert_eq!(world.views().count(), 2);
            let tokens = world.secret.1.as_ref().unwrap();
            assert!(
                tokens.is_published && tokens.previous.len() <= MAX_PREVIOUS,
                "{tokens:?}"
            );
        }
        n_replaced += world.configurations.len();
    }
    assert!(n_replaced > 12 * 60, "{n_replaced}");
}

fn made(text: &'static str) -> impl Fn() -> Result<Token, ()> {
    move || Ok(Token::of_test(text))
}

fn circumstances(is_published: bool, suspicion: Suspicion) -> Circumstances {
    Circumstances {
        is_published,
        suspicion,
        is_ours_to_publish: true,
    }
}

#[test]
fn a_token_is_replaced_at_a_start_after_a_request_was_given_up_and_after_an_hour() {
    let first = apply(TokenStep::Begin, None, start(), made("a"));
    let first = first.unwrap().unwrap();
    let published = circumstances(true, Suspicion::None);
    let noted = apply(
        step(Some(&first), published, start()),
        Some(&first),
        start(),
        made("-"),
    );
    let noted = noted.unwrap().unwrap();
    let minutes = |n: i64| start() + SignedDuration::from_mins(n);
    use Suspicion::{FoundAtStart, GivenUp, None as No};
    use TokenStep::{Keep, Note, Replace};
    for (tokens, published, suspicion, at, expected) in [
        (&first, false, FoundAtStart, 0, Keep),
        (&first, true, FoundAtStart, 0, Note),
        (&noted, true, FoundAtStart, 0, Replace),
        // A clock that runs behind is no reason to keep it.
        (&noted, true, FoundAtStart, -5, Replace),
        (&noted, true, GivenUp, 9, Keep),
        (&noted, true, GivenUp, 10, Replace),
        (&noted, true, No, 59, Keep),
        (&noted, true, No, 60, Replace),
    ] {
        let circumstances = circumstances(published, suspicion);
        let found = step(Some(tokens), circumstances, minutes(at));
        assert_eq!(found, expected, "{circumstances:?} after {at} min");
    }
    let of_somebody_else = Circumstances {
        is_ours_to_publish: false,
        ..circumstances(true, FoundAtStart)
    };
    assert_eq!(step(Some(&noted), of_somebody_else, minutes(600)), Keep);
    assert_eq!(step(Some(&first), of_somebody_else, minutes(600)), Keep);
}

#[test]
fn the_token_before_is_accepted_for_a_minute_after_the_next_one_was_published() {
    let make = |step, before: Option<&Tokens>, text, at: u32| {
        let now = start() + seconds(at);
        apply(step, before, now, made(text)).unwrap().unwrap()
    };
    let first = make(TokenStep::Begin, None, "a", 0);
    let noted = make(TokenStep::Note, Some(&first), "-", 1);
    let second = make(TokenStep::Replace, Some(&noted), "b", 2);
    let accepted = |tokens: &Tokens, at: u32| {
        let now = start() + seconds(at);
        ["a", "b", "c"].map(|text| tokens.accept(text, now))
    };
    assert_eq!(accepted(&second, 9_999), [true, true, false]);
    let noted = make(TokenStep::Note, Some(&second), "-", 10);
    assert_eq!(accepted(&noted, 69), [true, true, false]);
    assert_eq!(accepted(&noted, 70), [false, true, false]);
    assert_eq!(
        noted.due(start() + seconds(20)),
        Some(start() + seconds(70))
    );
    let published = circumstances(true, Suspicion::None);
    let forget = step(Some(&noted), published, start() + seconds(70));
    assert_eq!(forget, TokenStep::Forget);
    let forgotten = make(forget, Some(&noted), "-", 70);
    assert_eq!(accepted(&forgotten, 20), [false, true, false]);
    assert_eq!(
        step(Some(&forgotten), published, start() + seconds(71)),
        TokenStep::Keep
    );
}

#[test]
fn what_a_request_that_was_given_up_says_ends_with_its_token() {
    let tokens = apply(TokenStep::Begin, None, start(), made("a"));
    let tokens = tokens.unwrap().unwrap();
    let mut memory = Memory::default();
    // There was none: what this process makes itself is not suspect.
    assert_eq!(
        memory.circumstances(None, None, true).suspicion,
        Suspicion::None
    );
    assert_eq!(
        memory.circumstances(Some(&tokens), None, true).suspicion,
        Suspicion::None
    );
    memory.gave_up(tokens.current.clone());
    let suspicion = memory.circumstances(Some(&tokens), Some(&tokens.current), true);
    assert_eq!(suspicion, circumstances(true, Suspicion::GivenUp));
    let next = Tokens::after(Some(&tokens), Token::of_test("b"), start());
    let calm = memory.circumstances(Some(&next), Some(&tokens.current), true);
    assert_eq!(calm, circumstances(false, Suspicion::None));
    // Another process finds it.
    let found = Memory::default().circumstances(Some(&next), None, true);
    assert_eq!(found.suspicion, Suspicion::FoundAtStart);
}
