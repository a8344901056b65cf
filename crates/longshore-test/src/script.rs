//! What a scripted container does.

use std::{fmt, str::FromStr, time::Duration};

/// What the container of one attempt does, as `run 3s exit 0`.
///
/// Words: `run <time>` takes time; `exit <code>` ends it (default 0, and 137 where the program kills itself);
/// `message <text to the end>` is its termination message; `oom` ends it for want of memory; `evicted <code>` ends it with
/// this code because its node is short of memory; `hang` never ends, and ignores SIGTERM until the grace period is over;
/// `waiting <Reason>` never starts, as with an image that cannot be pulled. Attempts are separated by `|`, and launches of
/// an attempt by `;`; the last one holds for all that follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// How long the container runs.
    pub time: Duration,
    /// How the container ends after that.
    pub end: End,
    /// The termination message.
    pub message: Option<String>,
}

/// How a scripted container ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With this code.
    Exit(i32),
    /// Killed for want of memory.
    OutOfMemory,
    /// With this code, because its node evicts the pod.
    Evicted(i32),
    /// The container does not end by itself.
    Hang,
    /// The container never starts, for this reason.
    Waiting(String),
}

impl Default for Script {
    /// `run 1s exit 0`
    fn default() -> Self {
        Self {
            time: Duration::from_secs(1),
            end: End::Exit(0),
            message: None,
        }
    }
}

/// A script that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a script as `run 3s exit 0`, found {found:?} in {text:?}")]
pub struct ScriptError {
    found: String,
    text: String,
}

impl Script {
    /// The part of `text` for this launch of this attempt, both counted from 1.
    pub fn of_launch(text: &str, attempt: usize, launch: usize) -> Result<Self, ScriptError> {
        part(part(text, '|', attempt), ';', launch).parse()
    }

    /// Whether `text` starts like a script.
    pub fn is_script(text: &str) -> bool {
        let first = text.split_whitespace().next().unwrap_or_default();
        [
            "run", "exit", "oom", "evicted", "hang", "message", "waiting",
        ]
        .contains(&first)
    }
}

impl FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let fail = |found: &str| ScriptError {
            found: found.to_owned(),
            text: text.to_owned(),
        };
        let mut script = Self {
            time: Duration::ZERO,
            end: End::Exit(0),
            message: None,
        };
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (word, after) = next_word(rest);
            let (value, after_value) = next_word(after);
            rest = after_value;
            match word {
                "run" => script.time = time(value).ok_or_else(|| fail(value))?,
                "exit" => script.end = End::Exit(value.parse().map_err(|_| fail(value))?),
                "evicted" => script.end = End::Evicted(value.parse().map_err(|_| fail(value))?),
                "waiting" => script.end = End::Waiting(value.to_owned()),
                "oom" => {
                    script.end = End::OutOfMemory;
                    rest = after;
                }
                "hang" => {
                    script.end = End::Hang;
                    rest = after;
                }
                "message" => {
                    script.message = Some(after.to_owned());
                    rest = "";
                }
                _ => return Err(fail(word)),
            }
        }
        Ok(script)
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {}ms ", self.time.as_millis())?;
        match &self.end {
            End::Exit(code) => write!(f, "exit {code}")?,
            End::OutOfMemory => f.write_str("oom")?,
            End::Evicted(code) => write!(f, "evicted {code}")?,
            End::Hang => f.write_str("hang")?,
            End::Waiting(reason) => write!(f, "waiting {reason}")?,
        }
        match &self.message {
            Some(message) => write!(f, " message {message}"),
            None => Ok(()),
        }
    }
}

/// The part of this number, counted from 1, or the last one.
fn part(text: &str, separator: char, number: usize) -> &str {
    let parts: Vec<&str> = text.split(separator).collect();
    let index = number.saturating_sub(1).min(parts.len() - 1);
    parts.get(index).copied().unwrap_or_default()
}

fn next_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (word, rest.trim_start())
}

/// `3s`, `250ms`, `2m`.
fn time(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number * 60)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_read_back() {
        for text in [
            "run 3000ms exit 0",
            "run 0ms exit 1 message {\"rows\": 3}",
            "run 250ms hang",
            "run 250ms oom",
            "run 250ms evicted 137",
            "run 0ms waiting ErrImagePull",
        ] {
            assert_eq!(text.parse::<Script>().unwrap().to_string(), text);
        }
        assert!("walk 3s".parse::<Script>().is_err());
        assert!("run soon".parse::<Script>().is_err());
    }

    #[test]
    fn each_attempt_has_its_part_and_the_last_holds_on() {
        let text = "exit 1 | run 2s exit 0";
        let ends: Vec<_> = (1..=3)
            .map(|attempt| Script::of_launch(text, attempt, 1).unwrap().end)
            .collect();
        assert_eq!(ends, [End::Exit(1), End::Exit(0), End::Exit(0)]);
    }

    #[test]
    fn each_launch_of_an_attempt_has_its_part_and_the_last_holds_on() {
        let text = "evicted 143; exit 1 | exit 2; exit 3";
        let end = |(attempt, launch)| Script::of_launch(text, attempt, launch).unwrap().end;
        let ends = [(1, 1), (1, 2), (1, 3), (2, 1), (3, 2)].map(end);
        let expected = [
            End::Evicted(143),
            End::Exit(1),
            End::Exit(1),
            End::Exit(2),
            End::Exit(3),
        ];
        assert_eq!(ends, expected);
    }
}
