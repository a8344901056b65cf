//! The layers below a resource's own configuration (spec 12.1; upstream: `FlinkConfigManager`).
//!
//! From low to high: the operator's file, what it says for the namespace, what it says for this version of Flink and
//! later ones (`v1_18+`, oldest first), what it says for exactly this version. The resource's own configuration is above
//! all of them.

use super::FlinkConfig;
use crate::spec::FlinkVersion;

const NAMESPACE_PREFIX: &str = "kubernetes.operator.default-configuration.namespace.";
const VERSION_PREFIX: &str = "kubernetes.operator.default-configuration.flink-version.";

/// The operator's own configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorConfig {
    file: FlinkConfig,
}

/// Versions that a layer is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Versions {
    Exactly(FlinkVersion),
    From(FlinkVersion),
}

impl OperatorConfig {
    /// The configuration of the operator's file, under that of the directory of overrides.
    #[must_use]
    pub fn new(mut file: FlinkConfig, overrides: Option<&FlinkConfig>) -> Self {
        if let Some(overrides) = overrides {
            file.merge(overrides);
        }
        Self { file }
    }

    /// The options of the operator itself.
    #[must_use]
    pub const fn file(&self) -> &FlinkConfig {
        &self.file
    }

    /// What resources of this namespace and version inherit.
    #[must_use]
    pub fn defaults(&self, namespace: &str, version: Option<FlinkVersion>) -> FlinkConfig {
        let mut config = self.file.clone();
        let namespace = format!("{NAMESPACE_PREFIX}{namespace}.");
        for (key, text) in self.file.below(&namespace) {
            config.set_text(key, text);
        }
        let Some(version) = version else {
            return config;
        };
        let older = FlinkVersion::ALL.into_iter().filter(|it| *it <= version);
        let layers = older
            .map(Versions::From)
            .chain([Versions::Exactly(version)]);
        for layer in layers {
            for (versions, key, text) in self.versioned() {
                if versions == Some(layer) {
                    config.set_text(key, text);
                }
            }
        }
        config
    }

    /// Keys of layers for versions that are unknown, which no resource inherits.
    #[must_use]
    pub fn unknown_versions(&self) -> Vec<String> {
        self.file
            .below(VERSION_PREFIX)
            .zip(self.versioned())
            .filter(|(_, (versions, ..))| versions.is_none())
            .map(|((key, _), _)| format!("{VERSION_PREFIX}{key}"))
            .collect()
    }

    /// The layers for versions: versions, key, text.
    fn versioned(&self) -> impl Iterator<Item = (Option<Versions>, &str, &str)> {
        self.file.below(VERSION_PREFIX).map(|(rest, text)| {
            let (versions, key) = rest.split_once('.').unwrap_or((rest, ""));
            let parsed = match versions.strip_suffix('+') {
                Some(version) => version.parse().map(Versions::From),
                None => versions.parse().map(Versions::Exactly),
            };
            (parsed.ok().filter(|_| !key.is_empty()), key, text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operator(pairs: &[(&str, &str)]) -> OperatorConfig {
        let file = pairs.iter().map(|(key, text)| {
            (
                key.replace('~', crate::conf::operator::DEFAULTS_PREFIX),
                *text,
            )
        });
        OperatorConfig::new(file.collect(), None)
    }

    #[test]
    fn namespaces_then_versions_win_over_the_file() {
        let operator = operator(&[
            ("a", "file"),
            ("b", "file"),
            ("c", "file"),
            ("d", "file"),
            ("~namespace.ns.b", "ns"),
            ("~namespace.ns.c", "ns"),
            ("~namespace.other.a", "other"),
            ("~flink-version.v1_18+.c", "from 1.18"),
            ("~flink-version.v1_18+.d", "from 1.18"),
            ("~flink-version.v1_20+.d", "from 1.20"),
            ("~flink-version.v2_0+.d", "from 2.0"),
            ("~flink-version.v1_20.e", "1.20"),
            ("~flink-version.v1_20+.e", "from 1.20"),
        ]);
        for (namespace, version, expected) in [
            ("none", None, ["file", "file", "file", "file", ""]),
            ("ns", None, ["file", "ns", "ns", "file", ""]),
            ("other", None, ["other", "file", "file", "file", ""]),
            (
                "ns",
                Some(FlinkVersion::V1_17),
                ["file", "ns", "ns", "file", ""],
            ),
            (
                "ns",
                Some(FlinkVersion::V1_19),
                ["file", "ns", "from 1.18", "from 1.18", ""],
            ),
            (
                "ns",
                Some(FlinkVersion::V1_20),
                ["file", "ns", "from 1.18", "from 1.20", "1.20"],
            ),
            (
                "none",
                Some(FlinkVersion::V2_1),
                ["file", "file", "from 1.18", "from 2.0", "from 1.20"],
            ),
        ] {
            let found = operator.defaults(namespace, version);
            let found = ["a", "b", "c", "d", "e"].map(|key| found.text(key).unwrap_or_default());
            assert_eq!(found, expected, "{namespace} {version:?}");
        }
    }

    #[test]
    fn overrides_win_over_the_file() {
        let file: FlinkConfig = [("a", "1"), ("b", "1")].into_iter().collect();
        let overrides = [("b", "2")].into_iter().collect();
        let operator = OperatorConfig::new(file, Some(&overrides));
        let found = operator.defaults("ns", None);
        assert_eq!(found.text("a"), Some("1"));
        assert_eq!(found.text("b"), Some("2"));
    }

    #[test]
    fn layers_for_unknown_versions_are_named() {
        let operator = operator(&[
            ("~flink-version.v9_9+.a", "1"),
            ("~flink-version.1.20.a", "1"),
            ("~flink-version.v1_20", "1"),
            ("~flink-version.v1_20+.a", "1"),
        ]);
        let unknown = operator.unknown_versions();
        let unknown: Vec<&str> = unknown
            .iter()
            .filter_map(|key| key.strip_prefix(VERSION_PREFIX))
            .collect();
        assert_eq!(unknown, ["1.20.a", "v1_20", "v9_9+.a"]);
    }
}
