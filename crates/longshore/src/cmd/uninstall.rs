//! `longshore uninstall`: takes a role out of a cluster, so that nothing waits for it any more.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use clap::Args;

use super::{
    client::{Answered, confirm},
    run::duration,
};
use crate::{
    cli::{Format, Globals, help_end},
    controller::{
        config_file,
        roles::{Role, role},
    },
    error::CliError,
    exit::Exit,
    kubernetes::{ClusterArgs, RealCluster},
    output, threads,
    uninstall::{Left, Mode, Report, Uninstall, Verb},
};

/// Objects of one step that are named one by one. Of more, the text has numbers: it has to fit a screen.
const SHOWN: usize = 10;

/// Take a role out of a cluster; custom resources stay
#[derive(Args, Debug)]
#[command(after_help = help_end("longshore uninstall --role podops -n longshore --dry-run"))]
pub(crate) struct UninstallArgs {
    /// Role: podops, webhook, tasks or dags
    #[arg(long, value_name = "ROLE", value_parser = role)]
    role: &'static Role,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Write nothing, and list what would be done
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// First wait for actions that run, at most so long
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
    /// Let the role run again
    #[arg(long, conflicts_with_all = ["dry_run", "wait"])]
    undo: bool,
    /// Configuration of the controller; may be repeated
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
}

/// Runs it.
pub(crate) fn uninstall(args: &UninstallArgs, globals: &Globals) -> Result<Exit, CliError> {
    let (settings, _) = config_file::read(&args.config, &[])?;
    let runtime = threads::runtime()?;
    let report = runtime.block_on(async {
        let cluster = RealCluster::find(&args.cluster).await?;
        let mode = match (args.undo, args.dry_run) {
            (true, _) => Mode::Undo,
            (false, true) => Mode::DryRun,
            (false, false) => Mode::Real,
        };
        let uninstall = Uninstall::prepare(&cluster, args.role, &settings.webhook, mode).await?;
        if args.undo {
            undo(&uninstall, args.role).await?;
            return Ok(None);
        }
        uninstall.is_here().await?;
        if args.dry_run {
            return uninstall.survey().await.map(Some);
        }
        let running = match args.wait {
            Some(limit) => uninstall.until_none_runs(limit).await?,
            None => uninstall.running().await?,
        };
        ask(args, &uninstall, &running, cluster.namespace()).await?;
        uninstall.run().await.map(Some)
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    if let Some(report) = report? {
        print(&report, globals);
    }
    Ok(Exit::Success)
}

async fn undo(uninstall: &Uninstall, role: &Role) -> Result<(), CliError> {
    uninstall.undo().await?;
    output::note(&format!(
        "{}: may run again; apply its manifest, and start a controller",
        role.name
    ));
    Ok(())
}

/// Asks the user to confirm, and lists what the command would remove.
async fn ask(
    args: &UninstallArgs,
    uninstall: &Uninstall,
    running: &[String],
    namespace: &str,
) -> Result<(), CliError> {
    if !args.yes {
        output::note(text(&uninstall.survey().await?).trim_end());
    }
    let meanwhile = match running.len() {
        0 => String::new(),
        n => format!(
            " while {n} of its actions run ({}{})",
            running
                .iter()
                .take(3)
                .cloned()
                .collect::<Vec<_>>()
                .join(", "),
            if n > 3 { ", …" } else { "" },
        ),
    };
    let what = format!(
        "uninstall the role {} of namespace {namespace}{meanwhile}",
        args.role.name
    );
    confirm(&what, Answered::from(args.yes))
}

fn print(report: &Report, globals: &Globals) {
    match globals.output {
        Format::Json => output::json(report),
        Format::Yaml => output::yaml(report),
        Format::Name => {
            let objects = report.steps.iter().flat_map(|step| &step.objects);
            objects.for_each(|object| output::line(object));
        }
        Format::Table | Format::Wide if globals.quiet => {}
        Format::Table | Format::Wide => output::text(&text(report)),
    }
}

fn text(report: &Report) -> String {
    let (role, namespace) = (report.role, &report.namespace);
    let is_dry_run = report.is_dry_run;
    let mut text = format!(
        "role {role} of namespace {namespace}{}:\n",
        if is_dry_run {
            "; nothing is written yet"
        } else {
            ""
        }
    );
    let steps = report.steps.iter().filter(|step| !step.objects.is_empty());
    let mut is_empty = true;
    let mut has_all = true;
    for step in steps {
        is_empty = false;
        text.push_str(&format!(
            "  {} {}:\n",
            word(step.verb, is_dry_run),
            step.what
        ));
        has_all &= step.objects.len() <= SHOWN;
        for line in lines(&step.objects) {
            text.push_str(&format!("    {line}\n"));
        }
    }
    if is_empty {
        text.push_str("  nothing to do\n");
    }
    if !report.left.is_empty() {
        text.push_str(if is_dry_run {
            "would stay:\n"
        } else {
            "stays:\n"
        });
        for (why, objects) in by_reason(&report.left) {
            has_all &= objects.len() <= SHOWN;
            for line in lines(&objects) {
                text.push_str(&format!("  {line}: {why}\n"));
            }
        }
    }
    if !has_all {
        text.push_str("`-o json` names all objects\n");
    }
    text
}

/// What is done with the objects of a step, or would be.
fn word(verb: Verb, is_dry_run: bool) -> &'static str {
    match (verb, is_dry_run) {
        (Verb::Delete, true) => "would delete the",
        (Verb::Delete, false) => "deleted the",
        (Verb::Set, true) => "would set the",
        (Verb::Set, false) => "set the",
        (Verb::Release, true) => "would release the",
        (Verb::Release, false) => "released the",
    }
}

/// The objects that stay for the same reason, in the order in which they were found.
fn by_reason(left: &[Left]) -> Vec<(&str, Vec<String>)> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for Left { object, why } in left {
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, objects)) => objects.push(object.clone()),
            None => reasons.push((why.as_str(), vec![object.clone()])),
        }
    }
    reasons
}

