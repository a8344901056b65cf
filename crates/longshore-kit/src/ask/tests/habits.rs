//! What comes of one question.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_answer_leads_to_a_round_and_stays_until_a_plan_has_used_it_up() {
    let toy = Toy::new(
        |_, _| Habit::Answers(secs(2), "yes"),
        |view| match (&view.asked, view.round) {
            (Asked::NotAsked, 1) => {
                Plan::of(vec![Action::Persist("asking"), Action::Ask(Get::new("a"))])
            }
            (Asked::Answered { .. }, _) => {
                let next = Next::After(secs(1));
                let actions = vec![Action::Persist("said yes"), Action::Used(get())];
                Plan { actions, next }
            }
            _ => Plan::await_change(),
        },
    );
    let running = run(runner(&toy), [1], secs(10));
    let disturbing = async {
        sleep(secs(1)).await;
        toy.conflicts.store(1, Ordering::SeqCst);
    };
    tokio::join!(running, disturbing);
    assert_eq!(
        toy.rounds(1)
            .iter()
            .map(|(at, found)| (*at, found.as_str()))
            .collect::<Vec<_>>(),
        [
            (0, "not asked"),
            (2000, "yes"),
            // The record met a conflict.
            (2000, "yes"),
            (3000, "not asked"),
        ]
    );
    assert_eq!(
        *toy.persisted.lock().unwrap(),
        [(1, "asking"), (1, "said yes")]
    );
    assert_eq!(toy.n_sent(), 1);
}

