//! Durations as people read them.

use jiff::{SignedDuration, Timestamp};

/// `0.4s`, `12s`, `5m3s`, `2h5m`, `3d4h`: two units at most.
pub(crate) fn age(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    match seconds {
        0..10 => {
            let tenths = duration.as_millis().max(0) / 100;
            format!("{}.{}s", tenths / 10, tenths % 10)
        }
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// The time from one instant to another.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> String {
    age(to.duration_since(from))
}

/// The time between two instants of a pod. Kubernetes keeps whole seconds: less than one is not "nothing".
pub(crate) fn of_pod(from: Timestamp, to: Timestamp) -> String {
    of_task(None, from, to)
}

/// The time between two instants of a task, which are those of its pod. The clock of the run has `queued_at`, and is
/// finer: a pod that began after 10:00:05.9, and ended at 10:00:06, did not take a second.
pub(crate) fn of_task(queued_at: Option<Timestamp>, from: Timestamp, to: Timestamp) -> String {
    let is_whole = [from, to].iter().all(|at| at.subsec_nanosecond() == 0);
    if !is_whole {
        return between(from, to);
    }
    let from = queued_at.map_or(from, |queued_at| from.max(queued_at));
    match to.duration_since(from).as_secs() {
        ..=0 => "<1s".to_owned(),
        seconds => age(SignedDuration::from_secs(seconds)).replace(".0s", "s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_units_at_most() {
        for (milliseconds, expected) in [
            (-5, "0.0s"),
            (0, "0.0s"),
            (449, "0.4s"),
            (9_999, "9.9s"),
            (10_000, "10s"),
            (59_999, "59s"),
            (303_000, "5m3s"),
            (7_500_000, "2h5m"),
            (273_600_000, "3d4h"),
        ] {
            assert_eq!(age(SignedDuration::from_millis(milliseconds)), expected);
        }
    }

    #[test]
    fn times_of_pods_are_no_finer_than_seconds() {
        let at = |milliseconds| Timestamp::from_millisecond(milliseconds).unwrap();
        for (from, to, expected) in [
            (1_000, 1_000, "<1s"),
            (1_000, 4_000, "3s"),
            (1_000, 61_000, "1m0s"),
            (1_000, 2_500, "1.5s"),
        ] {
            assert_eq!(of_pod(at(from), at(to)), expected);
        }
    }

    #[test]
    fn a_task_takes_no_longer_than_since_its_run_let_it_begin() {
        let at = |milliseconds| Timestamp::from_millisecond(milliseconds).unwrap();
        for (queued, from, to, expected) in [
            (5_950, 5_000, 6_000, "<1s"),
            (5_950, 5_000, 5_000, "<1s"),
            (5_950, 5_000, 8_000, "2s"),
            (5_050, 6_000, 8_000, "2s"),
            (5_950, 5_970, 6_070, "0.1s"),
        ] {
            let took = of_task(Some(at(queued)), at(from), at(to));
            assert_eq!(took, expected, "{queued} {from} {to}");
        }
    }
}
