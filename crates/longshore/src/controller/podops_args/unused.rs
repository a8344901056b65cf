//! Notes at the start about flags that change nothing.

use longshore_podops::FailurePolicies;

use super::{FeatureGates, PodOpsArgs, SkippedRules};
use crate::controller::{podops, roles::Role, webhook};

impl PodOpsArgs {
    /// Notes about flags that change nothing without another flag.
    pub(super) fn unused_flags(&self) -> Vec<&'static str> {
        let mut unused = Vec::new();
        if !self.hold_deletes.is_zero() && !self.feature_gates.grace_delete {
            unused.push(
                "--hold-deletes holds no delete, because deletes are no operations: \
                 set --feature-gates GraceDeleteWebhook=true as well, or leave it out",
            );
        }
        if self.drain_delay.is_some() && !self.protect_services {
            unused.push(
                "--drain-delay delays nothing, because Services protect no pods: \
                 leave out --protect-services=false, or --drain-delay",
            );
        }
        unused
    }

    /// Notes about flags that change nothing, because no role runs that they are about.
    pub(crate) fn unused_by(&self, roles: &[&'static Role]) -> Vec<String> {
        let runs = |name: &str| roles.iter().any(|role| role.name == name);
        if runs(podops::ROLE) {
            return Vec::new();
        }
        let given = |flags: Vec<(bool, &'static str)>, role: &str| -> Vec<String> {
            let given = flags.into_iter().filter(|(is_given, _)| *is_given);
            let note = |(_, flag): (bool, &str)| {
                format!(
                    "{flag} changes nothing without {role} in --enable: add it, or leave the flag out"
                )
            };
            given.map(note).collect()
        };
        let mut unused = given(self.of_podops(), "podops");
        if !runs(webhook::ROLE) {
            unused.extend(given(self.of_webhooks(), "podops or webhook"));
        }
        unused
    }

    /// The flags for webhooks of any role, each with whether it was given.
    fn of_webhooks(&self) -> Vec<(bool, &'static str)> {
        vec![
            (self.webhook_address.is_some(), "--webhook-address"),
            (self.webhook_client_ca.is_some(), "--webhook-client-ca"),
        ]
    }

    /// The flags of the role `podops` alone, each with whether it says something else than its default.
    fn of_podops(&self) -> Vec<(bool, &'static str)> {
        let gates = self.feature_gates != FeatureGates::default();
        let policies = self.webhook_failure_policy != FailurePolicies::default();
        let skipped = self.skip_pod_transition_rules != SkippedRules::default();
        vec![
            (gates, "--feature-gates"),
            (self.dns_name.is_some(), "--dns-name"),
            (self.protection_deadline.is_some(), "--protection-deadline"),
            (!self.protect_services, "--protect-services"),
            (self.drain_delay.is_some(), "--drain-delay"),
            (!self.allow_webhook_cidr.is_empty(), "--allow-webhook-cidr"),
            (!self.hold_deletes.is_zero(), "--hold-deletes"),
            (self.allow_force_delete, "--allow-force-delete"),
            (policies, "--webhook-failure-policy"),
            (!self.exclude_namespaces.is_empty(), "--exclude-namespaces"),
            (
                skipped,
                "--skip-pod-transition-rules (SKIP_POD_TRANSITION_RULES)",
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::roles::{defaults, role};

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        podops: PodOpsArgs,
    }

    fn line(flags: &[&str]) -> PodOpsArgs {
        let line = [&["longshore"][..], flags].concat();
        <Line as clap::Parser>::try_parse_from(line).unwrap().podops
    }

    /// The flags that notes begin with.
    fn named<T: AsRef<str>>(notes: &[T]) -> String {
        let names = notes
            .iter()
            .filter_map(|note| note.as_ref().split(' ').next());
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_flag_that_changes_nothing_without_another_one_is_named() {
        let unused = |flags: &[&str]| named(&line(flags).settings().unused_flags);
        let gate = "--feature-gates=GraceDeleteWebhook=true";
        assert_eq!(unused(&[]), "");
        assert_eq!(unused(&["--hold-deletes", "5s"]), "--hold-deletes");
        assert_eq!(unused(&["--hold-deletes", "0s"]), "");
        assert_eq!(unused(&["--hold-deletes", "5s", gate]), "");
        assert_eq!(unused(&["--drain-delay", "5s"]), "");
        assert_eq!(
            unused(&["--drain-delay", "5s", "--protect-services=false"]),
            "--drain-delay"
        );
    }

    #[test]
    fn a_flag_that_no_role_uses_is_named() {
        let unused = |flags: &[&str], roles: &[&'static Role]| named(&line(flags).unused_by(roles));
        let of = |name| role(name).unwrap();
        let address = ["--webhook-address", "127.0.0.1:9443"];
        assert_eq!(unused(&address, &defaults()), "--webhook-address");
        assert_eq!(unused(&address, &[of("webhook")]), "");
        assert_eq!(unused(&address, &[of("podops")]), "");
        let authority = ["--webhook-client-ca", "ca.crt"];
        assert_eq!(unused(&authority, &[of("tasks")]), "--webhook-client-ca");
        assert_eq!(unused(&authority, &[of("webhook")]), "");
        let all = [
            "--feature-gates=GraceDeleteWebhook=true",
            "--dns-name=a.b.svc",
            "--protection-deadline=1m",
            "--protect-services=false",
            "--drain-delay=1s",
            "--allow-webhook-cidr=127.0.0.0/8",
            "--hold-deletes=1s",
            "--allow-force-delete",
            "--webhook-failure-policy=Ignore",
            "--exclude-namespaces=legacy",
            "--skip-pod-transition-rules=webhook",
        ];
        let names = all.map(|flag| flag.split('=').next().unwrap()).join(" ");
        assert_eq!(unused(&all, &[of("dags"), of("webhook")]), names);
        assert_eq!(unused(&all, &[of("dags"), of("podops")]), "");
        // These are about any role.
        let of_all = ["--leader-elect=false", "--metrics-bind-address=:8080"];
        assert_eq!(unused(&of_all, &defaults()), "");
        assert_eq!(unused(&[], &defaults()), "");
    }
}
