//! What Linux says about a process in `/proc/PID/stat`.

/// The content of such a file. Fields have the numbers of proc_pid_stat(5), which begin with 1.
#[derive(Clone, Copy, Debug)]
pub struct ProcessStat<'a> {
    /// The fields from the third one on.
    fields: &'a str,
}

impl<'a> ProcessStat<'a> {
    /// When the process was started, in clock ticks since the boot: tells it from a later one with the same pid.
    pub const START_TICKS: usize = 22;
    /// The pid of the parent.
    pub const PARENT: usize = 4;
    /// The pid of the leader of its session.
    pub const SESSION: usize = 6;

    /// Reads the content of the file; `None` where it is no such file.
    ///
    /// The second field is the name of the program in parentheses. It may hold any bytes, parentheses too.
    pub fn parse(content: &'a [u8]) -> Option<Self> {
        let end = content.iter().rposition(|byte| *byte == b')')?;
        let fields = std::str::from_utf8(content.get(end + 1..)?).ok()?;
        Some(Self { fields })
    }

    /// Whether the process has not ended: a zombie has.
    pub fn is_alive(&self) -> bool {
        self.field(3)
            .is_some_and(|state| !matches!(state, "Z" | "X"))
    }

    /// A field that is a number; `None` where there is none, for the first two too.
    pub fn number<T: std::str::FromStr>(&self, field: usize) -> Option<T> {
        self.field(field)?.parse().ok()
    }

    fn field(&self, number: usize) -> Option<&'a str> {
        let after_name = number.checked_sub(3)?;
        self.fields.split_ascii_whitespace().nth(after_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it is alive; its parent, session and start.
    type Fields = (bool, Option<i32>, Option<i32>, Option<u64>);

    fn read(content: &[u8]) -> Option<Fields> {
        let stat = ProcessStat::parse(content)?;
        Some((
            stat.is_alive(),
            stat.number(ProcessStat::PARENT),
            stat.number(ProcessStat::SESSION),
            stat.number(ProcessStat::START_TICKS),
        ))
    }

    #[test]
    fn fields_are_counted_from_the_end_of_the_name_whatever_it_holds() {
        let rest = " 3 7 5 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        for name in [&b"sh"[..], b"a) S 9", b"(", b")", b"\xff\xfe ", b""] {
            for (state, is_alive) in [("S", true), ("R", true), ("Z", false), ("X", false)] {
                let content = [b"7 (", name, b") ", state.as_bytes(), rest.as_bytes()].concat();
                let expected = (is_alive, Some(3), Some(5), Some(4711));
                assert_eq!(read(&content), Some(expected), "{name:?} {state}");
            }
        }
        assert_eq!(read(b"7 (a) S 3"), Some((true, Some(3), None, None)));
        assert_eq!(read(b"7 (a)"), Some((false, None, None, None)));
        assert_eq!(read(b"7 a S 3"), None);
        assert_eq!(read(b""), None);
        let stat = ProcessStat::parse(b"7 (8) S").map(|stat| stat.number::<i32>(1));
        assert_eq!(stat, Some(None));
    }
}
