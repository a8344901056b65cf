//! Spans of time as kubectl writes them: two units at most, fewer the longer they are.

use jiff::Timestamp;

/// The time between two moments; `<invalid>` when they are the wrong way round.
pub(super) fn between(start: Timestamp, end: Timestamp) -> String {
    let seconds = end.as_second() - start.as_second();
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    brief(seconds.max(0))
}

/// A span in seconds.
pub(super) fn brief(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |large: i64, large_name: &str, small: i64, small_name: &str| {
        let (n_large, n_small) = (seconds / large, seconds % large / small);
        match n_small {
            0 => format!("{n_large}{large_name}"),
            _ => format!("{n_large}{large_name}{n_small}{small_name}"),
        }
    };
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => two(MINUTE, "m", 1, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(HOUR, "h", MINUTE, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(DAY, "d", HOUR, "h"),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => two(YEAR, "y", DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_brief() {
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(brief(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn the_future_has_no_age() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(between(at(10), at(5)), "<invalid>");
        assert_eq!(between(at(10), at(9)), "0s");
    }
}