/// The names of a few objects, or the number of many: for each namespace, as far as these are few.
fn lines(objects: &[String]) -> Vec<String> {
    if objects.len() <= SHOWN {
        return objects.to_vec();
    }
    let mut numbers: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for object in objects {
        *numbers.entry(namespace_of(object)).or_default() += 1;
    }
    let n_namespaces = numbers.len();
    let mut lines: Vec<String> = numbers
        .iter()
        .take(SHOWN)
        .map(|(namespace, n)| match namespace {
            Some(namespace) => format!("{n} in namespace {namespace}"),
            None => format!("{n} of the whole cluster"),
        })
        .collect();
    let n_others: usize = numbers.values().skip(SHOWN).sum();
    if n_others > 0 {
        let others = n_namespaces - SHOWN;
        lines.push(format!("{n_others} in {others} other namespaces"));
    }
    lines
}

/// That of `shop/web-0` and of `secret shop/a`; `None` for an object of the whole cluster.
fn namespace_of(object: &str) -> Option<&str> {
    let name = object.rsplit(' ').next().unwrap_or(object);
    name.split_once('/').map(|(namespace, _)| namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uninstall::Done;

    #[test]
    fn ten_objects_of_a_step_are_named_and_of_more_each_namespace_has_a_number() {
        let objects = |n: usize| -> Vec<String> {
            let of = |at: usize| format!("pod n{}/web-{at}", at % 2);
            (0..n).map(of).collect()
        };
        assert_eq!(lines(&objects(10)), objects(10));
        assert_eq!(
            lines(&objects(11)),
            ["6 in namespace n0", "5 in namespace n1"]
        );
        let many: Vec<String> = (0..25).map(|at| format!("n{at:02}/web")).collect();
        let lines = lines(&many);
        assert_eq!(lines.len(), 11);
        assert_eq!(lines[10], "15 in 15 other namespaces");

        let left = objects(11).into_iter().map(|object| Left {
            object,
            why: "kept offline".to_owned(),
        });
        let report = Report {
            kind: "Uninstall",
            role: "podops",
            namespace: "longshore".to_owned(),
            is_dry_run: true,
            steps: vec![Done {
                verb: Verb::Release,
                what: "pods".to_owned(),
                objects: objects(12),
            }],
            left: left.collect(),
        };
        assert_eq!(
            text(&report),
            "role podops of namespace longshore; nothing is written yet:
  would release the pods:
    6 in namespace n0
    6 in namespace n1
would stay:
  6 in namespace n0: kept offline
  5 in namespace n1: kept offline
`-o json` names all objects
"
        );
    }

    #[test]
    fn a_report_names_what_was_removed_and_what_stays_with_its_reason() {
        let report = Report {
            kind: "Uninstall",
            role: "podops",
            namespace: "longshore".to_owned(),
            is_dry_run: false,
            steps: vec![
                Done {
                    verb: Verb::Delete,
                    what: "certificates".to_owned(),
                    objects: vec!["secret longshore/a".to_owned()],
                },
                Done {
                    verb: Verb::Release,
                    what: "pods".to_owned(),
                    objects: Vec::new(),
                },
            ],
            left: vec![Left {
                object: "3 podtransitionrules".to_owned(),
                why: "kept".to_owned(),
            }],
        };
        insta::assert_snapshot!(text(&report), @r"
        role podops of namespace longshore:
          deleted the certificates:
            secret longshore/a
        stays:
          3 podtransitionrules: kept
        ");
    }
}
