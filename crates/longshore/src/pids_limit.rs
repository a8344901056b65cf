//! The flag for the limit of the processes of pods.

use std::num::NonZeroU64;

use clap::Args;
use longshore_node::POD_PIDS_LIMIT;

/// How many processes a pod may have.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct PidsLimitArgs {
    // Hidden: the help has to fit the first screen, and few pods have so many.
    /// Processes and threads that a pod may have at a time, or max for no limit [default: 4096]
    #[arg(long, hide = true, value_name = "N|max", value_parser = limit)]
    pod_pids_limit: Option<PidsLimit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PidsLimit {
    Max,
    At(NonZeroU64),
}

impl PidsLimitArgs {
    /// What the node limits; `None`: nothing.
    pub(crate) fn limit(self) -> Option<NonZeroU64> {
        match self.pod_pids_limit {
            None => POD_PIDS_LIMIT,
            Some(PidsLimit::Max) => None,
            Some(PidsLimit::At(limit)) => Some(limit),
        }
    }
}

fn limit(text: &str) -> Result<PidsLimit, String> {
    if text == "max" {
        return Ok(PidsLimit::Max);
    }
    let expected = || format!("expected a number of processes above 0, or max, found {text:?}");
    text.parse().map(PidsLimit::At).map_err(|_| expected())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_or_max() {
        let args = |text: &str| {
            limit(text).map(|limit| PidsLimitArgs {
                pod_pids_limit: Some(limit),
            })
        };
        assert_eq!(args("64").unwrap().limit(), NonZeroU64::new(64));
        assert_eq!(args("max").unwrap().limit(), None);
        for text in ["0", "-1", "many", ""] {
            let why = args(text).unwrap_err();
            assert!(why.contains("above 0, or max"), "{why}");
        }
        let default = PidsLimitArgs {
            pod_pids_limit: None,
        };
        assert_eq!(default.limit(), NonZeroU64::new(4096));
    }
}
