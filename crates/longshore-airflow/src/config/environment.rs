//! Names of variables: `AIRFLOW__SECTION__KEY`.

use super::Key;

/// What a variable of the environment sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Variable {
    /// Another program's.
    Foreign,
    /// A key of a section.
    Setting { section: String, key: String },
    /// A key of a section of one team: `AIRFLOW__TEAM___SECTION__KEY`.
    Team {
        team: String,
        section: String,
        key: String,
    },
    /// It begins as such a name, and has no section or key.
    Unnamed,
}

const PREFIX: &str = "AIRFLOW__";

/// Reads the name of a variable.
pub(super) fn parse(name: &str) -> Variable {
    let Some(rest) = name.strip_prefix(PREFIX) else {
        return Variable::Foreign;
    };
    let rest = rest.to_ascii_lowercase();
    if let Some((team, setting)) = rest.split_once("___")
        && let Some((section, key)) = setting.split_once("__")
        && ![team, section, key].contains(&"")
    {
        return Variable::Team {
            team: team.to_owned(),
            section: section.to_owned(),
            key: key.to_owned(),
        };
    }
    match rest.split_once("__") {
        Some((section, key)) if !section.is_empty() && !key.is_empty() => Variable::Setting {
            section: section.to_owned(),
            key: key.to_owned(),
        },
        Some(_) | None => Variable::Unnamed,
    }
}

impl Key {
    /// The variable that sets the key: `AIRFLOW__CORE__PARALLELISM`.
    #[must_use]
    pub fn variable(&self) -> String {
        // A section with a dot or a dash has `_` there.
        let section = self.section().replace(['.', '-'], "_");
        format!("{PREFIX}{section}__{}", self.name).to_ascii_uppercase()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_variables_are_read() {
        let setting = |section: &str, key: &str| Variable::Setting {
            section: section.to_owned(),
            key: key.to_owned(),
        };
        for (name, expected) in [
            ("PATH", Variable::Foreign),
            ("AIRFLOW_HOME", Variable::Foreign),
            ("AIRFLOW_VAR_X", Variable::Foreign),
            ("airflow__core__parallelism", Variable::Foreign),
            ("AIRFLOW__CORE__PARALLELISM", setting("core", "parallelism")),
            (
                "AIRFLOW__CORE__FERNET_KEY_CMD",
                setting("core", "fernet_key_cmd"),
            ),
            ("AIRFLOW__CORE__A__B", setting("core", "a__b")),
            ("AIRFLOW__CORE", Variable::Unnamed),
            ("AIRFLOW____PARALLELISM", Variable::Unnamed),
            ("AIRFLOW__CORE__", Variable::Unnamed),
            (
                "AIRFLOW__ML___KUBERNETES_EXECUTOR__NAMESPACE",
                Variable::Team {
                    team: "ml".to_owned(),
                    section: "kubernetes_executor".to_owned(),
                    key: "namespace".to_owned(),
                },
            ),
        ] {
            assert_eq!(parse(name), expected, "{name}");
        }
    }

    #[test]
    fn each_key_has_a_variable_that_names_it() {
        for key in crate::config::KEYS {
            let expected = Variable::Setting {
                section: key.section().to_owned(),
                key: key.name.to_owned(),
            };
            assert_eq!(parse(&key.variable()), expected);
        }
    }
}
