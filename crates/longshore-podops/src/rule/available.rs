//! availablePolicy: how many of the selected pods may be out of service.

use longshore_api::podops::AvailablePolicy;
use longshore_k8s::{IntOrPercent, InvalidIntOrPercent, Rounding};

use super::evaluate::{Outcome, Subject};

/// What is left to give away.
struct Budget {
    available: i64,
    min_available: i64,
    max_unavailable: i64,
    allowed: i64,
    n: usize,
}

/// What the policy says of each subject, in their order. `targets` are all selected pods, `n_missing` says how many more
/// there should be, and `has_passed` which have passed this rule already.
///
/// A pod that has passed counts as gone before it is, so that no crash and no late watch gives its place away twice; and
/// as gone until the next one is there, because its workload may take some time to make it.
pub(super) fn check(
    rule: &str,
    policy: &AvailablePolicy,
    targets: &[Subject],
    n_missing: usize,
    subjects: &[&Subject],
    has_passed: impl Fn(&Subject) -> bool,
) -> Vec<Outcome> {
    let mut budget = match budget(policy, targets, n_missing, &has_passed) {
        Ok(budget) => budget,
        Err(why) => return subjects.iter().map(|_| Err(why.to_string())).collect(),
    };
    let mut checks = Vec::new();
    for subject in subjects {
        let is_counted = has_passed(subject) || !subject.is_available;
        checks.push(if is_counted {
            Ok(())
        } else {
            budget.take(rule)
        });
    }
    checks
}

fn budget(
    policy: &AvailablePolicy,
    targets: &[Subject],
    n_missing: usize,
    has_passed: impl Fn(&Subject) -> bool,
) -> Result<Budget, InvalidIntOrPercent> {
    let n = targets.len() + n_missing;
    let all = i64::try_from(n).unwrap_or(i64::MAX);
    let scaled = |value, rounding| Ok(IntOrPercent::read(value)?.scaled(all, rounding));
    let max_unavailable = policy.max_unavailable_value.as_ref();
    let max_unavailable = max_unavailable.map(|value| scaled(value, Rounding::Up));
    let max_unavailable = max_unavailable.unwrap_or(Ok(all))?;
    let min_available = policy.min_available_value.as_ref();
    let min_available = min_available.map(|value| scaled(value, Rounding::Down));
    let mut budget = Budget {
        available: 0,
        min_available: min_available.unwrap_or(Ok(0))?,
        max_unavailable,
        allowed: max_unavailable.max(0) - i64::try_from(n_missing).unwrap_or(i64::MAX),
        n,
    };
    for target in targets {
        if has_passed(target) || !target.is_available {
            budget.allowed -= 1;
        } else {
            budget.available += 1;
        }
    }
    Ok(budget)
}

impl Budget {
    fn take(&mut self, rule: &str) -> Outcome {
        let Self { n, .. } = self;
        if self.allowed <= 0 {
            let unavailable = self.max_unavailable - self.allowed;
            let max = self.max_unavailable;
            return Err(format!(
                "[{rule}] blocked by max unavailable policy: [max unavailable]={max}/{n}, \
                 [current unavailable]={unavailable}/{n}"
            ));
        }
        if self.available - self.min_available < 1 {
            let (min, available) = (self.min_available, self.available);
            return Err(format!(
                "blocked by min available policy: [min available]={min}/{n}, \
                 [current keep available]={available}/{n}"
            ));
        }
        self.available -= 1;
        self.allowed -= 1;
        Ok(())
    }
}
