//! What becomes of questions when their object does not stay, or this process does not.

use longshore_core::{Unknown, UnknownCause};

use super::*;

#[tokio::test(start_paused = true)]
async fn what_was_asked_about_an_object_that_is_gone_is_cancelled() {
    let toy = Toy::new(
        |_, _| Habit::Answers(secs(8), "yes"),
        |view| match view.incarnation {
            Seen::Present(_) => once(view),
            Seen::Absent | Seen::Unknown(_) => Plan::await_change(),
        },
    );
    let running = run_at(
        runner(&toy),
        vec![(secs(0), 1), (secs(1), 1), (secs(1), 1)],
        secs(20),
    );
    let ending = async {
        sleep(Duration::from_millis(500)).await;
        let down = Unknown::new(UnknownCause::Unreachable, "down");
        toy.is_now(1, Seen::Unknown(down));
        sleep(secs(1)).await;
        assert_eq!(toy.n_in_flight(), 1, "it may still be there");
        toy.is_now(1, Seen::Absent);
        sleep(secs(1)).await;
        assert_eq!(toy.n_in_flight(), 0);
    };
    tokio::join!(running, ending);
    assert_eq!(toy.rounds(1).len(), 3, "nothing comes of it");
}

#[tokio::test(start_paused = true)]
async fn a_new_object_of_the_name_begins_with_nothing_asked() {
    let toy = Toy::new(
        |_, n| match n {
            1 => Habit::Hangs,
            _ => Habit::Answers(secs(1), "of the new one"),
        },
        once,
    );
    let running = run_at(runner(&toy), vec![(secs(0), 1), (secs(1), 1)], secs(30));
    let replacing = async {
        sleep(Duration::from_millis(500)).await;
        toy.is_now(1, Seen::Present(Incarnation::of("v")));
    };
    tokio::join!(running, replacing);
    assert_eq!(toy.found(1), ["not asked", "not asked", "of the new one"]);
    assert_eq!(toy.n_in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_wants_any_more_is_cancelled() {
    let toy = Toy::new(
        |_, _| Habit::Hangs,
        |view| match view.round {
            1 => Plan::of(vec![Action::Ask(Get::new("a"))]),
            _ => Plan::of(vec![Action::Used(get())]),
        },
    );
    let running = run_at(runner(&toy), vec![(secs(0), 1), (secs(1), 1)], secs(30));
    let looking = async {
        sleep(secs(2)).await;
        assert_eq!(toy.n_in_flight(), 0);
    };
    tokio::join!(running, looking);
    assert_eq!(toy.found(1), ["not asked", "under way"]);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_asks_about_nothing_is_a_bug_and_sends_nothing() {
    let toy = Toy::new(
        |_, _| Habit::Hangs,
        |_| Plan::of(vec![Action::Persist("asking"), Action::Ask(Get::new("a"))]),
    );
    toy.is_now(1, Seen::Absent);
    run(runner(&toy), [1], secs(5)).await;
    assert_eq!(toy.n_sent(), 0);
    assert!(toy.persisted.lock().unwrap().is_empty());
}

/// The record says that it was asked; by which process?
#[tokio::test(start_paused = true)]
async fn only_what_no_plan_of_this_process_was_about_to_ask_was_asked_by_another() {
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&recorded);
    let toy = Toy::new(
        |_, _| Habit::Answers(secs(1), "yes"),
        move |view| {
            seen.lock().unwrap().push(words(&view.recorded));
            Plan::of(vec![Action::Persist("asking"), Action::Ask(Get::new("a"))])
        },
    );
    // The answer to the record is lost: it may have been written.
    toy.conflicts.store(1, Ordering::SeqCst);
    run(runner(&toy), [1], Duration::from_millis(500)).await;
    assert_eq!(*recorded.lock().unwrap(), ["asked by another", "not asked"]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_no_foreign_system() {
    let toy = Toy::new(|_, _| Habit::Hangs, once);
    let started = Instant::now();
    run(runner(&toy), 0..500, secs(1)).await;
    assert_eq!(started.elapsed(), secs(1));
    tokio::task::yield_now().await;
    assert_eq!(toy.n_in_flight(), 0);
}
