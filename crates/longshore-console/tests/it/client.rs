//! Our own client against the real thing.

use std::time::Duration;

use futures::StreamExt;
use longshore_console::{
    TaskName, Token,
    client::{Changes, Client, ClientError, Followed, LogPiece, LogReader},
    control::{LogQuery, Until},
    objects::{Clear, DagPatch, Trigger},
};
use tokio::time::timeout;

use crate::Service;

const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn what_is_asked_is_done() {
    let service = Service::start().await;
    let client = service.client();
    assert_eq!(client.dags().await.unwrap().items.len(), 2);
    let patch = DagPatch {
        is_paused: Some(true),
    };
    assert!(client.patch_dag("etl", &patch).await.unwrap().is_paused);
    let trigger = Trigger {
        run_id: Some("manual__2026-11-21T10:00:00+00:00".to_owned()),
        ..Trigger::default()
    };
    let run = client.trigger("etl", &trigger).await.unwrap();
    let name = format!("etl/{}", run.run_id).parse().unwrap();
    assert_eq!(client.run(&name).await.unwrap(), run);
    assert_eq!(client.cancel(&name).await.unwrap(), run);
    assert_eq!(client.tasks(&name, "failed").await.unwrap().items.len(), 1);
    let task: TaskName = format!("{name}/extract").parse().unwrap();
    assert_eq!(client.task(&task).await.unwrap().earlier_tries.len(), 1);
    let clear = Clear { downstream: true };
    assert_eq!(client.clear(&task, &clear).await.unwrap().items.len(), 2);
    let mapped: TaskName = format!("{name}/extract[3]").parse().unwrap();
    assert_eq!(client.task(&mapped).await.unwrap().map_index, 3);

    let ClientError::Refused(problem) = client.retry(&name).await.unwrap_err() else {
        panic!("expected a refusal");
    };
    assert_eq!((problem.status, &*problem.code), (501, "LS1005"));
}

#[tokio::test]
async fn a_log_comes_as_it_is_written() {
    let service = Service::start().await;
    let task: TaskName = "etl/r2/extract".parse().unwrap();
    let query = LogQuery {
        until: Until::End,
        ..LogQuery::default()
    };
    let mut log = service.client().logs(&task, query).await.unwrap();
    let mut text = Vec::new();
    while text.len() < 12 {
        text.extend(timeout(LIMIT, log.next()).await.unwrap().unwrap().unwrap());
    }
    assert_eq!(text, b"one\ntwo\x1b[2J\n");
    // The try goes on: only the end of the service ends the log.
    service.stopping.cancel();
    assert!(timeout(LIMIT, log.next()).await.unwrap().is_none());
}

async fn next_piece(log: &mut LogReader) -> Option<String> {
    let piece = timeout(LIMIT, log.next()).await.unwrap().unwrap()?;
    Some(match piece {
        LogPiece::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        LogPiece::Lost => "lost".to_owned(),
    })
}

/// Its try goes on while the service is started anew: once on its own, once with a later line.
#[tokio::test]
async fn a_log_that_is_followed_goes_on_where_it_was_after_a_restart() {
    for tail in [None, Some(1)] {
        let service = Service::start().await;
        service.fake.set_state("r3", "running");
        let task: TaskName = "etl/r3/extract".parse().unwrap();
        let query = LogQuery {
            until: Until::End,
            attempt: Some(2),
            tail,
        };
        let mut log = service.client().read_log(&task, query).await.unwrap();
        let mut text = String::new();
        while !text.ends_with("two\x1b[2J\n") {
            text.push_str(&next_piece(&mut log).await.unwrap());
        }
        let (fake, address) = service.stop().await;
        assert_eq!(next_piece(&mut log).await.unwrap(), "lost");
        fake.write("three\n");
        let service = Service::with(fake, &address).await;
        assert_eq!(next_piece(&mut log).await.unwrap(), "three\n", "{tail:?}");
        service.fake.set_state("r3", "success");
        let (fake, address) = service.stop().await;
        assert_eq!(next_piece(&mut log).await.unwrap(), "lost");
        fake.end_logs();
        let _service = Service::with(fake, &address).await;
        assert_eq!(next_piece(&mut log).await, None, "{tail:?}");
    }
}

#[tokio::test]
async fn who_is_not_let_in_or_finds_nobody_is_told() {
    let service = Service::start().await;
    for token in [None, Some(Token::new("wrong"))] {
        let client = Client::new(&service.address, token).unwrap();
        let error = client.dags().await.unwrap_err();
        assert!(matches!(error, ClientError::Refused(problem) if problem.status == 401));
    }
    let client = service.client();
    service.stop().await;
    let error = client.dags().await.unwrap_err();
    assert!(matches!(&error, ClientError::Unreachable { .. }), "{error}");
    assert!(error.is_temporary());
}

/// Waits as a follower does that draws meanwhile: each wait is dropped before a service can be back.
async fn next(changes: &mut Changes) -> String {
    const UNTIL_REDRAW: Duration = Duration::from_millis(100);
    let followed = async {
        loop {
            if let Ok(followed) = timeout(UNTIL_REDRAW, changes.next()).await {
                return followed;
            }
        }
    };
    match timeout(LIMIT, followed).await.unwrap().unwrap() {
        Followed::Ready => "ready".to_owned(),
        Followed::Reset => "reset".to_owned(),
        Followed::Lost => "lost".to_owned(),
        Followed::Change(change) => match *change {
            longshore_console::objects::Change::RunChange { to, .. } => to,
            longshore_console::objects::Change::TaskChange { task_id, .. }
            | longshore_console::objects::Change::TaskPending { task_id, .. } => task_id,
        },
    }
}

#[tokio::test]
async fn changes_go_on_where_they_were_after_a_lost_connection() {
    // Nobody else listens or connects from here: the port stays free while the service is away.
    let service = Service::with(std::sync::Arc::default(), "127.7.0.1:0").await;
    let mut changes = service.client().changes(&"etl/r3".parse().unwrap());
    assert_eq!(next(&mut changes).await, "ready");
    service.fake.set_state("r2", "queued");
    service.fake.set_state("r3", "queued");
    assert_eq!(
        next(&mut changes).await,
        "queued",
        "and nothing of other runs"
    );

    // The same service on the same address, as after a lost network.
    let (fake, address) = service.stop().await;
    assert_eq!(next(&mut changes).await, "lost");
    fake.set_state("r3", "running");
    let service = Service::with(fake, &address).await;
    assert_eq!(next(&mut changes).await, "running");

    // Too far behind: told so, then on.
    let (fake, address) = service.stop().await;
    assert_eq!(next(&mut changes).await, "lost");
    for _ in 0..20 {
        fake.set_state("r3", "queued");
    }
    let service = Service::with(fake, &address).await;
    assert_eq!(next(&mut changes).await, "reset");

    // Another process has its own numbers.
    let (_, address) = service.stop().await;
    assert_eq!(next(&mut changes).await, "lost");
    let service = Service::with(std::sync::Arc::default(), &address).await;
    assert_eq!(next(&mut changes).await, "reset");
    service.fake.set_state("r3", "success");
    assert_eq!(next(&mut changes).await, "success");
}
