use longshore_test::{
    FaultPlan,
    laws::{breaks, check_decider, check_scenario, replay},
    planted::{Bug, OrderScenario, observations},
};

#[test]
fn the_right_controller_keeps_every_law() {
    let violations = check_decider(&Bug::None, &observations(), 500);
    assert!(violations.is_empty(), "{}", violations[0]);
    let report = check_scenario(&OrderScenario(Bug::None));
    assert!(report.n_worlds > 100, "only {} worlds", report.n_worlds);
    report.assert_kept();
}

#[test]
fn each_planted_bug_breaks_the_law_that_is_named_for_it() {
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        let law = bug.broken_law().unwrap();
        let pure = check_decider(&bug, &observations(), 500);
        let is_found =
            pure.iter().any(|violation| violation.law == law) || breaks(&OrderScenario(bug), law);
        if !is_found {
            missed.push((bug, law));
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn seeded_faults_lead_to_the_same_end() {
    let scenario = OrderScenario(Bug::None);
    let expected = replay(&scenario, FaultPlan::none()).digest;
    for seed in 0..20 {
        let run = replay(&scenario, FaultPlan::seeded(seed));
        assert_eq!(run.digest, expected, "seed {seed}:\n{}", run.log);
    }
}
