use longshore_outbound::Permit;
use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, routing::post};
use http::HeaderMap;
use longshore_connect::{
    Code, ConnectClient,
    server::{Refusal, answer},
};
use longshore_plugins::ErrorKind;
use longshore_proto::flyteidl2::workflow::{RecordRequest, RecordResponse};
use longshore_test::serve;
use tokio::time::{Instant, sleep};

use super::*;

mod log;

fn event(action: &str) -> ActionEvent {
    let at = Timestamp::from_second(1_800_000_000).unwrap();
    ActionEvent {
        project: "p".to_owned(),
        domain: "d".to_owned(),
        run: "r".to_owned(),
        action: action.to_owned(),
        attempt: 2,
        phase: ActionPhase::Failed,
        version: 3,
        updated_at: at,
        reported_at: at,
        error: Some(TaskError {
            code: "OOMKilled".to_owned(),
            message: "too much".to_owned(),
            kind: ErrorKind::User,
        }),
        cluster: "c".to_owned(),
        output_prefix: "s3://b/out/2".to_owned(),
        cache_status: 2,
        reasons: vec![ReasonInfo {
            reason: "pulled".to_owned(),
            occurred_at: at,
        }],
        logs: vec![TaskLog {
            name: "Kubernetes Logs".to_owned(),
            uri: "http://logs/r-a-1".to_owned(),
            ..TaskLog::default()
        }],
        log_context: Some(LogContext {
            primary_pod_name: "r-a-1".to_owned(),
            ..LogContext::default()
        }),
    }
}

/// Takes its time, and refuses or fails at an action with such a name.
#[derive(Debug, Default)]
struct Sink {
    takes: Duration,
    batches: Mutex<Vec<usize>>,
}

