use longshore_python::End;
use tokio::sync::Semaphore;

use super::*;

/// Answers as Airflow's supervisor does while a file is parsed.
struct Supervisor;

impl Answers for Supervisor {
    async fn answer(&self, request: Frame) -> Answer {
        let asked = value::to_json(&request.body).unwrap();
        match request.kind() {
            Some("GetVariable") if asked["key"] == "known" => Answer::Body(body(
                json!({"type": "VariableResult", "key": "known", "value": "ü"}),
            )),
            Some("GetVariable") => Answer::Error(body(
                json!({"type": "ErrorResponse", "error": "VARIABLE_NOT_FOUND", "detail": {"key": asked["key"]}}),
            )),
            _ => Answer::Body(body(json!({"type": "OKResponse", "ok": true}))),
        }
    }
}

#[tokio::test]
async fn requests_are_answered_by_id_with_bodies_and_errors() {
    let text = "
first = recv()
assert first == [0, {'type': 'DagFileParseRequest', 'file': '/a.py'}, None], first
got = ask(0, {'type': 'GetVariable', 'key': 'known'})
assert got == {'type': 'VariableResult', 'key': 'known', 'value': 'ü'}, got
try:
    ask(1, {'type': 'GetVariable', 'key': 'other'})
except LookupError as e:
    assert e.args[0]['detail'] == {'key': 'other'}, e
else:
    raise AssertionError('no error')
got = ask(2 ** 40, {'type': 'DagFileParsingResult', 'serialized_dags': []})
assert got == {'type': 'OKResponse', 'ok': True}, got";
    let first = body(json!({"type": "DagFileParseRequest", "file": "/a.py"}));
    let child = Child::start(&plain(), &code(text), limits()).await.unwrap();
    let ended = child
        .supervise(Some(first), &Supervisor, std::future::pending())
        .await;
    assert!(ended.is_success(), "{}", ended.into_result().unwrap_err());
}

/// Lets a request wait until all of them are there; notes how many were answered at once.
struct Together {
    n: u32,
    permits: Semaphore,
    most: Mutex<u32>,
    now: Mutex<u32>,
}

impl Answers for Together {
    async fn answer(&self, _: Frame) -> Answer {
        let now = {
            let mut now = self.now.lock().unwrap();
            *now += 1;
            *now
        };
        {
            let mut most = self.most.lock().unwrap();
            *most = now.max(*most);
        }
        if now == self.n {
            self.permits.add_permits(1000);
        }
        drop(self.permits.acquire().await.unwrap());
        *self.now.lock().unwrap() -= 1;
        Answer::Body(Value::Nil)
    }
}

#[tokio::test]
async fn requests_are_answered_at_the_same_time_up_to_the_limit() {
    let together = Together {
        n: 4,
        permits: Semaphore::new(0),
        most: Mutex::new(0),
        now: Mutex::new(0),
    };
    let limits = Limits {
        n_in_flight: 4,
        ..limits()
    };
    let text = "
for id in range(20):
    send(id, {})
assert sorted(recv()[0] for _ in range(20)) == list(range(20))";
    let child = Child::start(&plain(), &code(text), limits).await.unwrap();
    let ended = child
        .supervise(None, &together, std::future::pending())
        .await;
    assert!(ended.is_success(), "{}", ended.into_result().unwrap_err());
    assert_eq!(*together.most.lock().unwrap(), 4);
}

#[tokio::test]
async fn large_messages_pass_in_both_directions() {
    struct Echo;
    impl Answers for Echo {
        async fn answer(&self, request: Frame) -> Answer {
            Answer::Body(request.body)
        }
    }
    let text = "
x = 'x' * 900_000
assert ask(1, {'x': x}) == {'x': x}";
    let child = Child::start(&plain(), &code(text), limits()).await.unwrap();
    let ended = child.supervise(None, &Echo, std::future::pending()).await;
    assert!(ended.is_success(), "{}", ended.into_result().unwrap_err());
}

#[tokio::test]
async fn an_answer_over_the_limit_ends_the_child_and_says_so() {
    struct Large;
    impl Answers for Large {
        async fn answer(&self, _: Frame) -> Answer {
            Answer::Body(Value::from("x".repeat(2000)))
        }
    }
    let limits = Limits {
        frame: 1000,
        ..limits()
    };
    let child = Child::start(&plain(), &code("tell(a=1)"), limits)
        .await
        .unwrap();
    let ended = child.supervise(None, &Large, std::future::pending()).await;
    let error = ended.into_result().unwrap_err().to_string();
    assert!(
        error.starts_with("expected answers of at most 1000 bytes, found one of 20"),
        "{error}"
    );
}

/// The last word of a child that does not wait for an answer.
#[tokio::test]
async fn frames_of_a_child_that_is_gone_are_answered() {
    let text = "
for n in range(100):
    send(n, {'n%d' % n: n})
os._exit(0)";
    let (ended, told) = run(text, limits()).await;
    assert!(ended.is_success(), "{:?}", ended.end);
    assert_eq!(told.get("n99"), 99);
    assert_eq!(told.0.lock().unwrap().len(), 100);
}

/// A child that reads nothing must not keep us from answering what comes.
#[tokio::test]
async fn a_child_that_prints_more_than_a_pipe_holds_is_not_held_up() {
    let text = "
sys.stdout.write('x' * 1_000_000)
sys.stdout.flush()
tell(printed=1)";
    let (ended, told) = run(text, limits()).await;
    assert!(ended.is_success(), "{:?}", ended.end);
    assert_eq!(told.get("printed"), 1);
    assert_eq!(ended.output.n_dropped(), 1_000_000 - 65_536);
}

#[tokio::test]
async fn a_child_that_asks_for_ever_and_never_reads_does_not_fill_our_memory() {
    struct Long(Mutex<u32>);
    impl Answers for Long {
        async fn answer(&self, _: Frame) -> Answer {
            *self.0.lock().unwrap() += 1;
            Answer::Body(Value::from("x".repeat(100_000)))
        }
    }
    // The limit must be longer than the start of an interpreter, however slow this machine is.
    for seconds in [1, 4, 16, 64] {
        let limits = Limits {
            wall: Some(Duration::from_secs(seconds)),
            ..limits()
        };
        let long = Long(Mutex::new(0));
        let launch = code("while True: send(0, {})");
        let child = Child::start(&plain(), &launch, limits).await.unwrap();
        let ended = child.supervise(None, &long, std::future::pending()).await;
        assert!(matches!(ended.end, End::TooLong(_)), "{:?}", ended.end);
        let n_answers = *long.0.lock().unwrap();
        assert!(n_answers < 50, "{n_answers} answers that nobody reads");
        if n_answers > 0 {
            return;
        }
    }
    panic!("the child never asked");
}
