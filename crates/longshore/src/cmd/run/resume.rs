//! The command that resumes a run.

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
    let mut command = format!(
        "longshore run {} --resume {}",
        quoted(file),
        quoted(Path::new(&run.run_id))
    );
    if let Some(data_dir) = &data_dir.data_dir {
        let _ = write!(command, " --data-dir {}", quoted(data_dir));
    }
    let named = [
        ("context", cluster.context.as_ref().map(Path::new)),
        ("kubeconfig", cluster.kubeconfig.as_deref()),
        ("namespace", cluster.namespace.as_ref().map(Path::new)),
    ];
    for (flag, value) in named {
        if let Some(value) = value {
            let _ = write!(command, " --{flag} {}", quoted(value));
        }
    }
    Some(command)
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
