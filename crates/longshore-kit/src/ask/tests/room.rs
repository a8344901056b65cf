//! The bytes of answers that wait for their use have a bound, and who has waited the longest gives way.

use std::collections::VecDeque;

use super::*;
use crate::ask::{
    room::SMALL_ANSWER,
    table::{Due, Now, Table},
};

const ROOM: usize = 1 << 20;
/// Two of them have room, three have not.
const LARGE: usize = 400 << 10;

/// The questions of keys, each of which asks once.
struct World {
    table: Table<u32, Get>,
    began: Instant,
    now: Duration,
}

impl World {
    fn new() -> Self {
        let limits = AskLimits {
            answer_bytes: ROOM,
            ..AskLimits::default()
        };
        Self {
            table: Table::new(limits),
            began: Instant::now(),
            now: Duration::ZERO,
        }
    }

    fn now(&self) -> Now {
        Now {
            instant: self.began + self.now,
            at: Timestamp::UNIX_EPOCH + self.now,
        }
    }

    fn ask(&mut self, key: u32, question: Get) {
        let now = self.now();
        self.table
            .ask(&key, &Incarnation::of("u"), question, &Answers::none(), now);
    }

    /// Answers the question that is sent next. Returns the key, and whether the answer is news.
    fn answer(&mut self, n_bytes: usize) -> Option<(u32, bool)> {
        let now = self.now();
        let Due::Send(sent) = self.table.next(now.instant)? else {
            panic!("expected a question");
        };
        self.table.ended(&sent.share);
        let answer = Ok("a".repeat(n_bytes));
        let is_news = self
            .table
            .answered(&sent.key, &sent.id, sent.ticket, answer, now);
        Some((sent.key, is_news))
    }

    /// The same for a question that is asked now.
    fn answered(&mut self, key: u32, n_bytes: usize) -> bool {
        self.ask(key, Get::new("a"));
        self.answer(n_bytes) == Some((key, true))
    }

    /// How far the question of a key is, and why it has no answer.
    fn asked(&self, key: u32) -> (String, Option<String>) {
        let of = Incarnation::of("u");
        let answers = self.table.answers(&key, self.now().instant);
        let asked = match answers.get(&of, &get()) {
            Asked::Answered { answer, .. } => format!("{} bytes", answer.len()),
            other @ (Asked::NotAsked
            | Asked::UnderWay { .. }
            | Asked::Failed { .. }
            | Asked::AskedByAnother) => words(&other),
        };
        let mut unanswered = answers.unanswered(&of);
        let failure = unanswered.find_map(|it| it.failure.map(str::to_owned));
        (asked, failure)
    }
}

/// Each question is kept in its slot and in one place, however often it is asked; few are in flight; and of their large
/// answers only as many are held as have room.
#[test]
fn ten_thousand_questions_at_once_cost_two_entries_each_and_no_more_than_the_room() {
    const N: usize = 10_000;
    const SIZE: usize = SMALL_ANSWER + 1;
    let mut world = World::new();
    let keys = || 0..u32::try_from(N).unwrap();
    for _ in 0..2 {
        for key in keys() {
            world.ask(key, Get::new(&(key % 100).to_string()));
        }
        assert_eq!(world.table.len(), 2 * N);
    }
    let (mut in_flight, mut n_answered, mut n_kept) = (VecDeque::new(), 0, 0);
    let now = world.now();
    loop {
        while let Some(Due::Send(sent)) = world.table.next(now.instant) {
            in_flight.push_back(sent);
        }
        let most = KindLimits::default().in_flight;
        assert!(in_flight.len() <= most, "{} in flight", in_flight.len());
        let Some(sent) = in_flight.pop_front() else {
            break;
        };
        world.table.ended(&sent.share);
        let answer = Ok("a".repeat(SIZE));
        let is_news = world
            .table
            .answered(&sent.key, &sent.id, sent.ticket, answer, now);
        n_answered += 1;
        n_kept += usize::from(is_news);
        assert_eq!(world.table.n_held(), n_kept * SIZE);
        assert!(world.table.n_held() <= ROOM, "{n_kept} answers are held");
    }
    assert_eq!(n_answered, N);
    assert!(n_kept > 0);
    // Those without room are asked for again later: a slot and a place again.
    assert_eq!(world.table.len(), n_kept + 2 * (N - n_kept));
    for key in keys() {
        world.table.keep(&key, &Seen::Absent);
    }
    assert_eq!((world.table.len(), world.table.n_held()), (0, 0));
}

#[test]
fn small_answers_always_have_room() {
    let mut world = World::new();
    assert!(world.answered(0, ROOM));
    for key in 1..100 {
        assert!(world.answered(key, SMALL_ANSWER), "{key}");
    }
}

#[test]
fn an_answer_without_room_is_dropped_and_asked_for_again_with_a_back_off() {
    let mut world = World::new();
    assert!(world.answered(1, LARGE) && world.answered(2, LARGE));
    assert!(!world.answered(3, LARGE));
    let (asked, why) = world.asked(3);
    assert_eq!(asked, "under way");
    let why = why.unwrap();
    assert!(why.starts_with("no room for the answer"), "{why}");
    assert_eq!(world.answer(LARGE), None, "not at once");
    world.now = Duration::from_millis(100);
    assert_eq!(world.answer(LARGE), Some((3, false)));
    // Its room is free once no round has the answer any more.
    let round = world.table.answers(&1, world.now().instant);
    world.table.used(&1, &Incarnation::of("u"), &get());
    world.now = Duration::from_millis(300);
    assert_eq!(world.answer(LARGE), Some((3, false)));
    drop(round);
    world.now = Duration::from_secs(1);
    assert_eq!(world.answer(LARGE), Some((3, true)));
    assert_eq!(world.asked(3).0, format!("{LARGE} bytes"));
}

#[test]
fn the_answer_that_has_waited_the_longest_gives_way_with_what_holds_it() {
    let mut world = World::new();
    assert!(world.answered(1, LARGE));
    world.now = secs(1);
    assert!(world.answered(2, LARGE));
    let holder = Get {
        kind: "copy",
        holds: LARGE,
        ..Get::new("silent")
    };
    world.ask(1, holder);
    let Some(Due::Send(copy)) = world.table.next(world.now().instant) else {
        panic!("expected the copy");
    };
    world.now = secs(10);
    assert!(world.answered(3, LARGE), "nobody waits for a silent store");
    let (asked, why) = world.asked(1);
    assert_eq!(asked, "under way");
    assert!(why.unwrap().contains("has waited for its use for 10 s"));
    let now = world.now();
    world.table.ended(&copy.share);
    let copied = Ok(String::new());
    let is_news = world
        .table
        .answered(&copy.key, &copy.id, copy.ticket, copied, now);
    assert!(!is_news, "it was dropped with the answer");
    assert_eq!(world.asked(2).0, format!("{LARGE} bytes"));
    world.now = secs(14);
    assert_eq!(world.answer(LARGE), None, "the others come first");
    world.now = secs(15);
    assert_eq!(world.answer(LARGE), Some((1, true)), "the second gives way");
    assert_eq!(world.asked(2).0, "under way");
}

#[test]
fn an_answer_that_cannot_be_asked_for_twice_has_room_and_keeps_it() {
    let mut world = World::new();
    for key in 0..4 {
        world.ask(
            key,
            Get {
                kind: "begin",
                ..Get::new("a")
            },
        );
        assert_eq!(world.answer(LARGE), Some((key, true)));
    }
    world.now = secs(60);
    assert!(!world.answered(9, LARGE));
}
