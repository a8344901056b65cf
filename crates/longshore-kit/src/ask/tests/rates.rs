//! No question is sent faster than its rate, and those of a foreign system that refuses keep no other one waiting.

use longshore_k8s::Backoff;

use super::*;

/// Ten a second, five at once, shared by `begin` and `end`; `end` comes again after a second, two, … a minute.
fn limits() -> AskLimits {
    let limit = RateLimit {
        per_second: 10,
        burst: 5,
    };
    let begin = KindLimits {
        rate: Some("writes"),
        ..KindLimits::default()
    };
    let end = KindLimits {
        backoff: Backoff {
            first: secs(1),
            max: secs(60),
        },
        ..begin
    };
    let limits = AskLimits::default().rate("writes", limit);
    limits.kind("begin", begin).kind("end", end)
}

/// Keys below 200 ask a host that refuses, again and again; the others ask another one once.
fn crowd(sent: &Arc<Mutex<Vec<Duration>>>) -> Arc<Toy> {
    let (sent, started) = (Arc::clone(sent), Instant::now());
    Toy::new(
        move |question, _| {
            sent.lock().unwrap().push(started.elapsed());
            match question.host.as_str() {
                "broken" => Habit::Resets,
                _ => Habit::Answers(Duration::ZERO, "begun"),
            }
        },
        |view| {
            let is_broken = view.key < 200;
            let (kind, host) = if is_broken {
                ("end", "broken")
            } else {
                ("begin", "well")
            };
            if !is_broken && view.round > 1 {
                return Plan::await_change();
            }
            let question = Get {
                kind,
                ..Get::new(host)
            };
            Plan::of(vec![Action::Ask(question)])
        },
    )
}

#[tokio::test(start_paused = true)]
async fn a_host_that_refuses_uses_up_no_rate_of_another_one() {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let toy = crowd(&sent);
    let broken = (0..200).map(|key| (Duration::ZERO, key));
    let well = (0..8).map(|n| (secs(7), 200 + n));
    let keys = broken.chain(well).collect();
    run_at(runner(&toy).asking(limits()), keys, secs(70)).await;
    for key in 200..208 {
        let rounds = toy.rounds(key);
        let took = rounds[1].0 - rounds[0].0;
        assert!(took <= 200, "key {key} waited for {took} ms");
    }
    let sent = sent.lock().unwrap();
    for (n, first) in sent.iter().enumerate() {
        let within = sent[n..].iter().filter(|at| **at < *first + secs(1));
        let within = within.count();
        assert!(within <= 15, "{within} within a second of {first:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_waits_for_its_rate_says_so_and_is_sent_in_time() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let observed = Arc::clone(&seen);
    let toy = Toy::new(
        |_, _| Habit::Hangs,
        move |view| {
            if view.key == 15 {
                let waits = view.unanswered.iter().map(|it| it.2);
                observed.lock().unwrap().extend(waits);
            }
            let question = Get {
                kind: "begin",
                ..Get::new("a")
            };
            Plan {
                actions: vec![Action::Ask(question)],
                next: Next::After(Duration::from_millis(600)),
            }
        },
    );
    run(runner(&toy).asking(limits()), 0..16, secs(2)).await;
    // Five at once, and the eleventh of the others a second and a tenth later.
    let expected = [WaitsFor::Rate("writes"), WaitsFor::Answer, WaitsFor::Answer];
    assert_eq!(*seen.lock().unwrap(), expected);
    assert_eq!(toy.n_sent(), 16);
}

#[tokio::test(start_paused = true)]
async fn a_kind_has_the_back_off_that_its_limits_name() {
    let toy = Toy::new(
        |_, _| Habit::Resets,
        |_| {
            Plan::of(vec![Action::Ask(Get {
                kind: "end",
                ..Get::new("a")
            })])
        },
    );
    run(runner(&toy).asking(limits()), [1], secs(200)).await;
    // At 0, 1, 3, 7, 15, 31, 63, 123 and 183 s.
    assert_eq!(toy.n_sent(), 9);
}