#[tokio::test(start_paused = true)]
async fn whatever_a_foreign_system_does_costs_its_own_question_an_answer_in_time() {
    for (habit, expected, latest) in [
        (Habit::Hangs, "timed_out", 10_000),
        (Habit::Drips, "timed_out", 10_000),
        (Habit::Answers(secs(60), "late"), "timed_out", 10_000),
        (Habit::AnswersTooMuch, "not_understood", 100),
        (Habit::AnswersAnotherQuestion, "not_understood", 0),
        (Habit::Resets, "unreachable", 0),
        (Habit::SaysNo, "refused", 0),
        (Habit::Panics, "not_understood", 0),
    ] {
        let habit = Mutex::new(Some(habit));
        let habits = move |question: &Get, _: usize| match question.host.as_str() {
            "a" => habit.lock().unwrap().take().unwrap(),
            _ => Habit::Answers(Duration::ZERO, "yes"),
        };
        let toy = Toy::new(habits, |view| match (&view.asked, view.key) {
            (Asked::NotAsked, 1) => Plan::of(vec![Action::Ask(Get::new("a"))]),
            (Asked::NotAsked, _) => Plan::of(vec![Action::Ask(Get::new("b"))]),
            _ => Plan::await_change(),
        });
        run(runner(&toy), [1, 2], secs(120)).await;
        let rounds = toy.rounds(1);
        assert_eq!(rounds.len(), 2, "{expected}: {rounds:?}");
        assert_eq!(rounds[1].1, expected);
        assert!(rounds[1].0 <= latest, "{expected}: {rounds:?}");
        assert_eq!(toy.rounds(2)[1], (0, "yes".to_owned()), "beside {expected}");
        assert_eq!(toy.n_in_flight(), 0, "{expected}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_fails_again_and_again_has_no_answer_since_it_was_asked_first() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let observed = Arc::clone(&seen);
    let toy = Toy::new(
        |_, n| match n {
            1 | 3 => Habit::SaysNo,
            2 => Habit::Answers(secs(4), "yes"),
            _ => Habit::Hangs,
        },
        move |view| {
            observed.lock().unwrap().push(view.unanswered.clone());
            let next = Next::After(secs(3));
            let is_under_way = matches!(view.asked, Asked::UnderWay { .. });
            let ask = (!is_under_way).then(|| Action::Ask(Get::new("a")));
            let actions = ask.into_iter().collect();
            Plan { actions, next }
        },
    );
    run(runner(&toy), [1], secs(9)).await;
    let no = || Some("403".to_owned());
    let expected = [
        vec![],
        vec![(0, no(), WaitsFor::Repeat)],
        vec![(0, no(), WaitsFor::Answer)],
        vec![],
        vec![(4, no(), WaitsFor::Repeat)],
        vec![(4, no(), WaitsFor::Answer)],
    ];
    assert_eq!(seen.lock().unwrap()[..6], expected);
}

#[tokio::test(start_paused = true)]
async fn failures_in_a_row_begin_with_the_first_one_and_end_with_an_answer() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let observed = Arc::clone(&seen);
    let toy = Toy::new(
        |_, n| match n {
            1 | 5 => Habit::Hangs,
            4 => Habit::Answers(Duration::ZERO, "yes"),
            _ => Habit::SaysNo,
        },
        move |view| {
            if matches!(view.asked, Asked::UnderWay { .. }) {
                return Plan::await_change();
            }
            observed.lock().unwrap().push(view.failures);
            Plan::of(vec![Action::Ask(Get::new("a"))])
        },
    );
    run(runner(&toy), [1], secs(60)).await;
    let expected = [
        None,
        // It was asked at 0: what is not answered in time has failed since its time limit.
        Some((10, 10)),
        Some((10, 10)),
        Some((10, 10)),
        None,
        Some((20, 20)),
        Some((20, 20)),
    ];
    assert_eq!(seen.lock().unwrap()[..7], expected);
}

#[tokio::test(start_paused = true)]
async fn a_question_under_way_is_not_asked_again() {
    let toy = Toy::new(
        |_, _| Habit::Answers(secs(5), "yes"),
        |view| {
            if view.asked.is_over() {
                Plan::await_change()
            } else {
                let other = Get {
                    about: "another thing",
                    ..Get::new("a")
                };
                Plan::of(vec![Action::Ask(Get::new("a")), Action::Ask(other)])
            }
        },
    );
    let triggers = vec![(secs(0), 1), (secs(1), 1), (secs(1), 1)];
    run_at(runner(&toy), triggers, secs(20)).await;
    let found = toy.found(1);
    assert_eq!(found[..3], ["not asked", "under way", "under way"]);
    assert_eq!(toy.n_sent(), 2, "one of each");
    assert_eq!(*toy.listed.lock().unwrap(), [": yes", "another thing: yes"]);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_answer_leads_to_no_round_and_a_new_one_does() {
    let toy = Toy::new(
        |_, n| Habit::Answers(secs(1), if n < 4 { "running" } else { "done" }),
        |view| {
            let poll = Get {
                every: Some(secs(5)),
                ..Get::new("a")
            };
            match view.asked.answer().map(String::as_str) {
                Some("done") => Plan::of(vec![Action::Persist("done"), Action::Used(get())]),
                _ => Plan::of(vec![Action::Ask(poll)]),
            }
        },
    );
    // A round for another reason finds what was said last.
    run_at(runner(&toy), vec![(secs(0), 1), (secs(10), 1)], secs(60)).await;
    let rounds = toy.rounds(1);
    let found: Vec<(u128, &str)> = rounds.iter().map(|(at, it)| (*at, it.as_str())).collect();
    assert_eq!(
        found,
        [
            (0, "not asked"),
            (1000, "running"),
            (10_000, "under way"),
            // Sent at 0, 6, 12 and 18 s.
            (19_000, "done"),
        ]
    );
    assert_eq!(toy.n_sent(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_a_repeated_question_is_news_once() {
    let toy = Toy::new(
        |_, n| match n {
            1 => Habit::Answers(Duration::ZERO, "running"),
            2..=4 => Habit::Resets,
            _ => Habit::Answers(Duration::ZERO, "running"),
        },
        |_| {
            let poll = Get {
                every: Some(secs(5)),
                ..Get::new("a")
            };
            Plan::of(vec![Action::Ask(poll)])
        },
    );
    run(runner(&toy), [1], secs(40)).await;
    assert_eq!(
        toy.found(1),
        ["not asked", "running", "unreachable", "running"]
    );
}

#[tokio::test(start_paused = true)]
async fn what_fails_at_once_and_is_asked_again_at_once_is_sent_after_a_back_off() {
    let toy = Toy::new(
        |_, _| Habit::Resets,
        |_| Plan::of(vec![Action::Ask(Get::new("a"))]),
    );
    run(runner(&toy), [1], secs(10)).await;
    // 100 ms, 200 ms, … 6.4 s.
    assert_eq!(toy.n_sent(), 7, "{:?}", toy.rounds(1));
}

#[tokio::test(start_paused = true)]
async fn the_answer_before_is_known_while_it_is_asked_again() {
    let before = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&before);
    let toy = Toy::new(
        |_, n| Habit::Answers(secs(2), if n == 1 { "not yet" } else { "yes" }),
        move |view| {
            seen.lock().unwrap().push(words(&view.before));
            match view.asked.answer().map(String::as_str) {
                None if view.round > 1 => Plan::await_change(),
                Some("yes") => Plan::await_change(),
                _ => Plan::of(vec![Action::Ask(Get::new("a"))]),
            }
        },
    );
    run_at(runner(&toy), vec![(secs(0), 1), (secs(3), 1)], secs(10)).await;
    assert_eq!(toy.found(1), ["not asked", "not yet", "under way", "yes"]);
    assert_eq!(
        *before.lock().unwrap(),
        ["not asked", "not asked", "not yet", "not asked"]
    );
}
