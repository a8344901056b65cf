//! `[dag_processor]` and the keys of `[core]` about DAG files, checked.

use std::time::Duration;

use super::{AirflowConfig, InvalidValue, executor::Reader, keys, settings::read};

/// How DAG files are found and parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DagProcessorSettings {
    /// The bundles, as a JSON list; `None`: one bundle, the folder of DAG files.
    pub bundle_list: Option<String>,
    /// Where copies of bundles are; `None` where the configuration does not say.
    pub bundle_storage_path: Option<String>,
    /// The folder of DAG files; `None` where the configuration does not say.
    pub dags_folder: Option<String>,
    /// How often a bundle is refreshed that does not say so itself.
    pub refresh_interval: Duration,
    /// How many files are parsed at the same time.
    pub parsing_processes: u32,
    /// From a parse of a file to the next one.
    pub min_file_process_interval: Duration,
    /// A parse that takes longer is ended.
    pub dag_file_processor_timeout: Duration,
    /// Whether only files are parsed that have the words `airflow` and `dag`.
    pub is_discovery_safe: bool,
    /// How lines of `.airflowignore` are read.
    pub ignore_file_syntax: IgnoreFileSyntax,
    /// Whether a DAG that does not say so is paused when it is first seen.
    pub are_paused_at_creation: bool,
    /// Time between two looks for old versions of bundles, in seconds; none where it is 0 or less.
    pub cleanup_interval: i64,
    /// A version that was used in so many seconds is kept.
    pub cleanup_age_threshold: i64,
    /// So many versions are kept whatever their age.
    pub cleanup_min_versions: u32,
}

/// How lines of `.airflowignore` are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IgnoreFileSyntax {
    /// As those of `.gitignore`.
    #[default]
    Glob,
    /// As regular expressions.
    Regexp,
}

impl DagProcessorSettings {
    /// Reads the keys.
    ///
    /// # Errors
    /// All values that stop the start.
    pub fn read(config: &AirflowConfig) -> Result<Self, Vec<InvalidValue>> {
        read(config, |reader| Self {
            bundle_list: reader.text(&keys::BUNDLE_LIST),
            bundle_storage_path: reader.text(&keys::BUNDLE_STORAGE),
            dags_folder: reader.text(&keys::DAGS_FOLDER),
            refresh_interval: reader.seconds(&keys::REFRESH_INTERVAL),
            parsing_processes: reader.at_least(&keys::PARSING_PROCESSES, 1, "1 or more"),
            min_file_process_interval: reader.seconds(&keys::FILE_PROCESS_INTERVAL),
            dag_file_processor_timeout: reader.seconds(&keys::FILE_PROCESSOR_TIMEOUT),
            is_discovery_safe: reader.boolean(&keys::DAG_DISCOVERY_SAFE_MODE),
            ignore_file_syntax: ignore_file_syntax(reader),
            are_paused_at_creation: reader.boolean(&keys::DAGS_ARE_PAUSED),
            cleanup_interval: reader.integer(&keys::CLEANUP_INTERVAL),
            cleanup_age_threshold: reader.integer(&keys::CLEANUP_AGE),
            cleanup_min_versions: reader.at_least(&keys::CLEANUP_MIN_VERSIONS, 0, "0 or more"),
        })
    }
}

fn ignore_file_syntax(reader: &mut Reader<'_>) -> IgnoreFileSyntax {
    let key = &keys::DAG_IGNORE_FILE_SYNTAX;
    match reader.config.optional(key) {
        None | Some("glob") => IgnoreFileSyntax::Glob,
        Some("regexp") => IgnoreFileSyntax::Regexp,
        Some(_) => {
            let invalid = reader.config.invalid(key, "glob or regexp");
            reader.invalid.push(invalid);
            IgnoreFileSyntax::Glob
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn settings(file: &str) -> Result<DagProcessorSettings, Vec<InvalidValue>> {
        let config = AirflowConfig::read(file, &BTreeMap::new());
        assert_eq!(config.problems(), []);
        DagProcessorSettings::read(&config)
    }

    #[test]
    fn upstreams_defaults_hold_and_every_key_has_its_effect() {
        let default = settings("").unwrap();
        assert_eq!(default.bundle_list, None);
        assert_eq!(default.refresh_interval, Duration::from_secs(300));
        assert!(default.is_discovery_safe && default.are_paused_at_creation);
        let set = settings(
            "[core]\ndags_folder = /d\ndags_are_paused_at_creation = False\n\
             dag_discovery_safe_mode = False\ndag_ignore_file_syntax = regexp\n\
             [dag_processor]\ndag_bundle_config_list = []\ndag_bundle_storage_path = /b\n\
             refresh_interval = 5\nparsing_processes = 4\nmin_file_process_interval = 6\n\
             dag_file_processor_timeout = 7.5\nstale_bundle_cleanup_interval = 8\n\
             stale_bundle_cleanup_age_threshold = 9\nstale_bundle_cleanup_min_versions = 3\n",
        );
        let expected = DagProcessorSettings {
            bundle_list: Some("[]".to_owned()),
            bundle_storage_path: Some("/b".to_owned()),
            dags_folder: Some("/d".to_owned()),
            refresh_interval: Duration::from_secs(5),
            parsing_processes: 4,
            min_file_process_interval: Duration::from_secs(6),
            dag_file_processor_timeout: Duration::from_millis(7_500),
            is_discovery_safe: false,
            ignore_file_syntax: IgnoreFileSyntax::Regexp,
            are_paused_at_creation: false,
            cleanup_interval: 8,
            cleanup_age_threshold: 9,
            cleanup_min_versions: 3,
        };
        assert_eq!(set, Ok(expected));
    }

    #[test]
    fn values_that_cannot_be_used_are_told_together() {
        let file =
            "[core]\ndag_ignore_file_syntax = gitignore\n[dag_processor]\nparsing_processes = 0\n";
        let invalid = settings(file).unwrap_err();
        let told: Vec<String> = invalid.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told.iter().any(|text| text.contains("glob or regexp")),
            "{told:?}"
        );
    }
}
