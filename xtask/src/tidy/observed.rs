//! Rounds share caches only: what `observe` reads it does not change, and what is remembered of each key is the kit's.

use super::Finding;
use crate::repository::Source;

/// The subsystems that hold to it.
const HELD: [&str; 3] = ["longshore-podops", "longshore-dags", "longshore-tasks"];
/// Sources that may have a map under a lock: an index of caches, clients, and values that have been read.
const CACHES: [&str; 4] = [
    "crates/longshore-dags/src/pods/worker/dags.rs",
    "crates/longshore-podops/src/selections.rs",
    "crates/longshore-podops/src/ask_webhooks.rs",
    "crates/longshore-tasks/src/secret_cache.rs",
];
/// A map of keys that a lock guards.
const GUARDED: [&str; 4] = [
    "Mutex<BTreeMap<",
    "Mutex<HashMap<",
    "RwLock<BTreeMap<",
    "RwLock<HashMap<",
];
/// Calls that change what other rounds see.
const CHANGES: [&str; 4] = [".lock()", ".write()", ".send_replace(", ".note("];

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let held = |source: &&Source| HELD.contains(&source.crate_name().unwrap_or_default());
    for source in sources.iter().filter(|it| it.is_production()).filter(held) {
        let is_cache = CACHES.iter().any(|it| source.path.starts_with(it));
        let mut is_observing = false;
        for (line, text) in source.production_lines() {
            if text.trim_start().starts_with("//") {
                continue;
            }
            is_observing = match text {
                "    async fn observe(" => true,
                "    }" => false,
                _ => is_observing,
            };
            let is_in_observe = is_observing || is_named(source, "observe");
            let change = CHANGES.iter().find(|it| text.contains(*it));
            if let Some(change) = change.filter(|_| is_in_observe) {
                let what = format!("`{change}` in `observe`, which only reads");
                findings.push(Finding::new(source, line, what));
            }
            if is_in_observe && text.contains("&mut self") {
                let what = "`&mut` of what rounds share in `observe`";
                findings.push(Finding::new(source, line, what));
            }
            if !is_cache && GUARDED.iter().any(|it| text.contains(it)) {
                let what =
                    "a map under a lock: the kit's `Memory`, `Tally` or `Referrers` keep keys";
                findings.push(Finding::new(source, line, what));
            }
        }
    }
    findings
}

fn is_named(source: &Source, name: &str) -> bool {
    let mut parts = source.path.split('/');
    parts.any(|part| part.strip_suffix(".rs").unwrap_or(part) == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{places, sources};

    #[test]
    fn changes_in_observe_and_maps_under_locks_are_found() {
        let guarded = "struct A(Mutex<BTreeMap<Key, u32>>);\n// Mutex<BTreeMap<\n";
        let observe = "    async fn observe(\n        self.known.lock();\n    }\n    fn b() {\n        \
                       self.known.lock();\n    }\n";
        let changes = "fn load(&mut self) {\n    let a = &mut b;\n    notes.note(key);\n}\n";
        let found = check(&sources(&[
            ("crates/longshore-podops/src/measures.rs", guarded),
            ("crates/longshore-podops/src/selections.rs", guarded),
            ("crates/longshore-podops/src/pods.rs", observe),
            ("crates/longshore-podops/src/rule/observe.rs", changes),
            ("crates/longshore-kit/src/memory.rs", guarded),
        ]));
        let expected = [
            "crates/longshore-podops/src/measures.rs:1",
            "crates/longshore-podops/src/pods.rs:2",
            "crates/longshore-podops/src/rule/observe.rs:1",
            "crates/longshore-podops/src/rule/observe.rs:3",
        ];
        assert_eq!(places(&found), expected);
    }
}
