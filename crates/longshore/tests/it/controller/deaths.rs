//! Actions whose programs are killed: by themselves, for want of memory, or with their pods. How they end, and after how
//! many launches, is what `docs/compatibility.md` says.

use serde_json::Value;

use super::actions::ending;
use crate::task_actions::{PodRecord, action_of};

/// An action whose pods die.
#[derive(Debug)]
pub(super) struct Death {
    /// The pods of `raw-container` have no primary container, those of tasks of the SDK have one.
    task_type: &'static str,
    retries: u32,
    script: &'static str,
    /// The reason of its end.
    end: &'static str,
    attempts: u64,
    /// Of its last attempt.
    system_failures: u64,
    /// Code and kind, where it fails.
    error: Option<(&'static str, &'static str)>,
    /// Of all attempts.
    n_launches: usize,
}

/// The system is taken to have killed what ends with 137 in a primary container: such an attempt is launched four times.
const TOO_OFTEN: Death = Death {
    task_type: "container",
    retries: 0,
    script: "run 200ms exit 137",
    end: "PermanentFailure",
    attempts: 1,
    system_failures: 4,
    error: Some(("MaxSystemFailuresExceeded", "SYSTEM")),
    n_launches: 4,
};
/// The program is at fault.
const AT_ONCE: Death = Death {
    task_type: "raw-container",
    system_failures: 0,
    error: Some(("Interrupted", "USER")),
    n_launches: 1,
    ..TOO_OFTEN
};

static DEATHS: [Death; 6] = [
    TOO_OFTEN,
    // Its retries are for failures of its own.
    Death {
        retries: 2,
        ..TOO_OFTEN
    },
    AT_ONCE,
    Death {
        retries: 1,
        attempts: 2,
        n_launches: 2,
        ..AT_ONCE
    },
    // Too much memory is the user's doing.
    Death {
        task_type: "container",
        retries: 1,
        script: "run 200ms oom",
        attempts: 2,
        error: Some(("OOMKilled", "USER")),
        n_launches: 2,
        ..AT_ONCE
    },
    // An eviction is nobody's failure: without retries the task is launched again.
    Death {
        script: "run 200ms evicted 137; run 200ms exit 0",
        end: "Completed",
        system_failures: 1,
        error: None,
        n_launches: 2,
        ..TOO_OFTEN
    },
];
/// Of so many actions each death has one.
const PERIOD: u64 = 20;

/// How the action with this number dies, where it does.
pub(super) fn of(n: u64) -> Option<&'static Death> {
    let index = usize::try_from(n % PERIOD).unwrap();
    DEATHS.get(index)
}

impl Death {
    /// The TaskAction.
    pub(super) fn action(&self, name: &str) -> Value {
        action_of(self.task_type, name, self.retries, self.script)
    }

    /// Checks its end, and that it was launched as often as it counts and no more. Answers how often.
    #[track_caller]
    pub(super) fn check(&self, action: &Value, record: &PodRecord) -> usize {
        let status = &action["status"];
        let number = |field: &str| status[field].as_u64().unwrap_or(0);
        let found = (
            ending(action).unwrap(),
            number("attempts"),
            number("systemFailures"),
        );
        let expected = (self.end.to_owned(), self.attempts, self.system_failures);
        assert_eq!(found, expected, "{action}");
        if let Some((code, kind)) = self.error {
            assert_eq!(status["errorState"]["code"], code, "{action}");
            assert_eq!(status["errorState"]["kind"], kind, "{action}");
        }
        assert_eq!(record.n_launches(action), self.n_launches, "{action}");
        self.n_launches
    }
}
