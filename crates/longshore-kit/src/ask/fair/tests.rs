use std::time::Duration;

use super::*;
use crate::ask::{RateLimit, SHARE};

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

fn share(kind: &'static str, host: &str) -> Share {
    let host = host.to_owned();
    Share { kind, host }
}

fn all<K: Clone + Eq + Hash>(queue: &mut FairQueue<K>) -> Vec<(Share, K, u64)> {
    all_at(queue, Instant::now())
}

fn all_at<K: Clone + Eq + Hash>(queue: &mut FairQueue<K>, now: Instant) -> Vec<(Share, K, u64)> {
    std::iter::from_fn(|| queue.pop(now)).collect()
}

#[test]
fn kinds_hosts_and_keys_take_turns() {
    let mut queue = FairQueue::new(limits(100, 100, 100));
    for ticket in 0..3 {
        queue.push(&share("get", "a"), &"greedy", ticket);
    }
    queue.push(&share("get", "a"), &"modest", 3);
    queue.push(&share("get", "b"), &"modest", 4);
    queue.push(&share("put", "a"), &"modest", 5);
    let order: Vec<u64> = all(&mut queue).iter().map(|(.., ticket)| *ticket).collect();
    assert_eq!(order, [0, 5, 4, 3, 1, 2]);
}

#[test]
fn each_limit_holds_and_the_others_go_on() {
    let mut queue = FairQueue::new(limits(7, 6, 2));
    for ticket in 0..10 {
        queue.push(&share("get", "a"), &ticket, ticket);
    }
    let of_a = all(&mut queue);
    assert_eq!(of_a.len(), 2, "of one host");
    for ticket in 10..20 {
        for (n, host) in (0..).zip(["b", "c", "d", "e", "f"]) {
            let ticket = ticket + 10 * n;
            queue.push(&share("get", host), &ticket, ticket);
        }
    }
    assert_eq!(all(&mut queue).len(), 4, "of one kind");
    queue.push(&share("put", "d"), &90, 90);
    queue.push(&share("put", "d"), &91, 91);
    let put = all(&mut queue);
    assert_eq!(put.len(), 1, "of all");
    // The last one was a `put`, so that the place that gets free is for a `get`, and the next one for a `put`.
    queue.ended(&of_a[0].0);
    let get = all(&mut queue);
    assert_eq!(get.len(), 1, "of all");
    assert_eq!(get[0].0, share("get", "f"), "it has none in flight");
    queue.ended(&get[0].0);
    assert_eq!(all(&mut queue)[0].0, share("put", "d"));
}

#[test]
fn a_host_has_a_share_of_what_is_free_and_the_only_host_of_a_kind_has_all() {
    for (kind, host, expected) in [
        (4096, 1024, vec![820, 656, 524, 420]),
        (256, 32, vec![32, 32, 32, 32]),
        (8, 2, vec![2, 2, 1, 1]),
        (4, 4, vec![4, 0, 0, 0]),
        (1, 1, vec![1, 0, 0, 0]),
    ] {
        let mut queue = FairQueue::new(limits(kind, kind, host));
        let n_sent = expected.iter().zip(0_u64..).map(|(_, n)| {
            for ticket in 0..5000 {
                let ticket = 5000 * n + ticket;
                queue.push(&share("get", &n.to_string()), &ticket, ticket);
            }
            all(&mut queue).len()
        });
        let n_sent: Vec<_> = n_sent.collect();
        assert_eq!(n_sent, expected, "{kind} {host}");
    }
}

/// How many hosts it takes to have no place left for another one, at least: each takes the most that it may have.
fn hosts_that_fill(kind: usize) -> usize {
    let (mut n_hosts, mut n_free) = (0, kind);
    while n_free > 0 {
        n_free -= n_free.div_ceil(SHARE + 1);
        n_hosts += 1;
    }
    n_hosts
}

/// Draws numbers from a seed (a linear congruential generator).
fn draw(seed: &mut u64, below: usize) -> usize {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*seed >> 33).unwrap() % below
}

#[test]
fn whatever_is_asked_and_never_answered_a_host_with_nothing_in_flight_has_a_place() {
    assert_eq!(hosts_that_fill(4096), 33);
    for seed in 0..300 {
        let mut seed = seed;
        let kind = 5 + draw(&mut seed, 300);
        let n_hosts = hosts_that_fill(kind);
        let per_host = 1 + draw(&mut seed, kind - 1);
        let mut queue = FairQueue::new(limits(kind, kind, per_host));
        let mut in_flight = Vec::new();
        for ticket in 0..2000 {
            let host = draw(&mut seed, n_hosts - 1).to_string();
            queue.push(&share("get", &host), &ticket, ticket);
            // Some are answered, and others take their places.
            if draw(&mut seed, 3) == 0 && !in_flight.is_empty() {
                let n = draw(&mut seed, in_flight.len());
                queue.ended(&in_flight.swap_remove(n));
            }
            in_flight.extend(all(&mut queue).into_iter().map(|(share, ..)| share));
        }
        queue.push(&share("get", "healthy"), &9999, 9999);
        let next = queue.pop(Instant::now());
        let host = next.map(|(share, ..)| share.host);
        assert_eq!(host.as_deref(), Some("healthy"), "{kind} {per_host}");
    }
}

