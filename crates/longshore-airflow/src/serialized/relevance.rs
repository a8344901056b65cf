//! On which instances of a task before it an instance of a mapped task depends (spec sections 6.4 and 8).
//!
//! Source: upstream's `TriggerRuleDep` and `_get_relevant_map_indexes`.

use std::{collections::BTreeSet, ops::Range, ptr};

use super::{
    dag::Dag,
    group::TaskGroup,
    operator::Operator,
    words::TriggerRule,
    xcom::{ExpandInput, PlainRef},
};

/// An instance of a task, as far as its dependencies go.
#[derive(Clone, Copy, Debug)]
pub struct Instance<'a> {
    /// The task.
    pub task: &'a Operator,
    /// Its place among the instances of the task; −1: it is not expanded, or the task has one.
    pub map_index: i64,
    /// Its rule.
    pub trigger_rule: TriggerRule,
}

/// Instances of one task that another one depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relevant {
    /// All of them.
    All,
    /// Those at these places, and the one that is not expanded.
    Among(Range<i64>),
}

impl Relevant {
    /// Whether the instance at that place is one of them.
    #[must_use]
    pub fn contains(&self, map_index: i64) -> bool {
        match self {
            Self::All => true,
            Self::Among(places) => map_index < 0 || places.contains(&map_index),
        }
    }
}

/// Rules that one task alone can settle.
const FAST: [TriggerRule; 4] = [
    TriggerRule::OneSuccess,
    TriggerRule::OneFailed,
    TriggerRule::OneDone,
    TriggerRule::NoneFailedMinOneSuccess,
];

impl Dag {
    /// The instances of `upstream` that an instance depends on, `of_task` as for [`XcomRef::length`].
    ///
    /// A task in a mapped group depends on those instances of another task that share their expansion in the innermost
    /// mapped group that both are in, and on all instances of a task outside. An instance that is not expanded depends
    /// on no expanded one; but with a rule that one task alone can settle it waits for all of them, other than those of
    /// what it is mapped over, lest it be skipped before it is expanded.
    ///
    /// [`XcomRef::length`]: super::XcomRef::length
    pub fn relevant(
        &self,
        instance: Instance<'_>,
        upstream: &Operator,
        of_task: &dyn Fn(&str) -> Option<u64>,
    ) -> Relevant {
        let Instance {
            task, map_index, ..
        } = instance;
        let groups = self.groups_of(&task.task_id);
        let is_in_mapped_group = groups.iter().any(|group| group.expansion().is_some());
        let waits_for_all = map_index < 0
            && FAST.contains(&instance.trigger_rule)
            && !self.all_sources(task).contains(upstream.task_id.as_str());
        if !is_in_mapped_group || waits_for_all {
            return Relevant::All;
        }
        let n_instances = self.n_instances(task, of_task).filter(|count| *count > 0);
        let others = self.groups_of(&upstream.task_id);
        let Some((n_instances, depth)) = n_instances.zip(common_depth(&groups, &others)) else {
            return Relevant::All;
        };
        let shared = groups.iter().take(depth).copied();
        let Some(n_shared) = count(shared.filter_map(TaskGroup::expansion), of_task) else {
            return Relevant::All;
        };
        let inside = others.iter().skip(depth);
        let is_mapped_further = upstream.expansion().is_some()
            || inside.copied().any(|group| group.expansion().is_some());
        places(map_index, n_instances, n_shared, is_mapped_further).unwrap_or(Relevant::All)
    }

    /// The tasks whose results decide how many instances a task has: those of its own mapping, else of the innermost
    /// mapped group that it is in. One that failed or was skipped before it was expanded fails or skips the task.
    #[must_use]
    pub fn mapping_sources<'a>(&'a self, task: &'a Operator) -> BTreeSet<&'a str> {
        let mut groups = self.groups_of(&task.task_id).into_iter().rev();
        let of_group = || groups.find_map(TaskGroup::expansion);
        ids(task.expansion().or_else(of_group))
    }

    /// With those of all mapped groups that the task is in.
    fn all_sources<'a>(&'a self, task: &'a Operator) -> BTreeSet<&'a str> {
        ids(self.expansions(task))
    }
}

fn ids<'a>(inputs: impl IntoIterator<Item = &'a ExpandInput>) -> BTreeSet<&'a str> {
    let sources = inputs.into_iter().flat_map(ExpandInput::sources);
    sources
        .map(|PlainRef { task_id, .. }| task_id.as_str())
        .collect()
}

/// How many groups from the root lead to the innermost mapped one that both are in.
fn common_depth(groups: &[&TaskGroup], others: &[&TaskGroup]) -> Option<usize> {
    let common = groups.iter().zip(others);
    let common = common.take_while(|(group, other)| ptr::eq(**group, **other));
    let mapped = common
        .enumerate()
        .filter(|(_, (group, _))| group.expansion().is_some());
    mapped.last().map(|(index, _)| index + 1)
}

fn count<'a>(
    mut inputs: impl Iterator<Item = &'a ExpandInput>,
    of_task: &dyn Fn(&str) -> Option<u64>,
) -> Option<u64> {
    inputs.try_fold(1_u64, |product, input| {
        Some(product.saturating_mul(input.length(of_task)?))
    })
}

/// The places that share an expansion. `None` where the numbers do not fit: no run has so many instances.
fn places(
    map_index: i64,
    n_instances: u64,
    n_shared: u64,
    is_mapped_further: bool,
) -> Option<Relevant> {
    let (n_instances, n_shared) = (
        i64::try_from(n_instances).ok()?,
        i64::try_from(n_shared).ok()?,
    );
    // Rounded down, also below 0, as Python does.
    let shared = map_index
        .checked_mul(n_shared)?
        .checked_div_euclid(n_instances)?;
    let each = if is_mapped_further {
        n_instances.checked_div(n_shared)?
    } else {
        1
    };
    let first = shared.checked_mul(each)?;
    Some(Relevant::Among(first..first.checked_add(each)?))
}
