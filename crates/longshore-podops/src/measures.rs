//! What the controllers count beside what the kit does: pods by where they stand, and by what holds them.
//!
//! Nothing is listed for it: each change of a pod moves its counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use longshore_kit::Metrics;
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

/// What is counted. Clones share it; by default nobody reads it.
#[derive(Clone, Debug, Default)]
pub struct PodMeasures {
    pods: Family<PhaseLabels, Gauge>,
    held: Family<BlockerLabels, Gauge>,
    counted: Arc<Mutex<BTreeMap<PodKey, Counted>>>,
    held_deletes: Gauge,
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
#[derive(Debug)]
struct Counted {
    phase: Phase,
    held_by: BTreeSet<BlockerKind>,
}

impl PodMeasures {
    /// Counts here. Once per process.
    pub fn new(metrics: &Metrics) -> Self {
        let measures = Self::default();
        metrics.register(|registrar| {
            registrar.register(
                "longshore_podops_pods",
                "Pods that take part in PodOpsLifecycle, by phase",
                &["phase"],
                measures.pods.clone(),
            );
            registrar.register(
                "longshore_podops_held_pods",
                "Pods that do not go on before something lets them go, by what kind of thing that is",
                &["blocker"],
                measures.held.clone(),
            );
            registrar.register(
                "longshore_podops_held_deletes",
                "Deletes that are held until their pods may go",
                &[],
                measures.held_deletes.clone(),
            );
        });
        for phase in Phase::ALL {
            measures.in_phase(phase).set(0);
        }
        measures
    }

    /// A delete is held.
    pub(crate) fn held_delete(&self) -> HeldDelete {
        self.held_deletes.inc();
        HeldDelete(self.held_deletes.clone())
    }

    /// A pod is as this, these rules are about it, and these budgets hold its eviction.
    pub(crate) fn see(&self, key: &PodKey, pod: &Pod, rules: &[RuleSays], held: &[Held]) {
        let standing = Standing::of(pod, rules).held_by(held);
        let counted = Counted {
            phase: standing.phase,
            held_by: standing.kinds(),
        };
        self.count(&counted, 1);
        let before = self.counted().insert(key.clone(), counted);
        if let Some(before) = before {
            self.count(&before, -1);
        }
    }

    /// A pod is gone.
    pub(crate) fn forget(&self, key: &PodKey) {
        let before = self.counted().remove(key);
        if let Some(before) = before {
            self.count(&before, -1);
        }
    }

    /// Nobody looks at pods any more.
    pub(crate) fn forget_all(&self) {
        let all = std::mem::take(&mut *self.counted());
        for counted in all.values() {
            self.count(counted, -1);
        }
    }

    fn count(&self, counted: &Counted, by: i64) {
        self.in_phase(counted.phase).inc_by(by);
        for kind in &counted.held_by {
            let blocker = kind.as_str();
            let held = self.held.get_or_create(&BlockerLabels { blocker });
            held.inc_by(by);
        }
    }

    fn in_phase(&self, phase: Phase) -> Gauge {
        let phase = phase.as_str();
        self.pods.get_or_create(&PhaseLabels { phase }).clone()
    }

    fn counted(&self) -> MutexGuard<'_, BTreeMap<PodKey, Counted>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts pods for as long as it lives.
#[derive(Debug)]
pub(crate) struct Counting(pub(crate) PodMeasures);

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.forget_all();
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
        measures.see(&key, &pod("new"), &[], &[]);
        assert!(has(r#"longshore_podops_pods{phase="Completing"} 1"#));
        assert!(has(r#"longshore_podops_held_pods{blocker="Node"} 1"#));
        measures.see(&key, &pod(LABEL_SERVICE_AVAILABLE), &[], &[]);
        assert!(has(r#"longshore_podops_pods{phase="Completing"} 0"#));
        assert!(has(r#"longshore_podops_held_pods{blocker="Node"} 0"#));
        assert!(has(r#"longshore_podops_pods{phase="ServiceAvailable"} 1"#));
        drop(Counting(measures.clone()));
        assert!(has(r#"longshore_podops_pods{phase="ServiceAvailable"} 0"#));
        measures.see(&key, &pod(LABEL_SERVICE_AVAILABLE), &[], &[]);
        measures.forget(&key);
        assert!(has(r#"longshore_podops_pods{phase="ServiceAvailable"} 0"#));
    }
}