#[async_trait]
impl EventSink for Sink {
    async fn record(&self, events: &[ActionEvent]) -> Result<(), NotRecorded> {
        self.batches.lock().unwrap().push(events.len());
        sleep(self.takes).await;
        for event in events {
            match event.action.as_str() {
                "refused" => return Err(NotRecorded::Refused("bad".to_owned())),
                "fails" => return Err(NotRecorded::Failed("down".to_owned())),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Sink {
    fn taking(takes: Duration) -> Arc<Self> {
        Arc::new(Self {
            takes,
            ..Self::default()
        })
    }

    fn batches(&self) -> Vec<usize> {
        self.batches.lock().unwrap().clone()
    }
}

fn batched(sink: &Arc<Sink>) -> BatchedEvents {
    let (events, work) = BatchedEvents::new(Arc::clone(sink) as _, BatchLimits::default());
    tokio::spawn(work);
    events
}

async fn publish(events: &BatchedEvents, actions: Vec<String>) -> Vec<Result<(), String>> {
    let told = actions.into_iter().map(|action| async move {
        let published = events.publish(&event(&action)).await;
        published.map_err(|error| error.to_string())
    });
    futures::future::join_all(told).await
}

fn names(n: usize) -> Vec<String> {
    (0..n).map(|n| format!("a{n}")).collect()
}

#[tokio::test(start_paused = true)]
async fn one_event_waits_for_others_but_not_for_long() {
    let sink = Sink::taking(Duration::ZERO);
    let events = batched(&sink);
    let start = Instant::now();
    events.publish(&event("a")).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_millis(25));
    assert_eq!(sink.batches(), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_full_batch_goes_at_once_and_everybody_waits_for_their_own() {
    let sink = Sink::taking(Duration::from_millis(10));
    let events = batched(&sink);
    let start = Instant::now();
    let told = publish(&events, names(1000)).await;
    assert!(told.iter().all(Result::is_ok), "{told:?}");
    assert_eq!(sink.batches(), [400, 400, 200]);
    assert_eq!(
        start.elapsed(),
        Duration::from_millis(35),
        "the last one waited for more"
    );
}

#[tokio::test(start_paused = true)]
async fn so_many_batches_are_under_way_and_no_more() {
    let sink = Sink::taking(Duration::from_secs(1));
    let events = batched(&sink);
    let start = Instant::now();
    let n = 400 * 64;
    let told = publish(&events, names(n)).await;
    assert!(told.iter().all(Result::is_ok));
    assert_eq!(sink.batches().iter().sum::<usize>(), n);
    assert_eq!(start.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_down_or_slow_is_told_to_those_who_wait() {
    let sink = Sink::taking(Duration::ZERO);
    let told = publish(&batched(&sink), vec!["a".to_owned(), "fails".to_owned()]).await;
    let down = "the run service did not acknowledge an event: down";
    assert_eq!(told, [Err(down.to_owned()), Err(down.to_owned())]);
    assert_eq!(sink.batches(), [2], "the whole batch comes again");

    let slow = batched(&Sink::taking(Duration::from_hours(1)));
    let error = slow.publish(&event("a")).await.unwrap_err();
    assert!(
        error.to_string().ends_with("no answer within 30s"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn one_bad_event_keeps_nobody_else_back() {
    let sink = Sink::taking(Duration::ZERO);
    let mut actions = names(99);
    actions.push("refused".to_owned());
    let told = publish(&batched(&sink), actions).await;
    let n_told = told.iter().filter(|told| told.is_ok()).count();
    assert_eq!(n_told, 99);
    told[99].as_ref().unwrap_err();
    assert!(sink.batches().len() < 20, "{:?}", sink.batches());
}

#[tokio::test(start_paused = true)]
async fn an_event_that_nobody_would_take_is_not_sent() {
    let sink = Sink::taking(Duration::ZERO);
    let events = batched(&sink);
    let nameless = event("");
    let early = ActionEvent {
        attempt: 0,
        ..event("a")
    };
    for (event, why) in [(nameless, "whose it is"), (early, "attempt is 0")] {
        let error = events.publish(&event).await.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    assert!(sink.batches().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_queue_is_the_end_of_the_work_and_a_stop_is_told() {
    let sink = Sink::taking(Duration::from_secs(1));
    let (events, work) = BatchedEvents::new(sink.clone(), BatchLimits::default());
    let work = tokio::spawn(work);
    let told = tokio::spawn(async move { events.publish(&event("a")).await });
    work.await.unwrap();
    told.await.unwrap().unwrap();

    let (events, work) = BatchedEvents::new(sink, BatchLimits::default());
    let stopped = tokio::spawn(work);
    let (told, ()) = tokio::join!(publish(&events, names(2)), async {
        sleep(Duration::from_millis(10)).await;
        stopped.abort();
    });
    assert!(told.iter().all(Result::is_err), "{told:?}");
    events.publish(&event("a")).await.unwrap_err();
}

#[tokio::test]
async fn the_run_service_gets_what_it_expects() {
    let got = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&got);
    let record = post(async move |headers: HeaderMap, body: bytes::Bytes| {
        let work = async |request: RecordRequest| {
            let is_bad = request.events.iter().any(|event| event.version == 9);
            if is_bad {
                return Err(Refusal::new(Code::InvalidArgument, "version"));
            }
            seen.lock().unwrap().extend(request.events);
            Ok(RecordResponse {})
        };
        answer(&headers, &body, work).await
    });
    let path = "/flyteidl2.workflow.EventsProxyService/Record";
    let url = serve(Router::new().route(path, record)).await;
    let service = RemoteEvents::new(ConnectClient::new(&url, Permit::always()).unwrap());
    service.record(&[event("a")]).await.unwrap();
    let bad = ActionEvent {
        version: 9,
        ..event("b")
    };
    let refused = service.record(&[bad]).await.unwrap_err();
    assert!(matches!(refused, NotRecorded::Refused(_)), "{refused:?}");

    let got = got.lock().unwrap().clone();
    let [event] = got.as_slice() else {
        panic!("{got:?}");
    };
    insta::assert_debug_snapshot!("event_on_the_wire", event);
}

#[tokio::test]
async fn a_run_service_that_is_not_there_is_a_failure_of_all() {
    let service = RemoteEvents::new(
        ConnectClient::new(&serve(Router::new()).await, Permit::always()).unwrap(),
    );
    let failed = service.record(&[event("a")]).await.unwrap_err();
    assert!(matches!(failed, NotRecorded::Failed(_)), "{failed:?}");
}
