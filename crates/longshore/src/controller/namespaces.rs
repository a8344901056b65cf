//! Which namespaces a controller works in: its own, and those beside it whose TaskActions it runs.

use std::{collections::BTreeSet, path::PathBuf};

use clap::Args;
use longshore_k8s::names::label_violations;
use longshore_kit::Namespaces;

use super::roles::{Role, Works};
use crate::kubernetes::ClusterArgs;

/// The namespaces beside its own in which a controller, or one of its roles, works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// These.
    These(BTreeSet<String>),
    /// Every other one, also those that are made later.
    All,
}

impl Others {
    /// None.
    pub(crate) const NONE: Self = Self::These(BTreeSet::new());

    /// Those that flags name after the first one, which is the controller's own.
    pub(crate) fn named(namespaces: &[String], is_all: bool) -> Self {
        if is_all {
            return Self::All;
        }
        let mut others: BTreeSet<String> = namespaces.iter().skip(1).cloned().collect();
        if let Some(own) = namespaces.first() {
            others.remove(own);
        }
        Self::These(others)
    }

    /// Those in which a role works.
    pub(crate) fn of(&self, role: &Role) -> Self {
        match role.works {
            Works::InNamed => self.clone(),
            Works::InOwn | Works::Everywhere => Self::NONE,
        }
    }

    /// The names of those that are named.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let names = match self {
            Self::These(names) => Some(names),
            Self::All => None,
        };
        names.into_iter().flatten().map(String::as_str)
    }

    /// All of them, with the controller's own.
    pub(crate) fn with(&self, own: &str) -> Namespaces {
        match self {
            Self::All => Namespaces::All,
            Self::These(others) => {
                let mut all = others.clone();
                all.insert(own.to_owned());
                Namespaces::These(all)
            }
        }
    }

    /// The flags that name them, with a blank in front.
    pub(crate) fn flags(&self) -> String {
        match self {
            Self::All => " --all-namespaces".to_owned(),
            Self::These(others) => {
                let flags = others.iter().map(|name| format!(" --namespace {name}"));
                flags.collect()
            }
        }
    }

    /// What the start says about where a role works, and where not; `None` where no flag changes that.
    pub(crate) fn scope(&self, role: &Role, own: &str) -> Option<String> {
        let name = role.name;
        let objects = role.objects;
        match (role.works, self) {
            (Works::InNamed, Self::All) => Some(format!(
                "{name}: watches all namespaces; its Lease is in namespace {own}"
            )),
            (Works::InNamed, Self::These(others)) if others.is_empty() => Some(format!(
                "{name}: watches namespace {own} only; {objects} of other namespaces are not run here \
                 (--namespace, once for each, or --all-namespaces)"
            )),
            (Works::InNamed, Self::These(others)) => {
                let mut all = vec![own];
                all.extend(others.iter().map(String::as_str));
                Some(format!(
                    "{name}: watches namespaces {}; {objects} of other namespaces are not run here",
                    all.join(", ")
                ))
            }
            (Works::InOwn, others) if *others != Self::NONE => {
                Some(format!("{name}: works in namespace {own} only"))
            }
            (Works::InOwn | Works::Everywhere, _) => None,
        }
    }
}

/// Which cluster, and which of its namespaces.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlaceArgs {
    /// Kubeconfig file [default: as kubectl; in a pod, its own cluster]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Its namespace, then others; -A: all [default: the context's]
    #[arg(short, long, value_name = "NAMESPACE", value_parser = namespace)]
    namespace: Vec<String>,
    // Hidden: the help has to fit the first screen, and the line above names it.
    /// Run the TaskActions of all namespaces
    #[arg(short = 'A', long, hide = true)]
    all_namespaces: bool,
}

impl PlaceArgs {
    /// The cluster, and the controller's own namespace.
    pub(crate) fn cluster(&self) -> ClusterArgs {
        ClusterArgs {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            namespace: self.namespace.first().cloned(),
        }
    }

    /// The other namespaces.
    pub(crate) fn others(&self) -> Others {
        Others::named(&self.namespace, self.all_namespaces)
    }

