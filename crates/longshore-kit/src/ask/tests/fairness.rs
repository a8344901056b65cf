//! No question waits for the foreign system of another, and memory is bounded.

use super::{super::table::Due, *};

/// Draws numbers from a seed (splitmix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut drawn = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (drawn ^ (drawn >> 31)) % n
    }
}

/// A world of questions to hosts, the first of which never answers.
struct Crowd {
    n_keys: u32,
    n_hosts: u32,
    /// In a thousand of the keys.
    to_silent: u64,
    took: Duration,
    limits: AskLimits,
    seed: u64,
}

impl Crowd {
    fn host_of(&self, key: u32) -> u32 {
        let mut draw = Draw(self.seed ^ (u64::from(key) << 20));
        if draw.below(1000) < self.to_silent {
            return 0;
        }
        1 + u32::try_from(draw.below(u64::from(self.n_hosts - 1))).unwrap()
    }

    /// When the last question to an answering host was answered, in milliseconds.
    async fn play(self) -> u128 {
        let took = self.took;
        let hosts: Vec<u32> = (0..self.n_keys).map(|key| self.host_of(key)).collect();
        let of = hosts.clone();
        let toy = Toy::new(
            move |question, _| match question.host.as_str() {
                "0" => Habit::Hangs,
                _ => Habit::Answers(took, "yes"),
            },
            move |view| {
                let kind = if view.key % 2 == 0 { "get" } else { "put" };
                // Answers to the second kind are not looked for: the round after the first is their doing.
                if view.round > 1 {
                    return Plan::await_change();
                }
                let host = of[view.key as usize].to_string();
                Plan::of(vec![Action::Ask(Get {
                    kind,
                    ..Get::new(&host)
                })])
            },
        );
        let limits = self.limits.clone();
        let runner = runner(&toy).asking(limits.clone());
        run(runner, 0..self.n_keys, secs(8)).await;
        let most = toy.most_in_flight.lock().unwrap();
        assert!(most.0 <= limits.in_flight, "{} in flight", most.0);
        for (host, n) in &most.1 {
            let most = 2 * limits.each.in_flight_per_host;
            assert!(*n <= most, "{n} to host {host}, of two kinds");
        }
        let mut last = 0;
        for (key, host) in (0..self.n_keys).zip(&hosts).filter(|(_, host)| **host != 0) {
            let rounds = toy.rounds(key);
            assert_eq!(rounds.len(), 2, "key {key} to host {host}: {rounds:?}");
            last = last.max(rounds[1].0);
        }
        last
    }
}

fn limits(all: usize, kind: usize, host: usize) -> AskLimits {
    let each = KindLimits {
        in_flight: kind,
        in_flight_per_host: host,
        ..KindLimits::default()
    };
    AskLimits {
        in_flight: all,
        each,
        ..AskLimits::default()
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_questions_and_a_silent_host_keep_no_other_host_waiting() {
    let crowd = Crowd {
        n_keys: 10_000,
        n_hosts: 51,
        to_silent: 500,
        took: Duration::from_millis(10),
        limits: limits(256, 128, 16),
        seed: 1,
    };
    let last = crowd.play().await;
    // 5,000 answers of 10 ms, of which 224 come at the same time: with no host silent it is 0.2 s.
    assert!(last <= 500, "the last answer came after {last} ms");
}

#[tokio::test(start_paused = true)]
async fn whatever_is_asked_of_whom_limits_hold_and_everybody_is_served_in_time() {
    for seed in 0..40 {
        let mut draw = Draw(seed);
        let host = 1 + draw.below(8);
        let kind = 4 * host + draw.below(64);
        let all = 2 * kind;
        let n_keys = 1 + draw.below(400);
        let took = 1 + draw.below(20);
        let crowd = Crowd {
            n_keys: u32::try_from(n_keys).unwrap(),
            n_hosts: u32::try_from(2 + draw.below(20)).unwrap(),
            to_silent: draw.below(1000),
            took: Duration::from_millis(took),
            limits: limits(all as usize, kind as usize, host as usize),
            seed,
        };
        let last = crowd.play().await;
        // One host with all of the questions, one after the other in its slots.
        let bound = u128::from((n_keys / host + 1) * took + took);
        assert!(last <= bound, "seed {seed}: {last} ms, expected {bound}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_asks_much_takes_turns_with_one_that_asks_little() {
    const ABOUT: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let toy = Toy::new(
        |_, _| Habit::Answers(secs(1), "yes"),
        |view| match (view.key, view.round) {
            (1, 1) => {
                let ask = |about| {
                    Action::Ask(Get {
                        about,
                        ..Get::new("a")
                    })
                };
                Plan::of(ABOUT.map(ask).into())
            }
            (2, 1) => Plan::of(vec![Action::Ask(Get::new("a"))]),
            _ => Plan::await_change(),
        },
    );
    let runner = runner(&toy).asking(limits(8, 4, 1)).concurrency(1);
    run(runner, [1, 2], secs(30)).await;
    let (at, found) = &toy.rounds(2)[1];
    assert_eq!(found, "yes");
    assert!(
        *at <= 3000,
        "its turn came after {at} ms, not among the first three"
    );
}

/// 10,000 keys ask, and each is gone before its turn.
#[tokio::test(start_paused = true)]
async fn what_is_dropped_leaves_nothing_behind() {
    let mut table = super::super::table::Table::<u32, Get>::new(limits(16, 16, 4));
    let now = super::super::table::Now {
        instant: Instant::now(),
        at: Timestamp::UNIX_EPOCH,
    };
    let incarnation = Incarnation::of("u");
    for key in 0..10_000 {
        table.ask(&key, &incarnation, Get::new("a"), &Answers::none(), now);
    }
    let sent = |due| match due {
        Due::Send(sent) => Some(sent),
        Due::Turn(_) => None,
    };
    let in_flight = std::iter::from_fn(|| table.next(now.instant).and_then(sent));
    let in_flight: Vec<_> = in_flight.collect();
    assert_eq!(in_flight.len(), 4);
    assert!(table.len() >= 10_000);
    for key in 0..10_000 {
        table.keep(&key, &Seen::Absent);
    }
    for sent in &in_flight {
        table.ended(&sent.share);
        let answer = Ok("too late".to_owned());
        assert!(!table.answered(&sent.key, &sent.id, sent.ticket, answer, now));
    }
    assert_eq!(table.len(), 0);
    assert_eq!(table.counts().collect::<Vec<_>>(), [("get", 0, 0)]);
    assert!(table.next(now.instant).is_none());
}
