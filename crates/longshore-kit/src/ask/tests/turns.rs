//! Questions that are recorded first: nothing is on record of them before their turns.

use super::{
    super::table::{Due, Now, Table},
    *,
};

/// One question to a host at a time.
fn one_at_a_time() -> AskLimits {
    AskLimits {
        each: KindLimits {
            in_flight_per_host: 1,
            ..KindLimits::default()
        },
        ..AskLimits::default()
    }
}

/// One a second, and so many at once after a pause.
fn one_a_second(burst: u32) -> AskLimits {
    let limit = RateLimit {
        per_second: 1,
        burst,
    };
    let of_rate = KindLimits {
        rate: Some("writes"),
        ..KindLimits::default()
    };
    AskLimits::default()
        .rate("writes", limit)
        .kind(CREATE, of_rate)
}

fn question() -> Get {
    Get {
        kind: CREATE,
        ..Get::new("a")
    }
}

/// Records that it is asked when its turn has come, and records the answer.
fn recorded(view: &View) -> ToyPlan {
    let ask = || Action::Ask(question());
    match (&view.created, view.turn) {
        (Asked::NotAsked, _) => Plan::of(vec![ask()]),
        (Asked::UnderWay { .. }, Some(Turn::Now)) => {
            Plan::of(vec![Action::Persist("asking"), ask()])
        }
        (Asked::Answered { .. }, _) => {
            Plan::of(vec![Action::Persist("begun"), Action::Used(create())])
        }
        (Asked::UnderWay { .. }, Some(Turn::ToCome) | None)
        | (Asked::Failed { .. } | Asked::AskedByAnother, _) => Plan::await_change(),
    }
}

/// The same, but the first key does not use its first turn.
fn not_at_first(view: &View) -> ToyPlan {
    match (&view.incarnation, view.key, view.round) {
        (Seen::Absent | Seen::Unknown(_), ..) | (_, 0, 2) => Plan::await_change(),
        (Seen::Present(_), ..) => recorded(view),
    }
}

/// The keys that have recorded this, in order.
fn keys(toy: &Toy, status: &str) -> Vec<u32> {
    let persisted = toy.persisted.lock().unwrap();
    let of_status = persisted.iter().filter(|(_, said)| *said == status);
    of_status.map(|(key, _)| *key).collect()
}