    /// Notes about flags that change nothing.
    pub(crate) fn unused(&self, roles: &[&'static Role]) -> Vec<String> {
        unused(&self.namespace, self.all_namespaces, roles)
    }
}

/// The name of one namespace, for the command line.
pub(crate) fn namespace(text: &str) -> Result<String, String> {
    match label_violations(text).into_iter().next() {
        None => Ok(text.to_owned()),
        Some(_) if text.contains(',') => {
            Err("expected one namespace, found several: repeat the flag for each".to_owned())
        }
        Some(why) => Err(format!("expected the name of a namespace: {why}")),
    }
}

/// Notes about flags for namespaces that change nothing.
pub(crate) fn unused(namespaces: &[String], is_all: bool, roles: &[&'static Role]) -> Vec<String> {
    let named = Others::named(namespaces, false);
    let named: Vec<String> = named
        .names()
        .map(|it| format!("--namespace {it}"))
        .collect();
    let mut given = named.clone();
    given.extend(is_all.then(|| "--all-namespaces".to_owned()));
    if !roles.iter().any(|role| role.works == Works::InNamed) {
        let note = |flag: String| {
            format!(
                "{flag} changes nothing without tasks in --enable, the only role that works in several namespaces \
                 and not in the whole cluster: add it, or leave the flag out"
            )
        };
        return given.into_iter().map(note).collect();
    }
    if !is_all {
        return Vec::new();
    }
    let note = |flag: String| {
        format!("{flag} changes nothing beside --all-namespaces: leave one of them out")
    };
    named.into_iter().map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::roles::{ROLES, defaults, role};

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        place: PlaceArgs,
    }

    fn line(flags: &str) -> Result<PlaceArgs, String> {
        let line = ["longshore"].into_iter().chain(flags.split_whitespace());
        let line = <Line as clap::Parser>::try_parse_from(line);
        line.map(|line| line.place)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_namespace_is_its_own_and_the_others_are_for_tasks() {
        for (flags, own, namespaces, written) in [
            ("", None, Some("of-context"), ""),
            ("-n a", Some("a"), Some("a"), ""),
            ("-n b -n a -n b", Some("b"), Some("a b"), " --namespace a"),
            (
                "--namespace b --namespace a -n c",
                Some("b"),
                Some("a b c"),
                " --namespace a --namespace c",
            ),
            ("-A", None, None, " --all-namespaces"),
            ("-A -n a", Some("a"), None, " --all-namespaces"),
            (
                "-n a --all-namespaces -n b",
                Some("a"),
                None,
                " --all-namespaces",
            ),
        ] {
            let place = line(flags).unwrap();
            let cluster = place.cluster();
            assert_eq!(cluster.namespace.as_deref(), own, "{flags}");
            let own = cluster.namespace.unwrap_or("of-context".to_owned());
            let expected: Option<BTreeSet<String>> =
                namespaces.map(|names| names.split(' ').map(str::to_owned).collect());
            assert_eq!(place.others().with(&own).now(), expected, "{flags}");
            assert_eq!(place.others().flags(), written, "{flags}");
        }
    }

    #[test]
    fn what_is_no_name_of_a_namespace_is_refused() {
        for (flags, expected) in [
            ("-n a,b", "found several: repeat the flag for each"),
            ("-n A", "expected the name of a namespace: "),
            ("--namespace=", "expected the name of a namespace: "),
        ] {
            let error = line(flags).unwrap_err();
            assert!(error.contains(expected), "{flags}: {error}");
        }
    }

    #[test]
    fn flags_that_change_nothing_are_named() {
        let unused = |flags: &str, roles: &[&'static Role]| {
            let notes = line(flags).unwrap().unused(roles);
            let names = notes.iter().map(|note| note.split(" changes").next());
            names.map(Option::unwrap).collect::<Vec<_>>().join(", ")
        };
        let podops = [role("podops").unwrap(), role("dags").unwrap()];
        for (flags, with_tasks, without) in [
            ("", "", ""),
            ("-n a", "", ""),
            ("-n a -n a", "", ""),
            ("-n a -n c -n b", "", "--namespace b, --namespace c"),
            ("-A", "", "--all-namespaces"),
            ("-A -n a", "", "--all-namespaces"),
            (
                "-A -n a -n b",
                "--namespace b",
                "--namespace b, --all-namespaces",
            ),
        ] {
            assert_eq!(unused(flags, &defaults()), with_tasks, "{flags}");
            assert_eq!(unused(flags, &podops), without, "{flags}");
        }
    }

    #[test]
    fn the_start_says_where_each_role_works_and_where_not() {
        let mut text = String::new();
        for flags in ["-n a", "-n b -n a -n c", "-n a -A"] {
            text.push_str(&format!("{flags}\n"));
            let place = line(flags).unwrap();
            let own = place.cluster().namespace.unwrap();
            for role in ROLES {
                if let Some(scope) = place.others().scope(role, &own) {
                    text.push_str(&format!("  {scope}\n"));
                }
            }
        }
        insta::assert_snapshot!(text, @r"
        -n a
          tasks: watches namespace a only; TaskActions of other namespaces are not run here (--namespace, once for each, or --all-namespaces)
          flink: watches namespace a only; Flink's resources of other namespaces are not run here (--namespace, once for each, or --all-namespaces)
        -n b -n a -n c
          dags: works in namespace b only
          tasks: watches namespaces b, a, c; TaskActions of other namespaces are not run here
          flink: watches namespaces b, a, c; Flink's resources of other namespaces are not run here
        -n a -A
          dags: works in namespace a only
          tasks: watches all namespaces; its Lease is in namespace a
          flink: watches all namespaces; its Lease is in namespace a
        ");
    }
}
