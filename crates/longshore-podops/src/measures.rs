//! What the controllers count beside what the kit does: pods by where they stand, and by what holds them.
//!
//! Nothing is listed for it: each change of a pod moves its counts.

use std::collections::BTreeSet;

use longshore_kit::{Counted, Metrics, Tally};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
};

use crate::{
    eviction::Held,
    lifecycle::RuleSays,
    model::{Pod, PodKey},
    standing::{BlockerKind, Phase, Standing},
};

/// What is counted. Clones share it; by default it is not exported.
#[derive(Clone, Debug, Default)]
pub struct PodMeasures {
    pods: Tally<PodKey, PodCount>,
    held_deletes: Gauge,
}

#[derive(Clone, Debug, Default)]
struct PodGauges {
    pods: Family<PhaseLabels, Gauge>,
    held: Family<BlockerLabels, Gauge>,
}

/// A delete that is held, counted for as long as this lives.
#[derive(Debug)]
pub(crate) struct HeldDelete(Gauge);

impl Drop for HeldDelete {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BlockerLabels {
    blocker: &'static str,
}

/// As what a pod is counted.
#[derive(Debug, PartialEq)]
struct PodCount {
    phase: Phase,
    held_by: BTreeSet<BlockerKind>,
}

impl Counted for PodCount {
    type Gauges = PodGauges;

    fn gauges(&self, of: &PodGauges) -> Vec<Gauge> {
        let held = self.held_by.iter().map(|kind| {
            let blocker = kind.as_str();
            of.held.get_or_create(&BlockerLabels { blocker }).clone()
        });
        held.chain([in_phase(of, self.phase)]).collect()
    }
}

fn in_phase(gauges: &PodGauges, phase: Phase) -> Gauge {
    let phase = phase.as_str();
    gauges.pods.get_or_create(&PhaseLabels { phase }).clone()
}

impl PodMeasures {
    /// Counts here. Once per process.
    pub fn new(metrics: &Metrics) -> Self {
        let measures = Self::default();
        let gauges = measures.pods.gauges();
        metrics.register(|registrar| {
            registrar.register(
                "longshore_podops_pods",
                "Pods that take part in PodOpsLifecycle, by phase",
                &["phase"],
                gauges.pods.clone(),
            );
            registrar.register(
                "longshore_podops_held_pods",
                "Pods that do not go on before something lets them go, by what kind of thing that is",
                &["blocker"],
                gauges.held.clone(),
            );
            registrar.register(
                "longshore_podops_held_deletes",
                "Deletes that are held until their pods may go",
                &[],
                measures.held_deletes.clone(),
            );
        });
        for phase in Phase::ALL {
            in_phase(gauges, phase).set(0);
        }
        measures
    }

    /// A delete is held.
    pub(crate) fn held_delete(&self) -> HeldDelete {
        self.held_deletes.inc();
        HeldDelete(self.held_deletes.clone())
    }

    /// Counts a pod about which these rules are, and whose eviction these budgets hold; `None`: it is gone.
    pub(crate) fn count(&self, key: &PodKey, pod: Option<(&Pod, &[RuleSays], &[Held])>) {
        let counted = pod.map(|(pod, rules, held)| {
            let standing = Standing::of(pod, rules).held_by(held);
            PodCount {
                phase: standing.phase,
                held_by: standing.kinds(),
            }
        });
        self.pods.count(key, counted);
    }
}

/// Counts pods for as long as it lives.
#[derive(Debug)]
pub(crate) struct Counting(pub(crate) PodMeasures);

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.pods.clear();
    }
}

#[cfg(test)]
mod tests {
    use longshore_api::podops::{LABEL_CONTROL, LABEL_SERVICE_AVAILABLE};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_counted_where_it_stands_and_nowhere_once_it_is_gone() {
        let metrics = Metrics::new();
        let measures = PodMeasures::new(&metrics);
        let key = PodKey {
            namespace: "default".to_owned(),
            name: "web-0".to_owned(),
        };
        let pod = |label: &str| {
            let pod = json!({"metadata": {"name": "web-0", "labels": {LABEL_CONTROL: "true", label: "1"}}});
            Pod::of(&pod).unwrap()
        };
        let has = |line: &str| metrics.text().lines().any(|found| found == line);
        measures.count(&key, Some((&pod("new"), &[], &[])));
        assert!(has(r#"longshore_podops_pods{phase="Completing"} 1"#));
        assert!(has(r#"longshore_podops_held_pods{blocker="Node"} 1"#));
        measures.count(&key, Some((&pod(LABEL_SERVICE_AVAILABLE), &[], &[])));
        assert!(has(r#"longshore_podops_pods{phase="Completing"} 0"#));
        assert!(has(r#"longshore_podops_held_pods{blocker="Node"} 0"#));
        assert!(has(r#"longshore_podops_pods{phase="ServiceAvailable"} 1"#));
        drop(Counting(measures.clone()));
        assert!(has(r#"longshore_podops_pods{phase="ServiceAvailable"} 0"#));
        measures.count(&key, Some((&pod(LABEL_SERVICE_AVAILABLE), &[], &[])));
        measures.count(&key, None);
        assert!(has(r#"longshore_podops_pods{phase="ServiceAvailable"} 0"#));
    }
}
