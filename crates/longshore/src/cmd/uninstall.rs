//! `longshore uninstall`: takes a role out of a cluster, so that nothing waits for it any more.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use tokio::runtime::Runtime;

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
    output,
    uninstall::{Mode, Report, Uninstall},
};

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
    let runtime = Runtime::new().map_err(|source| CliError::engine("the runtime", source))?;
    let report = runtime.block_on(async {
        let cluster = RealCluster::find(&args.cluster).await?;
        let mode = if args.dry_run {
            Mode::DryRun
        } else {
            Mode::Real
        };
        let uninstall = Uninstall::prepare(&cluster, args.role, &settings.webhook, mode).await?;
        if args.undo {
            undo(&uninstall, args.role).await?;
            return Ok(None);
        }
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
    let name = role.name;
    output::note(&if uninstall.undo().await? {
        format!("{name}: may run again; apply its manifest, and start a controller")
    } else {
        format!("{name}: was not uninstalled, and may run")
    });
    Ok(())
}

/// Asks with what is at stake.
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
    let mut text = if report.is_dry_run {
        format!("role {role} of namespace {namespace}; would be removed:\n")
    } else {
        format!("role {role} of namespace {namespace}; removed:\n")
    };
    let steps = report.steps.iter().filter(|step| !step.objects.is_empty());
    let mut is_empty = true;
    for step in steps {
        is_empty = false;
        text.push_str(&format!("  {}:\n", step.what));
        for object in &step.objects {
            text.push_str(&format!("    {object}\n"));
        }
    }
    if is_empty {
        text.push_str("  nothing\n");
    }
    if !report.left.is_empty() {
        text.push_str("stays:\n");
        for left in &report.left {
            text.push_str(&format!("  {}: {}\n", left.object, left.why));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uninstall::{Done, Left};

    #[test]
    fn a_report_names_what_was_removed_and_what_stays_with_its_reason() {
        let report = Report {
            kind: "Uninstall",
            role: "podops",
            namespace: "longshore".to_owned(),
            is_dry_run: false,
            steps: vec![
                Done {
                    what: "certificates".to_owned(),
                    objects: vec!["secret longshore/a".to_owned()],
                },
                Done {
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
        role podops of namespace longshore; removed:
          certificates:
            secret longshore/a
        stays:
          3 podtransitionrules: kept
        ");
    }
}
