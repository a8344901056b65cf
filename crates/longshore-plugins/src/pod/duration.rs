//! Durations as Go prints them, which messages and arguments hold.

use std::time::Duration;

/// As Go prints durations of a second and more: `3m0s`. Grace periods are whole milliseconds at the least.
pub(super) fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let millis = duration.subsec_millis();
    if seconds == 0 && millis > 0 {
        return format!("{millis}ms");
    }
    let fraction = match millis {
        0 => String::new(),
        _ => format!(".{millis:03}").trim_end_matches('0').to_owned(),
    };
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}{fraction}s"),
        (0, _) => format!("{minutes}m{seconds}{fraction}s"),
        _ => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_as_go_does() {
        for (millis, expected) in [
            (0, "0s"),
            (250, "250ms"),
            (1_500, "1.5s"),
            (180_000, "3m0s"),
            (3_600_000, "1h0m0s"),
            (5_405_010, "1h30m5.01s"),
        ] {
            assert_eq!(go_duration(Duration::from_millis(millis)), expected);
        }
    }
}
