//! PodTransitionRules: what pods meet on their way into and out of operations.
//!
//! [`evaluate`] says what the rules of one object say of its pods, [`decide`] what is written about that: the status
//! first, which holds pods or lets them go on, then what people see of it on the pods. [`Question`] is what a rule asks
//! its webhook, and [`admit`] what API servers ask about rules.

pub mod admit;
mod annotate;
mod available;
mod decide;
mod evaluate;
mod fit;
mod kind;
mod model;
mod questions;
mod requests;
mod task;
#[cfg(test)]
mod tests;
mod webhook;

pub use decide::{Inquiry, Observed, RulePlan, decide};
pub use evaluate::{Before, Outcome, Said, Subject, evaluate};
pub(crate) use evaluate::{skipped_rules, stage_of};
pub use kind::RuleKind;
pub use model::{RULE, Rule, RuleKey};
pub(crate) use questions::{InFlight, RuleAnswers, Wanted, known};
pub use questions::{RuleAsk, RuleReply};
pub use task::{Poll, Polled, Polls};
pub use webhook::{Answers, Begun, Heard, Question};
