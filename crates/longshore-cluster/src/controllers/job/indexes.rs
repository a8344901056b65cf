//! Sets of completion indexes, as statuses and policies write them: `0,3-5`. Pure.

use std::fmt;

/// A set of indexes: intervals in order, first and last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(usize, usize)>);

impl Indexes {
    /// Reads the indexes below `end`; what cannot be read is left out.
    pub(super) fn parse(text: &str, end: usize) -> Indexes {
        let read = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            let last = last.min(end.checked_sub(1)?);
            (first <= last).then_some((first, last))
        };
        Indexes::merged(text.split(',').filter_map(read).collect())
    }

    fn merged(mut intervals: Vec<(usize, usize)>) -> Indexes {
        intervals.sort_unstable();
        let mut merged: Vec<(usize, usize)> = Vec::new();
        for (first, last) in intervals {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => {
                    before.1 = before.1.max(last)
                }
                Some(_) | None => merged.push((first, last)),
            }
        }
        Indexes(merged)
    }

    /// These indexes and the others.
    pub(super) fn with(&self, others: &Indexes) -> Indexes {
        Indexes::merged(self.0.iter().chain(&others.0).copied().collect())
    }

    pub(super) fn total(&self) -> usize {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    pub(super) fn has(&self, index: usize) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    /// How many indexes are in both.
    pub(super) fn n_common(&self, others: &Indexes) -> usize {
        let (mut n_common, mut at, mut other) = (0, 0, 0);
        while let (Some(a), Some(b)) = (self.0.get(at), others.0.get(other)) {
            let (first, last) = (a.0.max(b.0), a.1.min(b.1));
            n_common += (last + 1).saturating_sub(first);
            if a.1 < b.1 {
                at += 1;
            } else {
                other += 1;
            }
        }
        n_common
    }

    /// The first `n` indexes below `end` that are not here.
    pub(super) fn missing(&self, n: usize, end: usize) -> Vec<usize> {
        let mut missing = Vec::new();
        let mut next = 0;
        let taken = self.0.iter().copied();
        for (first, last) in taken.chain([(end, end)]) {
            let room = n.saturating_sub(missing.len());
            missing.extend((next..first.min(end)).take(room));
            next = next.max(last.saturating_add(1));
        }
        missing
    }
}

impl FromIterator<usize> for Indexes {
    fn from_iter<T: IntoIterator<Item = usize>>(indexes: T) -> Self {
        Indexes::merged(indexes.into_iter().map(|it| (it, it)).collect())
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{first}")?;
            if last > first {
                let sign = if *last == first + 1 { ',' } else { '-' };
                write!(f, "{sign}{last}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indexes(text: &str) -> Indexes {
        Indexes::parse(text, 100)
    }

    #[test]
    fn intervals_are_read_merged_and_written() {
        for (text, end, shown, total) in [
            ("", 5, "", 0),
            ("0", 5, "0", 1),
            ("0,1", 5, "0,1", 2),
            ("0-2,4", 5, "0-2,4", 4),
            ("3,0-1,2", 5, "0-3", 4),
            ("1-9", 5, "1-4", 4),
            ("7", 5, "", 0),
            ("x,2", 5, "2", 1),
            ("0", 0, "", 0),
        ] {
            let read = Indexes::parse(text, end);
            assert_eq!(
                (read.to_string().as_str(), read.total()),
                (shown, total),
                "{text}"
            );
        }
        let made: Indexes = [4, 0, 2, 1].into_iter().collect();
        assert_eq!(made.with(&indexes("3,9")).to_string(), "0-4,9");
    }

    #[test]
    fn sets_are_compared() {
        let set = indexes("1-3,7");
        let found: Vec<bool> = [0, 1, 3, 4, 7, 8].map(|it| set.has(it)).into();
        assert_eq!(found, [false, true, true, false, true, false]);
        for (other, n_common) in [("", 0), ("0", 0), ("3-7", 2), ("0-9", 4), ("1,3,7", 3)] {
            assert_eq!(set.n_common(&indexes(other)), n_common, "{other}");
            assert_eq!(indexes(other).n_common(&set), n_common, "{other}");
        }
        for (n, end, expected) in [
            (0, 9, vec![]),
            (2, 9, vec![0, 4]),
            (9, 9, vec![0, 4, 5, 6, 8]),
            (9, 2, vec![0]),
            (9, 0, vec![]),
        ] {
            assert_eq!(set.missing(n, end), expected, "{n} of {end}");
        }
    }
}
