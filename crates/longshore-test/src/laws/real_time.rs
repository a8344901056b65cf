//! A scenario in real time, on a real API server: the same end as in the simulated world.

use std::{fmt::Write, time::Duration};

use super::system::{Scenario, play_until};
use crate::faults::Faults;

/// Longer than any scenario takes.
const PATIENCE: Duration = Duration::from_secs(180);
/// Between two looks at a world.
const LOOK: Duration = Duration::from_secs(1);
/// How long an end has to last.
const REST: Duration = Duration::from_secs(3);

/// Plays a scenario in this world until it has ended as expected, and sees that it stays so and has broken no law of
/// its own.
///
/// # Errors
/// In words, with what happened, where it did not.
pub async fn ends_as<S>(
    scenario: &S,
    mut world: S::World,
    faults: &Faults,
    expected: &str,
) -> Result<(), String>
where
    S: Scenario,
    S::World: Clone,
{
    let seen = world.clone();
    let end = async {
        let has_ended = async {
            while scenario.digest(&seen).await != expected {
                tokio::time::sleep(LOOK).await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, has_ended).await;
        tokio::time::sleep(REST).await;
        scenario.digest(&seen).await
    };
    let (_running, found) = play_until(scenario, &mut world, faults, end).await;
    if found != expected {
        return Err(format!(
            "expected\n{expected}\nfound\n{found}\nwhat happened:\n{}",
            faults.log()
        ));
    }
    let mut broken = String::new();
    for violation in scenario.broken(&world).await {
        let _ = writeln!(broken, "{violation}");
    }
    broken.is_empty().then_some(()).ok_or(broken)
}
