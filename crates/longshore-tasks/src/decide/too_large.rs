//! A status that the API server refuses as too large is written in short, and an Event says so. Where the API server takes
//! no status at all, nothing of the action is recorded any more, and its deletion needs no record.

use longshore_api::flyte::REASON_STATUS_TOO_LARGE;
use longshore_core::Action as Do;

use super::{ActionPlan, Round, Step};
use crate::model::StatusForm;

const WRITTEN_IN_SHORT: &str = "the API server refused the status of this action as too large: the status is written with short texts and a short history";
const NOT_WRITTEN: &str = "the API server refuses the status of this action as too large, in short as well: nothing of its progress is recorded; \
     delete it, and make its spec smaller";

/// The same plan, which says so.
pub(super) fn say(round: &Round<'_>, mut plan: ActionPlan) -> ActionPlan {
    let writes = |step: &Step| matches!(step, Do::Persist(_));
    let warn = |words: &str| round.warn(REASON_STATUS_TOO_LARGE, words.to_owned());
    match round.action.form {
        StatusForm::Full => {}
        StatusForm::Short => {
            if let Some(last) = plan.actions.iter().rposition(writes) {
                plan.actions.insert(last + 1, warn(WRITTEN_IN_SHORT));
            }
        }
        StatusForm::Unwritable if round.action.is_deleting => {
            plan.actions.retain(|step| !writes(step))
        }
        // Before the write, which is tried again after each back-off: the spec may have become smaller.
        StatusForm::Unwritable => {
            if let Some(first) = plan.actions.iter().position(writes) {
                plan.actions.insert(first, warn(NOT_WRITTEN));
            }
        }
    }
    plan
}
