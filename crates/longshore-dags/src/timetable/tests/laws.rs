//! What holds of every timetable.

use proptest::prelude::*;

use super::*;

pub(crate) fn timetables() -> impl Strategy<Value = Timetable> {
    let hours = |n: i64| Delta::exact(SignedDuration::from_hours(n));
    let crons = prop::sample::select(vec![
        "0 0 * * *",
        "30 2 * * *",
        "*/20 * * * *",
        "0 */6 * * *",
        "0 3 * * 1-5",
        "15 1,2,3 * * *",
        "0 0 1 * *",
        "7 * * * *",
    ]);
    let zones = prop::sample::select(vec![
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
    ]);
    let cron = (crons, zones).prop_map(|(expression, zone)| cron_in(expression, zone));
    let trigger = (cron.clone(), 0_i64..30).prop_map(move |(cron, n)| CronTrigger {
        interval: hours(n),
        ..CronTrigger::at(cron)
    });
    let delta = (0_i32..3, 1_i64..100).prop_map(|(months, n)| Delta {
        months,
        rest: SignedDuration::from_mins(n * 17),
    });
    // All of one zone and interval, as Airflow has them.
    let several = (prop::collection::vec(trigger.clone(), 1..4)).prop_map(
        |mut triggers: Vec<CronTrigger>| {
            let first = triggers[0].clone();
            for trigger in &mut triggers {
                trigger.cron.zone = first.cron.zone.clone();
                trigger.interval = first.interval;
            }
            Timetable::MultipleCronTrigger(triggers)
        },
    );
    prop_oneof![
        trigger.prop_map(Timetable::CronTrigger),
        several,
        delta
            .clone()
            .prop_map(move |delta| Timetable::DeltaTrigger {
                delta,
                interval: hours(1)
            }),
        cron.prop_map(Timetable::CronDataInterval),
        delta.prop_map(Timetable::DeltaDataInterval),
    ]
}

pub(crate) fn moments() -> impl Strategy<Value = Timestamp> {
    // With the changes of the clocks in spring and autumn more often than other times.
    let around = prop::sample::select(vec![
        "2026-03-29T00:00:00Z",
        "2026-10-25T00:00:00Z",
        "2026-03-08T06:00:00Z",
        "2026-11-01T05:00:00Z",
        "2026-07-01T00:00:00Z",
    ]);
    (around, -5 * 86_400_i64..5 * 86_400)
        .prop_map(|(around, seconds)| time(around) + SignedDuration::from_secs(seconds))
}

/// What bounds a timetable: its ticks, or the starts of its intervals.
fn bounded(timetable: &Timetable, run: &NextRun) -> Timestamp {
    match timetable {
        Timetable::CronDataInterval(_) | Timetable::DeltaDataInterval(_) => run.data_interval.start,
        Timetable::Null
        | Timetable::Once
        | Timetable::Continuous
        | Timetable::CronTrigger(_)
        | Timetable::DeltaTrigger { .. }
        | Timetable::MultipleCronTrigger(_)
        | Timetable::Unsupported { .. } => run.run_after,
    }
}

proptest! {
    #[test]
    fn runs_follow_each_other_within_their_bounds(
        timetable in timetables(),
        earliest in moments(),
        length in prop::option::of(0_i64..20 * 86_400),
        catchup in any::<bool>(),
        clocks in prop::collection::vec(moments(), 1..12),
    ) {
        let latest = length.map(|seconds| earliest + SignedDuration::from_secs(seconds));
        let restriction = Restriction { earliest: Some(earliest), latest, catchup };
        let mut last: Option<NextRun> = None;
        // The clock jumps as it likes.
        for now in clocks {
            let interval = last.map(|run| run.data_interval);
            let Some(run) = timetable.next_run(interval.as_ref(), &restriction, now) else { continue };
            prop_assert!(bounded(&timetable, &run) >= earliest, "{run:?}");
            prop_assert!(latest.is_none_or(|latest| bounded(&timetable, &run) <= latest), "{run:?}");
            prop_assert_eq!(run.logical_date, run.data_interval.start);
            prop_assert_eq!(run.run_after, run.data_interval.end);
            if let Some(last) = last {
                prop_assert!(run.logical_date > last.logical_date, "{run:?} after {last:?}");
                prop_assert!(run.run_after > last.run_after, "{run:?} after {last:?}");
            }
            last = Some(run);
        }
    }

    #[test]
    fn with_catchup_the_clock_does_not_matter_and_intervals_leave_no_hole(
        timetable in timetables(), earliest in moments(), a in moments(), b in moments(),
    ) {
        let restriction = Restriction { earliest: Some(earliest), latest: None, catchup: true };
        let mut last: Option<DataInterval> = None;
        for _ in 0..10 {
            let run = timetable.next_run(last.as_ref(), &restriction, a);
            prop_assert_eq!(run, timetable.next_run(last.as_ref(), &restriction, b));
            let run = run.unwrap();
            let is_interval = matches!(timetable, Timetable::CronDataInterval(_) | Timetable::DeltaDataInterval(_));
            if let Some(last) = last.filter(|_| is_interval) {
                prop_assert_eq!(run.data_interval.start, last.end);
            }
            last = Some(run.data_interval);
        }
    }
}

#[test]
fn once_and_continuous_keep_their_bounds() {
    let now = time("2026-03-28T12:00:00Z");
    let within = |earliest: Option<&str>, latest: Option<&str>| Restriction {
        earliest: earliest.map(time),
        latest: latest.map(time),
        catchup: false,
    };
    let last = DataInterval {
        start: time("2026-03-28T10:00:00Z"),
        end: time("2026-03-28T11:00:00Z"),
    };
    for timetable in [Timetable::Once, Timetable::Continuous] {
        let over = within(None, Some("2026-03-28T11:59:59Z"));
        assert_eq!(timetable.next_run(None, &over, now), None, "{timetable:?}");
    }
    assert_eq!(
        Timetable::Once.next_run(Some(&last), &within(None, None), now),
        None
    );
    let run = Timetable::Continuous
        .next_run(Some(&last), &within(None, None), now)
        .unwrap();
    assert_eq!(
        run.data_interval,
        DataInterval {
            start: last.end,
            end: now
        }
    );
    // Before its start date it waits for that.
    let run = Timetable::Continuous
        .next_run(None, &within(Some("2026-04-01T00:00:00Z"), None), now)
        .unwrap();
    assert_eq!(run.run_after, time("2026-04-01T00:00:00Z"));
}
