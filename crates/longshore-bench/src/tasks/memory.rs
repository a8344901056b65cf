//! What the controller keeps in memory for actions that are there: those whose code runs, and those that ended.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{TryStreamExt, stream};
use longshore_api::flyte::TASK_ACTION_CRD;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Board, CREATORS, ENDS_AT_ONCE, Observed, Template, actions, create_object, name, one_by_one,
};
use crate::{
    Common, definitions::install, figures::round, rig::Rig, say, seen::until, subject::Subject,
};

/// Pause between two measurements of the memory of the process, and their number: an allocator
/// returns memory some seconds after it was freed.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
const LOOKS: usize = 24;

/// The actions whose memory is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Their code runs.
    Active,
    /// They ended.
    Ended,
}

/// Measures a controller without any, with a tenth and with all of them, and once more after its restart.
pub(crate) async fn measure(rig: &Rig, common: &Common, kind: Kind) -> Result<Value> {
    install(&rig.client, TASK_ACTION_CRD).await?;
    let board = Board::follow(rig);
    let start = || Subject::start(common.longshore.as_deref(), "tasks", rig, &[]);
    let subject = start().await?;
    one_by_one(rig, &board, &Template::plain(), "w", 1).await?;
    let empty = settled(&subject).await?;
    let mut grown = Vec::new();
    let mut n_there = 0;
    for n in [common.n / 10, common.n] {
        say(&format!("{n} actions, {kind:?}"));
        create_all(rig, &board, kind, n_there..n).await?;
        n_there = n;
        let now = settled(&subject).await?;
        grown.push(json!({
            "n": n,
            "rss_mib": round(now),
            "peak_rss_mib": subject.peak_mib()?.map(round),
            "kib_per_action": round((now - empty) * 1024.0 / n as f64),
        }));
    }
    subject.stop().await?;
    say("started again");
    let asked_at = Instant::now();
    let subject = start().await?;
    one_by_one(rig, &board, &Template::plain(), "r", 1).await?;
    let first_effect = asked_at.elapsed();
    let again = settled(&subject).await?;
    let peak = subject.peak_mib()?;
    subject.stop().await?;
    Ok(json!({
        "subsystem": "tasks-memory",
        "kind": format!("{kind:?}").to_lowercase(),
        "server": rig.server,
        "empty_rss_mib": round(empty),
        "grown": grown,
        "started_again": {
            "rss_mib": round(again),
            "peak_rss_mib": peak.map(round),
            "kib_per_action": round((again - empty) * 1024.0 / common.n as f64),
            "seconds_to_the_end_of_another_action": round(first_effect.as_secs_f64()),
        },
    }))
}

/// Makes actions, and waits until their code runs, or has ended.
async fn create_all(
    rig: &Rig,
    board: &Board,
    kind: Kind,
    range: std::ops::Range<usize>,
) -> Result<()> {
    let api = actions(rig);
    let (n, template) = (range.end, Template::plain());
    let script = match kind {
        Kind::Active => "run 1000000s exit 0",
        Kind::Ended => ENDS_AT_ONCE,
    };
    stream::iter(range.map(Ok))
        .try_for_each_concurrent(CREATORS, |i| {
            let (api, template) = (&api, &template);
            async move { create_object(api, template.action(&name("m", i), script)?).await }
        })
        .await?;
    let is_there = move |seen: &Observed| {
        // The one that came through first has another name, and may be among them.
        let is_one = |name: &&String| name.starts_with("m-");
        let there = match kind {
            Kind::Active if seen.running.len() < n => 0,
            Kind::Active => seen.running.iter().filter(is_one).count(),
            Kind::Ended if seen.ended.len() < n => 0,
            Kind::Ended => seen.ended.keys().filter(is_one).count(),
        };
        (there >= n).then_some(())
    };
    until(&board.seen, "all actions are there", is_there).await
}

/// The memory of the process once there is nothing to do, in MiB.
async fn settled(subject: &Subject) -> Result<f64> {
    let mut least = f64::MAX;
    for _ in 0..LOOKS {
        least = least.min(subject.rss_mib()?.context("its process is not known")?);
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(least)
}
