//! The form of a status: an object has a limit of size, and the spec of an action has its part of it.

use longshore_api::flyte::TaskActionStatus;
use longshore_core::{StatusForm, text::shorten_to};
use longshore_plugins::{PhaseInfo, PluginState};

use crate::status::leave_out;

/// The longest text of a short status, in bytes.
const SHORT_TEXT: usize = 512;
/// Entries of the history in a short status.
const SHORT_HISTORY: usize = 5;

/// What the status of an action has in each form.
pub(crate) trait InForm {
    /// A text as the status has it.
    fn text(self, text: impl Into<String>) -> String;

    /// A phase with texts as the status has them, so that what was written in short is no news.
    #[must_use]
    fn info(self, info: PhaseInfo) -> PhaseInfo;

    /// A status in this form. What observers and takeovers go by stays: phases, versions, counts, the state of the plugin.
    #[must_use]
    fn status(self, status: TaskActionStatus) -> TaskActionStatus;
}

impl InForm for StatusForm {
    fn text(self, text: impl Into<String>) -> String {
        match self {
            Self::Full => text.into(),
            Self::Short | Self::Unwritable => shorten_to(text, SHORT_TEXT),
        }
    }

    fn info(self, mut info: PhaseInfo) -> PhaseInfo {
        if self == Self::Full {
            return info;
        }
        info.reason = self.text(info.reason);
        if let Some(error) = &mut info.error {
            error.message = self.text(std::mem::take(&mut error.message));
        }
        info
    }

    fn status(self, mut status: TaskActionStatus) -> TaskActionStatus {
        if self == Self::Full {
            return status;
        }
        let conditions = status.conditions.iter_mut().map(|it| &mut it.message);
        let history = status.phase_history.iter_mut().map(|it| &mut it.message);
        let error = status.error_state.iter_mut().map(|it| &mut it.message);
        for message in conditions.chain(history).chain(error) {
            *message = self.text(std::mem::take(message));
        }
        while status.phase_history.len() > SHORT_HISTORY {
            leave_out(&mut status.phase_history);
        }
        // Of a plugin with a resource. The state of another plugin has no such text, and is its own.
        let state = PluginState::read(status.plugin_state_version, &status.plugin_state);
        if let Ok(mut state) = state
            && state.k8s.reason.len() > SHORT_TEXT
        {
            state.k8s.reason = self.text(state.k8s.reason);
            status.plugin_state = state.encode();
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use longshore_plugins::{ErrorKind, K8sState, Launch, Phase, STATE_VERSION};
    use longshore_test::EPOCH;

    use super::*;
    use crate::status;

    /// A status as large as the executor writes one.
    fn large() -> TaskActionStatus {
        let long = "a".repeat(1 << 20);
        let mut large = TaskActionStatus::default();
        let phases = [Phase::Initializing, Phase::Queued];
        for phase in phases.into_iter().cycle().take(100) {
            status::enter(&mut large, &PhaseInfo::of(phase, long.as_str()), EPOCH);
        }
        let failed = PhaseInfo::permanent(ErrorKind::User, "Code", long.as_str());
        status::enter(&mut large, &failed, EPOCH);
        let state = PluginState {
            launch: Launch::Started,
            k8s: K8sState {
                reason: PhaseInfo::of(Phase::Queued, long).reason,
                ..K8sState::default()
            },
            ..PluginState::default()
        };
        large.plugin_state = state.encode();
        large.plugin_state_version = STATE_VERSION;
        large.plugin_phase_version = 7;
        large
    }

    fn size(status: &TaskActionStatus) -> usize {
        serde_json::to_string(status).unwrap().len()
    }

    #[test]
    fn a_status_has_a_bounded_size_whatever_foreign_systems_say() {
        let large = large();
        assert!(size(&large) < 400 << 10, "{} bytes", size(&large));
        assert_eq!(StatusForm::Full.status(large.clone()), large);
        let short = StatusForm::Short.status(large.clone());
        assert!(size(&short) < 8 << 10, "{} bytes", size(&short));
        assert_eq!(short.phase_history.len(), SHORT_HISTORY);
        let left_out = &short.phase_history[1].message;
        assert!(
            left_out.ends_with("phases before this one are left out"),
            "{left_out}"
        );
        assert_eq!(short.plugin_phase_version, 7);
        assert_eq!(short.is_terminal(), large.is_terminal());
        assert_eq!(
            StatusForm::Short.status(short.clone()),
            short,
            "once is enough"
        );
    }

    #[test]
    fn a_state_that_is_not_of_a_resource_stays_as_it_is() {
        for state in [b"of another plugin".to_vec(), Vec::new(), vec![0; 5000]] {
            let status = TaskActionStatus {
                plugin_state: state.clone(),
                plugin_state_version: STATE_VERSION,
                ..TaskActionStatus::default()
            };
            assert_eq!(StatusForm::Unwritable.status(status).plugin_state, state);
        }
    }
}
