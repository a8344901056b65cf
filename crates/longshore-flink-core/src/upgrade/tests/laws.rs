//! What holds for all facts there are.

use super::*;

pub(super) const SNAPSHOTS: [LastSnapshot; 4] = [
    LastSnapshot::Path,
    LastSnapshot::ProvenEmpty,
    LastSnapshot::Unknown,
    LastSnapshot::LastState,
];
const HA: [HaMetadata; 3] = [HaMetadata::Off, HaMetadata::Absent, HaMetadata::Present];
const MODES: [UpgradeMode; 3] = [
    UpgradeMode::Stateless,
    UpgradeMode::Savepoint,
    UpgradeMode::LastState,
];
const SWITCHES: [Switch; 2] = [Switch::On, Switch::Off];
const AGES: [CheckpointAge; 3] = [
    CheckpointAge::Young,
    CheckpointAge::Pending,
    CheckpointAge::Old,
];

fn runners() -> Vec<Runner> {
    let mut runners = vec![Runner::SessionCluster];
    for job_manager in JobManagerStatus::ALL {
        for pod in [PodStart::Started, PodStart::Never] {
            for reconciled in MODES {
                runners.push(Runner::Application {
                    job_manager,
                    pod,
                    reconciled,
                });
            }
        }
    }
    runners
}

fn options() -> Vec<Options> {
    let mut all = Vec::new();
    for fallback in SWITCHES {
        for job_cancel in SWITCHES {
            for savepoint_directory in SWITCHES {
                all.push(Options {
                    fallback,
                    job_cancel,
                    savepoint_directory,
                });
            }
        }
    }
    all
}

/// Calls `check` with all facts there are, and returns how many.
fn for_all(mut check: impl FnMut(&Facts, Decision)) -> usize {
    let mut n_facts = 0;
    let (runners, options) = (runners(), options());
    for requested in MODES {
        for &runner in &runners {
            for job in JobState::ALL.into_iter().map(Some).chain([None]) {
                for version in [VersionChange::Same, VersionChange::Changed] {
                    for (ha_observed, ha_wanted) in HA.iter().flat_map(|&a| HA.map(|b| (a, b))) {
                        for (last_snapshot, checkpoint_age) in
                            SNAPSHOTS.iter().flat_map(|&a| AGES.map(|b| (a, b)))
                        {
                            for &options in &options {
                                let facts = Facts {
                                    requested,
                                    runner,
                                    job,
                                    version,
                                    ha_observed,
                                    ha_wanted,
                                    last_snapshot,
                                    checkpoint_age,
                                    options,
                                };
                                check(&facts, decide(&facts));
                                n_facts += 1;
                            }
                        }
                    }
                }
            }
        }
    }
    n_facts
}

#[test]
fn no_decision_loses_state() {
    let mut ways = BTreeMap::new();
    let n_facts = for_all(|facts, decision| {
        let is_stateless = facts.requested == UpgradeMode::Stateless;
        let is_over = facts.job.is_some_and(JobState::is_globally_terminal);
        let Decision::Upgrade(way) = decision else {
            assert!(!is_stateless, "{facts:?} has to wait for nothing");
            return;
        };
        // Only who asks for it starts without state, and always gets it.
        assert_eq!(
            way.restore() == UpgradeMode::Stateless,
            is_stateless,
            "{facts:?}"
        );
        let is_sound = match way {
            Way::Stateless => !is_over,
            Way::StatelessEnded => is_over,
            // What is restored is known, or known to be nothing.
            Way::Ended => {
                is_over
                    && matches!(
                        facts.last_snapshot,
                        LastSnapshot::Path | LastSnapshot::ProvenEmpty
                    )
            }
            Way::Savepoint => facts.job == Some(JobState::Running),
            Way::Cancel => is_cancellable(facts),
            Way::HaMetadata => {
                facts.ha_observed != HaMetadata::Off
                    && facts.ha_wanted == HaMetadata::Present
                    && facts.version == VersionChange::Same
                    && facts.runner != Runner::SessionCluster
            }
            // Nothing that ran since, and nothing beside it, is newer than what the status says.
            Way::Unstarted => match facts.runner {
                Runner::Application {
                    job_manager,
                    pod,
                    reconciled,
                } => {
                    pod == PodStart::Never
                        && job_manager != JobManagerStatus::Missing
                        && reconciled != UpgradeMode::LastState
                        && facts.ha_observed != HaMetadata::Present
                        && facts.last_snapshot != LastSnapshot::LastState
                }
                Runner::SessionCluster => false,
            },
        };
        assert!(is_sound, "{facts:?}: {way:?}");
        *ways.entry(way).or_insert(0) += 1;
    });
    // Each way is taken.
    assert_eq!(ways.len(), 7);
    assert_eq!(n_facts, 3 * 31 * 12 * 2 * 9 * 12 * 8);
}

#[test]
fn a_lost_job_manager_without_metadata_never_waits_silently() {
    for_all(|facts, decision| {
        let Runner::Application { job_manager, .. } = facts.runner else {
            return;
        };
        let is_lost = matches!(
            job_manager,
            JobManagerStatus::Missing | JobManagerStatus::Error
        );
        if is_lost && facts.ha_wanted != HaMetadata::Present {
            assert!(
                !matches!(decision, Decision::Wait(_)),
                "{facts:?}: {decision:?}"
            );
        }
    });
}

#[test]
fn a_way_stops_and_restores_as_the_table_says() {
    use Suspend as S;
    use UpgradeMode as U;
    for (way, suspend, restore) in [
        (Way::Stateless, S::Stateless, U::Stateless),
        (Way::StatelessEnded, S::Noop, U::Stateless),
        (Way::Ended, S::Noop, U::Savepoint),
        (Way::Savepoint, S::Savepoint, U::Savepoint),
        (Way::Cancel, S::Cancel, U::Savepoint),
        (Way::HaMetadata, S::LastState, U::LastState),
        (Way::Unstarted, S::LastState, U::Savepoint),
    ] {
        assert_eq!(
            (way.suspend(), way.restore()),
            (suspend, restore),
            "{way:?}"
        );
    }
}