/// The seconds of the rounds of a key.
fn seconds(toy: &Toy, key: u32) -> Vec<u128> {
    let rounds = toy.rounds(key).into_iter();
    rounds.map(|(millis, _)| millis / 1000).collect()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_on_record_before_the_turn_of_a_question_has_come() {
    let toy = Toy::new(|_, _| Habit::Hangs, recorded);
    let time = Duration::from_millis(2500);
    run(runner(&toy).asking(one_a_second(1)), 0..5, time).await;
    assert_eq!(keys(&toy, "asking"), [0, 1, 2]);
    assert_eq!(toy.n_sent(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_no_plan_uses_is_the_next_ones() {
    let toy = Toy::new(|_, _| Habit::Answers(secs(1), "begun"), not_at_first);
    let runner = runner(&toy).asking(one_at_a_time());
    run(runner, 0..2, secs(20)).await;
    assert_eq!(keys(&toy, "asking"), [1, 0]);
    assert_eq!(seconds(&toy, 1), [0, 10, 11]);
    // It waits again, behind the other one.
    assert_eq!(seconds(&toy, 0), [0, 0, 11, 12]);
}

/// Two turns come at once, and the first one lapses after ten seconds: from then on one more is sent.
#[tokio::test(start_paused = true)]
async fn a_turn_that_lapses_uses_up_no_rate() {
    let toy = Toy::new(|_, _| Habit::Hangs, not_at_first);
    let runner = runner(&toy).asking(one_a_second(2));
    run(runner, 0..30, Duration::from_millis(15_500)).await;
    assert_eq!(keys(&toy, "asking"), Vec::from_iter(1..=17));
    assert_eq!(toy.n_sent(), 17);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_dropped_leaves_nothing_behind() {
    let mut table = Table::<u32, Get>::new(one_at_a_time());
    let now = Now {
        instant: Instant::now(),
        at: Timestamp::UNIX_EPOCH,
    };
    let incarnation = Incarnation::of("u");
    for key in 0..9 {
        table.ask(&key, &incarnation, question(), &Answers::none(), now);
    }
    assert!(matches!(table.next(now.instant), Some(Due::Turn(0))));
    assert!(table.next(now.instant).is_none());
    // It is on record, and not sent yet.
    let observed = table.answers(&0, now.instant);
    table.plan(&0, &incarnation, &create());
    table.ask(&0, &incarnation, question(), &observed, now);
    assert!(table.has_ready());
    table.keep(&0, &Seen::Absent);
    assert!(matches!(table.next(now.instant), Some(Due::Turn(1))));
    for key in 1..9 {
        table.keep(&key, &Seen::Absent);
    }
    assert!(table.next(now.instant).is_none());
    assert_eq!((table.len(), table.has_ready()), (0, false));
    assert_eq!(table.counts().collect::<Vec<_>>(), [(CREATE, 0, 0)]);
}

#[tokio::test(start_paused = true)]
async fn the_turn_of_an_object_that_is_gone_is_the_next_ones_at_once() {
    let toy = Toy::new(|_, _| Habit::Answers(secs(1), "begun"), not_at_first);
    let runner = runner(&toy).asking(one_at_a_time());
    let keys = vec![(secs(0), 0), (secs(0), 1), (secs(3), 0)];
    let running = run_at(runner, keys, secs(8));
    let ending = async {
        sleep(secs(2)).await;
        toy.is_now(0, Seen::Absent);
    };
    tokio::join!(running, ending);
    assert_eq!(seconds(&toy, 1), [0, 3, 4]);
    assert_eq!(toy.n_sent(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_fails_keeps_the_turn_and_is_sent_once() {
    let toy = Toy::new(|_, _| Habit::Answers(secs(1), "begun"), recorded);
    toy.conflicts.store(2, Ordering::SeqCst);
    let runner = runner(&toy).asking(one_at_a_time());
    run(runner, 0..2, secs(20)).await;
    assert_eq!(keys(&toy, "asking"), [0, 1]);
    assert_eq!(keys(&toy, "begun"), [0, 1]);
    assert_eq!(toy.n_sent(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_on_record_when_the_lease_is_lost_was_sent() {
    let toy = Toy::new(|_, _| Habit::Hangs, recorded);
    let clock = clock();
    let gate = Gate::closed(Arc::clone(&clock));
    gate.hold_until(Instant::now(), clock.now(), secs(10));
    let runner = runner(&toy).gated_by(gate).asking(one_a_second(1));
    run(runner, 0..30, secs(60)).await;
    assert_eq!(toy.n_sent(), 10);
    assert_eq!(keys(&toy, "asking").len(), 10);
}

#[tokio::test(start_paused = true)]
async fn shutdown_sends_nothing_more_and_records_the_answers_that_come() {
    let habits = |question: &Get, _: usize| {
        if question.kind == CREATE {
            Habit::Answers(Duration::from_millis(1500), "begun")
        } else {
            Habit::Hangs
        }
    };
    let toy = Toy::new(habits, |view| {
        let mut plan = recorded(view);
        if view.round == 1 {
            plan.actions.push(Action::Ask(Get::new("b")));
        }
        plan
    });
    let limits = AskLimits {
        each: KindLimits {
            in_flight_per_host: 2,
            ..KindLimits::default()
        },
        ..AskLimits::default()
    };
    let started = Instant::now();
    run(runner(&toy).asking(limits), 0..5, secs(1)).await;
    assert_eq!(keys(&toy, "asking"), [0, 1]);
    assert_eq!(keys(&toy, "begun"), [0, 1]);
    let took = started.elapsed();
    assert!(took < Duration::from_millis(1600), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_two_seconds_for_what_is_on_record() {
    let toy = Toy::new(|_, _| Habit::Hangs, recorded);
    let started = Instant::now();
    run(runner(&toy), 0..5, secs(1)).await;
    let took = started.elapsed();
    assert_eq!((toy.n_sent(), took.as_secs()), (5, 3));
}
