//! A watch position that cannot be mistaken for another cluster's.

use std::{fmt, str::FromStr};

use crate::model::Launcher;

/// Where the watches are: a `resourceVersion` means something only in the cluster that gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The uid of the namespace `kube-system`, the customary identity of a cluster.
    pub(crate) cluster: String,
    /// How far each watch has come.
    pub(crate) reached: Reached,
}

/// How far each watch has come: `resourceVersion`s, which Kubernetes lets compare as integers within one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// The watch of pods.
    pub(crate) pods: Option<u64>,
    /// The watch of TaskActions; there is none before the first task with a plugin.
    pub(crate) actions: Option<u64>,
}

impl Reached {
    /// What the watch of one launcher says.
    pub(crate) fn of(launcher: Launcher, version: u64) -> Self {
        let mut reached = Self::default();
        match launcher {
            Launcher::Pod => reached.pods = Some(version),
            Launcher::TaskAction => reached.actions = Some(version),
        }
        reached
    }

    /// This, and what came later.
    #[must_use]
    pub(crate) fn then(self, later: Self) -> Self {
        Self {
            pods: later.pods.or(self.pods),
            actions: later.actions.or(self.actions),
        }
    }

    /// What is stored, if it is about this cluster.
    pub(crate) fn stored(text: Option<&str>, cluster: &str) -> Self {
        let position = text.and_then(|text| text.parse::<Position>().ok());
        position
            .filter(|position| position.cluster == cluster)
            .map(|position| position.reached)
            .unwrap_or_default()
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reached { pods, actions } = self.reached;
        write!(f, "{}", pods.unwrap_or(0))?;
        if let Some(actions) = actions {
            write!(f, "+{actions}")?;
        }
        write!(f, "@{}", self.cluster)
    }
}

/// The stored text is not a position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected `<resourceVersion of pods>[+<resourceVersion of TaskActions>]@<cluster uid>`, found `{0}`"
)]
pub(crate) struct PositionError(String);

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (versions, cluster) = text.split_once('@')?;
            let (pods, actions) = match versions.split_once('+') {
                Some((pods, actions)) => (pods, Some(actions.parse().ok()?)),
                None => (versions, None),
            };
            let reached = Reached {
                pods: Some(pods.parse().ok()?),
                actions,
            };
            Some(Self {
                cluster: cluster.to_owned(),
                reached,
            })
        };
        read().ok_or_else(|| PositionError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written() {
        for text in ["7@c", "7+12@c", "0@a@b"] {
            assert_eq!(text.parse::<Position>().unwrap().to_string(), text);
        }
        for text in ["", "7", "x@c", "7+@c", "+7@c"] {
            assert!(text.parse::<Position>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn each_watch_goes_its_own_way() {
        let both = Reached::of(Launcher::Pod, 7).then(Reached::of(Launcher::TaskAction, 3));
        let later = both.then(Reached::of(Launcher::Pod, 9));
        assert_eq!((later.pods, later.actions), (Some(9), Some(3)));
        assert_eq!(Reached::stored(Some("7+3@c"), "c"), both);
        assert_eq!(Reached::stored(Some("7+3@c"), "d"), Reached::default());
        assert_eq!(Reached::stored(None, "c"), Reached::default());
    }
}
