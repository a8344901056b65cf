//! Kubernetes' own conformance suite against a `longshore standalone` from nothing, item by item: what passes, what does
//! not and why, and that nothing is lost which has passed before.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{
    Options,
    service::{Service, end_processes_of},
};
use crate::kube_build::{self, Program};

mod images;
mod items;
mod outcomes;
mod suite;
mod verdict;

use outcomes::Outcomes;
use suite::Suite;
use verdict::ByItem;

/// Items at the same time: most of them wait for most of their time.
const PARALLEL: usize = 4;
/// How long an item may take: some wait for minutes whether something happens that must not.
const LIMIT: Duration = Duration::from_secs(600);
/// Pods that the node takes at the same time: an item makes a hundred.
const PODS: &str = "200";
/// A file that names the directory of the cluster: what an interrupted campaign left there is removed by the next one.
const PLACE: &str = "place";

/// Runs the items that are left, and compares all outcomes with the last committed result.
pub(super) fn run(options: &Options) -> Result<Value> {
    let longshore = match &options.binary {
        Some(binary) => binary.canonicalize()?,
        None => super::release_binary()?,
    };
    let before = verdict::last_committed()?;
    let programs =
        kube_build::programs(&[Program::Kubectl, Program::Agnhost, Program::Conformance])?;
    let program = programs.path(Program::Conformance).canonicalize()?;
    let items = suite::all_items(&program)?;
    let cache = kube_build::cache_root().join("conformance");
    let mut outcomes = Outcomes::of(&longshore, &cache)?;
    let mut cluster = Cluster::start(
        &longshore,
        &programs.path(Program::Agnhost).canonicalize()?,
        outcomes.folder(),
    )?;
    let logs = outcomes.folder().join("logs").canonicalize()?;
    println!("what items print is in {}", logs.display());
    let suite = Suite {
        program,
        kubectl: programs.path(Program::Kubectl).canonicalize()?,
        kubeconfig: cluster.service.kubeconfig()?,
        logs,
        limit: options.limit.map_or(LIMIT, Duration::from_secs),
    };
    let n_parallel = options.parallel.unwrap_or(PARALLEL).max(1);
    run_items(&suite, &mut cluster, &items, n_parallel, &mut outcomes)?;
    if let Some(before) = &before {
        try_again(&suite, &mut cluster, before, &items, &mut outcomes)?;
    }
    drop(cluster);
    judge(options, before.as_ref(), &items, outcomes)
}

/// Runs the items without an outcome: several at a time, then those that run alone.
fn run_items(
    suite: &Suite,
    cluster: &mut Cluster,
    items: &[String],
    n_parallel: usize,
    outcomes: &mut Outcomes,
) -> Result<()> {
    let (alone, together): (Vec<String>, Vec<String>) = items
        .iter()
        .filter(|item| outcomes.get(item).is_none())
        .cloned()
        .partition(|item| items::runs_alone(item));
    let n_left = alone.len() + together.len();
    println!("{n_left} of {} items are left to run", items.len());
    for (items, n_parallel) in [(together, n_parallel), (alone, 1)] {
        suite.run(&items, n_parallel, 1, |item, outcome| {
            println!("{:<8}  {item}", outcome.state);
            outcomes.add(item, outcome)?;
            cluster.check()
        })?;
    }
    Ok(())
}

/// Runs the items that passed before once more, alone: the machine may have been busy.
fn try_again(
    suite: &Suite,
    cluster: &mut Cluster,
    before: &Value,
    items: &[String],
    outcomes: &mut Outcomes,
) -> Result<()> {
    let so_far = by_item(items, outcomes);
    let again: Vec<String> = verdict::lost(before, &so_far)
        .into_iter()
        .filter(|(_, it)| it.tries == 1)
        .map(|(item, _)| item.to_owned())
        .collect();
    suite.run(&again, 1, 2, |item, outcome| {
        println!("{:<8}  again: {item}", outcome.state);
        outcomes.add(item, outcome)?;
        cluster.check()
    })
}

fn by_item(items: &[String], outcomes: &Outcomes) -> ByItem {
    items
        .iter()
        .filter_map(|item| Some((item.clone(), outcomes.get(item)?.clone())))
        .collect()
}

/// The result, or why it is none.
fn judge(
    options: &Options,
    before: Option<&Value>,
    items: &[String],
    outcomes: Outcomes,
) -> Result<Value> {
    let found = by_item(items, &outcomes);
    let build = if options.binary.is_some() {
        "given"
    } else {
        "release"
    };
    let result = verdict::result(kube_build::kubernetes_version()?, build, &found);
    let violations = verdict::violations(before, &found);
    let path = outcomes.folder().join("result.json");
    fs::write(&path, serde_json::to_string_pretty(&result)? + "\n")?;
    outcomes.forget()?;
    if !violations.is_empty() {
        bail!(
            "{} lines of the result, which is in {}, must not be so:\n{}",
            violations.len(),
            path.display(),
            violations.join("\n")
        );
    }
    Ok(result)
}

/// A `standalone` from nothing. Dropping it ends it, with all its pods.
struct Cluster {
    service: Service,
    /// Everything of it.
    folder: PathBuf,
}

impl Cluster {
    /// Starts one in a new directory, which `kept` remembers.
    fn start(longshore: &Path, agnhost: &Path, kept: &Path) -> Result<Self> {
        fs::create_dir_all(kept.join("logs"))?;
        let place = kept.join(PLACE);
        if let Ok(left) = fs::read_to_string(&place) {
            remove(Path::new(&left));
        }
        let folder = tempfile::Builder::new()
            .prefix("longshore-conformance-")
            .tempdir()?
            .keep();
        fs::write(&place, folder.display().to_string())?;
        let data = folder.join("data");
        fs::create_dir(&data)?;
        let files = folder.join("images");
        fs::create_dir(&files)?;
        images::make_files(&files)?;
        let map = serde_json::to_string_pretty(&images::map(agnhost, &files))?;
        fs::write(data.join("images.yaml"), map)?;
        let arguments = ["--pod-network", "--images", "strict", "--parallelism", PODS];
        let arguments = arguments.map(str::to_owned);
        let service = Service::standalone(longshore, &data, &arguments)?;
        let mut cluster = Self { service, folder };
        cluster.service.wait_until_ready()?;
        Ok(cluster)
    }

    /// Fails once it has ended.
    fn check(&mut self) -> Result<()> {
        self.service.is_ready().map(drop).context(
            "the outcomes so far are kept, the next campaign goes on with the items that are left",
        )
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.service.kill();
        remove(&self.folder);
    }
}

/// Ends what is left of a cluster, and removes its directory.
fn remove(folder: &Path) {
    end_processes_of(folder);
    if let Err(error) = fs::remove_dir_all(folder) {
        println!("{} cannot be removed: {error}", folder.display());
    }
}
