//! Clients of HTTP are made in one place, where addresses, sizes and times are limited.

use super::Finding;
use crate::repository::Source;

/// The crates that may make HTTP clients: the one for outgoing requests; the client of API servers, whose address is a
/// kubeconfig's; that of our own service, whose address the user gives; the embedded API server, a library that knows
/// nothing of ours; and crates for development only.
const MAKERS: [&str; 6] = [
    "longshore-outbound",
    "longshore-console",
    "longshore-client",
    "longshore-cluster",
    "longshore-bench",
    "longshore-test",
];
/// How clients are made.
const MADE: [&str; 5] = [
    "reqwest::get(",
    "reqwest::Client::new(",
    "reqwest::Client::builder(",
    "ClientBuilder::new(",
    "legacy::Client::builder(",
];
/// The same in a file that imports the client of reqwest.
const IMPORTED: [&str; 2] = [" Client::builder()", " Client::new()"];

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_production()) {
        let name = source.crate_name().unwrap_or_default();
        if !name.starts_with("longshore") || MAKERS.contains(&name) {
            continue;
        }
        let lines: Vec<_> = source.production_lines().collect();
        let imports = |line: &str| line.starts_with("use reqwest::") && line.contains("Client");
        let has_reqwest = lines.iter().any(|(_, text)| imports(text));
        for (line, text) in lines {
            let is_made = MADE.iter().any(|made| text.contains(made))
                || has_reqwest && IMPORTED.iter().any(|made| text.contains(made));
            if is_made && !text.trim_start().starts_with("//") {
                let what = "a client of HTTP is made outside of longshore-outbound".to_owned();
                findings.push(Finding::new(source, line, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{places, sources};

    #[test]
    fn clients_that_are_made_elsewhere_are_found() {
        let imported = "use reqwest::{Client, Url};\nlet http = Client::builder();\nlet http = Client::builder().build();\n";
        let found = check(&sources(&[
            ("crates/longshore-tasks/src/a.rs", imported),
            ("crates/longshore-dags/src/b.rs", "reqwest::get(url)\n"),
            ("crates/longshore-outbound/src/c.rs", imported),
            (
                "crates/longshore-tasks/src/d.rs",
                "let a = Client::new();\n",
            ),
        ]));
        assert_eq!(
            places(&found),
            [
                "crates/longshore-tasks/src/a.rs:2",
                "crates/longshore-tasks/src/a.rs:3",
                "crates/longshore-dags/src/b.rs:1",
            ]
        );
    }
}
