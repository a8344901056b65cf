//! What the outcomes of a container's probes mean. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::wish::{Kind, Probes};

/// The effect of one more outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The outcome has changed nothing.
    AsBefore,
    /// The container has come up, is ready, or is not ready any more.
    Changed,
    /// The container has to be ended.
    Doomed(Kind),
}

/// The health of one run of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    /// Its startup probe has succeeded, or it has none.
    pub(crate) is_started: bool,
    /// Its readiness probe succeeds, or it has none.
    pub(crate) is_ready: bool,
    /// When one of these last changed.
    pub(crate) changed_at: Option<Timestamp>,
    /// The probe that has given the container up, and since when.
    pub(crate) doom: Option<(Kind, Timestamp)>,
    rows: BTreeMap<Kind, Row>,
}

/// Equal outcomes in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    is_success: bool,
    n: u32,
}

impl Health {
    /// The health of a container that has just begun: without a startup or readiness probe it
    /// counts as started or ready.
    pub(crate) fn new(probes: &Probes) -> Self {
        Self {
            is_started: probes.startup.is_none(),
            is_ready: probes.readiness.is_none(),
            changed_at: None,
            doom: None,
            rows: BTreeMap::new(),
        }
    }

    /// A container whose health an earlier node has published.
    pub(crate) fn published(probes: &Probes, is_started: bool, is_ready: bool) -> Self {
        let new = Self::new(probes);
        Self {
            is_started: new.is_started || is_started,
            is_ready: new.is_ready || is_ready,
            ..new
        }
    }

    /// Whether a probe of this kind is due: until the container has started only the startup probe, then the others.
    pub(crate) fn asks(&self, kind: Kind) -> bool {
        self.doom.is_none() && (kind == Kind::Startup) != self.is_started
    }

    /// Takes one outcome.
    pub(crate) fn learn(
        &mut self,
        probes: &Probes,
        kind: Kind,
        is_success: bool,
        now: Timestamp,
    ) -> Verdict {
        let Some(wish) = probes.get(kind).filter(|_| self.asks(kind)) else {
            return Verdict::AsBefore;
        };
        let row = self.rows.entry(kind).or_insert(Row { is_success, n: 0 });
        if row.is_success != is_success {
            *row = Row { is_success, n: 0 };
        }
        row.n = row.n.saturating_add(1);
        let needed = if is_success {
            wish.n_successes
        } else {
            wish.n_failures
        };
        if row.n < needed {
            return Verdict::AsBefore;
        }
        match (kind, is_success) {
            (Kind::Startup | Kind::Liveness, false) => {
                self.doom = Some((kind, now));
                Verdict::Doomed(kind)
            }
            (Kind::Liveness, true) => Verdict::AsBefore,
            (Kind::Startup, true) => {
                self.is_started = true;
                self.change(now)
            }
            (Kind::Readiness, _) if self.is_ready == is_success => Verdict::AsBefore,
            (Kind::Readiness, _) => {
                self.is_ready = is_success;
                self.change(now)
            }
        }
    }

    /// Whether failures of this kind have only just begun: the first is worth an Event.
    pub(crate) fn is_first_failure(&self, kind: Kind) -> bool {
        self.rows
            .get(&kind)
            .is_some_and(|row| !row.is_success && row.n == 1)
    }

    fn change(&mut self, now: Timestamp) -> Verdict {
        self.changed_at = Some(now);
        Verdict::Changed
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Container;
    use serde_json::{from_value, json};

    use super::*;

    fn probes(spec: serde_json::Value) -> Probes {
        let mut container = spec;
        container["name"] = json!("c");
        Probes::of(&from_value::<Container>(container).unwrap())
    }

    fn play(probes: &Probes, outcomes: &[(Kind, bool)]) -> (Health, Vec<Verdict>) {
        let mut health = Health::new(probes);
        let verdicts = outcomes
            .iter()
            .map(|(kind, is_success)| {
                health.learn(probes, *kind, *is_success, Timestamp::UNIX_EPOCH)
            })
            .collect();
        (health, verdicts)
    }

    #[test]
    fn readiness_follows_its_thresholds() {
        let tcp = json!({"tcpSocket": {"port": 1}, "successThreshold": 2, "failureThreshold": 2});
        let probes = probes(json!({"readinessProbe": tcp}));
        let [yes, no] = [true, false].map(|it| (Kind::Readiness, it));
        for (what, outcomes, is_ready) in [
            ("at first", vec![], false),
            ("one success", vec![yes], false),
            ("two", vec![yes, yes], true),
            ("interrupted", vec![yes, no, yes], false),
            ("one failure", vec![yes, yes, no], true),
            ("two failures", vec![yes, yes, no, no], false),
        ] {
            assert_eq!(play(&probes, &outcomes).0.is_ready, is_ready, "{what}");
        }
    }

    #[test]
    fn nothing_else_is_asked_before_the_program_is_up() {
        let tcp = json!({"tcpSocket": {"port": 1}, "failureThreshold": 2});
        let all = json!({"startupProbe": tcp, "livenessProbe": tcp, "readinessProbe": tcp});
        let probes = probes(all);
        let (health, _) = play(&probes, &[(Kind::Liveness, false), (Kind::Liveness, false)]);
        assert_eq!((health.doom, health.is_started), (None, false));
        let (health, _) = play(&probes, &[(Kind::Startup, false), (Kind::Startup, true)]);
        assert!(health.is_started && !health.is_ready && health.asks(Kind::Readiness));
        assert!(!health.asks(Kind::Startup));
        let (health, verdicts) = play(&probes, &[(Kind::Startup, false), (Kind::Startup, false)]);
        assert_eq!(verdicts[1], Verdict::Doomed(Kind::Startup));
        assert!(!health.asks(Kind::Startup), "it is over");
    }

    #[test]
    fn a_container_without_probes_is_healthy() {
        let health = Health::new(&Probes::default());
        assert!(health.is_started && health.is_ready);
    }
}
