//! Inside a crate, what all of its controllers stand on knows none of them, and they do not know what starts them.

use super::Finding;
use crate::repository::Source;

/// What the sources below a folder must not use.
struct Floor {
    folder: &'static str,
    /// Sources below it that may.
    may: &'static [&'static str],
    used: &'static str,
    why: &'static str,
}

const FLOORS: [Floor; 2] = [
    Floor {
        folder: "crates/longshore-dags/src/",
        may: &[
            "crates/longshore-dags/src/service/",
            "crates/longshore-dags/src/lib.rs",
        ],
        used: "service::",
        why: "only the service knows all parts; what they share is in `base`",
    },
    Floor {
        folder: "crates/longshore-dags/src/base/",
        may: &[],
        used: "controller::",
        why: "`base` is below the controllers",
    },
];

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_production()) {
        for floor in FLOORS.iter().filter(|floor| floor.holds(&source.path)) {
            for (line, text) in source.production_lines() {
                let is_code = !text.trim_start().starts_with("//");
                if is_code && text.contains(floor.used) {
                    findings.push(Finding::new(source, line, floor.why));
                }
            }
        }
    }
    findings
}

impl Floor {
    fn holds(&self, path: &str) -> bool {
        path.starts_with(self.folder) && !self.may.iter().any(|may| path.starts_with(may))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{places, sources};

    #[test]
    fn uses_that_go_up_are_found() {
        let uses_service = "//! [`service`](crate::service::x)\nuse crate::service::read;\n";
        let uses_controller = "use crate::launch::controller::Launches;\n";
        let found = check(&sources(&[
            ("crates/longshore-dags/src/launch/watch.rs", uses_service),
            ("crates/longshore-dags/src/service/mod.rs", uses_service),
            ("crates/longshore-dags/src/service/mod.rs", uses_controller),
            ("crates/longshore-dags/src/base/shared.rs", uses_controller),
            ("crates/longshore-tasks/src/data.rs", uses_service),
        ]));
        let expected = [
            "crates/longshore-dags/src/launch/watch.rs:2",
            "crates/longshore-dags/src/base/shared.rs:1",
        ];
        assert_eq!(places(&found), expected);
    }
}