#[test]
fn what_ends_or_is_removed_leaves_nothing_behind() {
    let mut queue = FairQueue::new(limits(10, 10, 1));
    for ticket in 0..4 {
        queue.push(&share("get", "a"), &(ticket % 2), ticket);
    }
    let now = Instant::now();
    let (in_flight, ..) = queue.pop(now).unwrap();
    queue.remove(&share("get", "a"), &1, 1);
    queue.remove(&share("get", "a"), &1, 3);
    queue.remove(&share("get", "a"), &1, 3);
    queue.remove(&share("get", "elsewhere"), &1, 3);
    queue.ended(&in_flight);
    let (in_flight, key, ticket) = queue.pop(now).unwrap();
    assert_eq!((key, ticket), (0, 2));
    queue.ended(&in_flight);
    assert!(queue.is_empty());
    assert_eq!(queue.counts().collect::<Vec<_>>(), [("get", 0, 0)]);
}

/// Kinds `begin` and `end` share a rate of ten a second, one at once; `get` has none.
fn rated() -> AskLimits {
    let limit = RateLimit {
        per_second: 10,
        burst: 1,
    };
    let of_rate = KindLimits {
        rate: Some("writes"),
        ..limits(300, 300, 50).each
    };
    let limits = limits(300, 300, 50).rate("writes", limit);
    limits.kind("begin", of_rate).kind("end", of_rate)
}

#[test]
fn the_kinds_of_a_rate_and_their_hosts_take_turns_within_it() {
    let mut queue = FairQueue::new(rated());
    let mut tickets = 0..;
    let mut push = |queue: &mut FairQueue<u64>, kind: &'static str, host: &str, n: usize| {
        for ticket in tickets.by_ref().take(n) {
            queue.push(&share(kind, host), &ticket, ticket);
        }
    };
    push(&mut queue, "end", "broken", 40);
    push(&mut queue, "begin", "broken", 40);
    push(&mut queue, "begin", "well", 1);
    push(&mut queue, "get", "broken", 1);
    let began = Instant::now();
    let mut sent = Vec::new();
    for tenth in 0..6 {
        // What other kinds send in between changes nothing about whose turn it is.
        push(&mut queue, "get", "well", 1);
        let now = began + Duration::from_millis(100 * tenth);
        let popped = all_at(&mut queue, now).into_iter();
        let popped = popped.filter(|(share, ..)| share.kind != "get");
        let popped: Vec<_> = popped
            .map(|(share, ..)| format!("{} {}", share.kind, share.host))
            .collect();
        assert_eq!(popped.len(), 1, "ten a second");
        sent.extend(popped);
        assert_eq!(queue.next_due(), Some(now + Duration::from_millis(100)));
    }
    let expected = [
        "begin broken",
        "end broken",
        "begin well",
        "end broken",
        "begin broken",
        "end broken",
    ];
    assert_eq!(sent, expected);
}

#[test]
fn what_waits_for_a_rate_only_is_told_from_what_waits_for_those_in_flight() {
    let mut queue = FairQueue::new(rated());
    let now = Instant::now();
    assert_eq!(queue.next_due(), None);
    for ticket in 0..60 {
        queue.push(&share("end", "a"), &ticket, ticket);
    }
    assert_eq!(
        queue.holding_rate(&share("end", "a"), now),
        None,
        "its turn"
    );
    all_at(&mut queue, now);
    let holding = queue.holding_rate(&share("end", "a"), now);
    assert_eq!(holding, Some("writes"));
    let later = now + Duration::from_secs(60);
    for _ in 1..50 {
        let now = queue.next_due().unwrap();
        assert_eq!(all_at(&mut queue, now).len(), 1);
    }
    assert_eq!(queue.next_due(), None, "fifty are in flight to the host");
    let holding = queue.holding_rate(&share("end", "a"), now);
    assert_eq!(holding, None, "fifty are in flight to the host");
    assert_eq!(all_at(&mut queue, later).len(), 0);
    let unrated = share("get", "a");
    queue.push(&unrated, &0, 100);
    assert_eq!(queue.holding_rate(&unrated, now), None);
}
