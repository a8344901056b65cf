use std::ops::Range;

use longshore_test::{
    FaultPlan,
    laws::{
        Law, breaks, check_decider, check_every_case, check_recoveries, check_seeds, check_silence,
        recovery_plan, replay,
    },
    planted::{
        Bug, ErrandBug, ErrandCrowd, ErrandScenario, OrderScenario, errand_ends,
        errand_observations, observations,
    },
};

/// Pairs of faults that are enough to find the planted bug that needs two.
const RECOVERIES: Range<u64> = 0..400;

#[test]
fn the_right_controller_keeps_every_law() {
    let violations = check_decider(&Bug::None, &observations(), 500);
    assert!(violations.is_empty(), "{}", violations[0]);
    let report = check_every_case(&OrderScenario(Bug::None));
    assert!(report.n_worlds > 60, "only {} worlds", report.n_worlds);
    report.assert_kept();
}

#[test]
fn each_planted_bug_breaks_the_law_that_is_named_for_it() {
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        let law = bug.broken_law().unwrap();
        let pure = check_decider(&bug, &observations(), 500);
        let is_found = pure.iter().any(|violation| violation.law == law)
            || breaks(&OrderScenario(bug), law)
            || check_recoveries(&OrderScenario(bug), RECOVERIES).breaks(law);
        if !is_found {
            missed.push((bug, law));
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// A record without a version is safe whatever else goes wrong, because no other client writes it.
#[test]
fn only_requests_that_land_late_show_a_write_without_a_version() {
    let report = check_every_case(&OrderScenario(Bug::WritesWithoutVersion));
    assert!(report.breaks(Law::StaleSafe));
    for violation in &report.violations {
        assert!(violation.case.contains("LandLate"), "{violation}");
    }
}

#[test]
fn a_second_fault_during_the_recovery_leads_to_the_same_end() {
    check_recoveries(&OrderScenario(Bug::None), 0..100).assert_kept();
    check_recoveries(&ErrandScenario(ErrandBug::None), 0..50).assert_kept();
}

#[test]
fn only_a_second_fault_shows_a_controller_that_gives_up_after_two_failures() {
    let scenario = OrderScenario(Bug::GivesUpAfterTwo);
    let report = check_recoveries(&scenario, RECOVERIES);
    assert!(report.breaks(Law::Recovers));
    for violation in &report.violations {
        assert!(violation.case.contains("\nseed "), "{violation}");
    }
    let seed = report.violations[0].case.rsplit("seed ").next().unwrap();
    let plan = recovery_plan(&scenario, seed.parse().unwrap()).unwrap();
    assert_eq!(plan.at.len(), 2, "{plan:?}");
    let (run, end) = (
        replay(&scenario, plan),
        replay(&scenario, FaultPlan::none()),
    );
    assert_ne!(run.digest, end.digest, "the seed repeats what it found");
}

#[test]
fn many_faults_at_once_lead_to_the_same_end() {
    check_seeds(&OrderScenario(Bug::None), 0..100).assert_kept();
    let report = check_seeds(&OrderScenario(Bug::OutcomeBeforeEffect), 0..20);
    assert!(report.breaks(Law::Restartable));
}

#[test]
fn a_seed_replays() {
    let run = || replay(&OrderScenario(Bug::None), FaultPlan::seeded(3));
    let (first, second) = (run(), run());
    assert_eq!(first.log, second.log);
    assert!(
        first.log.contains("LoseAnswer"),
        "no fault was drawn:\n{}",
        first.log
    );
}

#[test]
fn a_controller_that_asks_a_foreign_system_keeps_every_law() {
    let violations = check_decider(&ErrandBug::None, &errand_observations(), 200);
    assert!(violations.is_empty(), "{}", violations[0]);
    let undisturbed = replay(&ErrandScenario(ErrandBug::None), FaultPlan::none());
    assert_eq!(undisturbed.digest, errand_ends());
    let report = check_every_case(&ErrandScenario(ErrandBug::None));
    assert!(report.n_worlds > 40, "only {} worlds", report.n_worlds);
    report.assert_kept();
    check_seeds(&ErrandScenario(ErrandBug::None), 0..50).assert_kept();
}

#[test]
fn each_planted_bug_of_asking_breaks_the_law_that_is_named_for_it() {
    for (bug, law) in ErrandBug::ALL {
        let pure = check_decider(&bug, &errand_observations(), 200);
        let is_found = pure.iter().any(|violation| violation.law == law);
        assert!(
            is_found
                || breaks(&ErrandScenario(bug), law)
                || check_silence(&ErrandCrowd(bug)).breaks(law),
            "{bug:?}: {law:?}"
        );
    }
}

#[test]
fn no_silent_foreign_system_delays_another_key() {
    let report = check_silence(&ErrandCrowd(ErrandBug::None));
    assert_eq!(report.n_worlds, 3);
    report.assert_kept();
}

/// Each of them has the right end, whatever else goes wrong: only a silent foreign system shows what it costs others.
#[test]
fn only_silence_shows_rounds_that_wait_for_answers() {
    for bug in [ErrandBug::AsksInRounds, ErrandBug::OneLimitForAll] {
        check_every_case(&ErrandScenario(bug)).assert_kept();
        let report = check_silence(&ErrandCrowd(bug));
        assert!(report.breaks(Law::DelaysNobodyElse), "{bug:?}");
        let cases = report.violations.iter().map(|violation| &violation.case);
        let cases: Vec<_> = cases.collect();
        assert!(
            cases.iter().all(|case| case.ends_with("crowded is silent")),
            "{cases:?}"
        );
    }
}
