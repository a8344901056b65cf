//! The commands that resume a run, or start its DAG again.

use std::{fmt::Write, path::Path};

use longshore_store::RunKey;

use crate::{data_dir::DataDirArgs, kubernetes::ClusterArgs};

/// What to type to go on with a run that was stopped; `None` where it left nothing.
pub(crate) fn command(
    file: &Path,
    data_dir: &DataDirArgs,
    cluster: &ClusterArgs,
    run: &RunKey,
) -> Option<String> {
    if data_dir.ephemeral {
        return None;
    }
    let run_id = quoted(Path::new(&run.run_id));
    let command = format!("longshore run {} --resume {run_id}", quoted(file));
    Some(command + &places(data_dir, cluster))
}

/// What to type to start the DAG of a file again.
pub(crate) fn again(file: &Path, data_dir: &DataDirArgs, cluster: &ClusterArgs) -> String {
    format!("longshore run {}", quoted(file)) + &places(data_dir, cluster)
}

/// The options that name where a run and its data are, as they were given.
fn places(data_dir: &DataDirArgs, cluster: &ClusterArgs) -> String {
    let mut options = String::new();
    if data_dir.ephemeral {
        options.push_str(" --ephemeral");
    }
    if let Some(data_dir) = &data_dir.data_dir {
        let _ = write!(options, " --data-dir {}", quoted(data_dir));
    }
    let named = [
        ("context", cluster.context.as_ref().map(Path::new)),
        ("kubeconfig", cluster.kubeconfig.as_deref()),
        ("namespace", cluster.namespace.as_ref().map(Path::new)),
    ];
    for (flag, value) in named {
        if let Some(value) = value {
            let _ = write!(options, " --{flag} {}", quoted(value));
        }
    }
    options
}

/// A path as a POSIX shell reads it back.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=,@".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
