//! Pods that run and have lost their network: finding them, and the processes that show what is left of it.

use std::{fs, io, os::unix::ffi::OsStrExt, path::Path};

use super::{Network, Pods, protocol::Ask};
use crate::shim::{ARG_DIE, ARG_STAY};

impl Network {
    /// The pods that the keeper has. Those of this node that it should have and has not are to be connected again.
    pub(super) async fn attached(&self) -> io::Result<Vec<String>> {
        // Before the question: a pod that is attached meanwhile may not be in the answer.
        let expected = self.pods().attached();
        let (answer, _) = self.ask(&Ask::Pods).await?;
        if self.pods().lose(&expected, &answer.pods) {
            self.changed.notify_one();
        }
        Ok(answer.pods)
    }
}

impl Pods {
    fn attached(&self) -> Vec<String> {
        let attached = self.by_uid.iter().filter(|(_, it)| it.is_attached);
        attached.map(|(uid, _)| uid.clone()).collect()
    }

    /// Takes down which of the `expected` pods the keeper does not have. Returns whether there is one.
    fn lose(&mut self, expected: &[String], kept: &[String]) -> bool {
        let mut has_lost = false;
        for uid in expected.iter().filter(|uid| !kept.contains(uid)) {
            if let Some(facts) = self.by_uid.get_mut(uid).filter(|it| it.is_attached) {
                tracing::warn!(
                    uid,
                    "a running pod has lost its network: connecting it again"
                );
                (facts.is_attached, facts.is_cut_off) = (false, true);
                has_lost = true;
            }
        }
        has_lost
    }
}

/// The shim of the pod with this directory, which is in the pod's network.
pub(super) fn shim_of(dir: &Path) -> Option<i32> {
    // Programs of pods may have any arguments, but have another PID namespace.
    let own = fs::read_link("/proc/self/ns/pid").ok()?;
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = processes.filter_map(|it| it.file_name().to_str()?.parse().ok());
    numbers.find(|pid: &i32| {
        let process = Path::new("/proc").join(pid.to_string());
        let arguments = fs::read(process.join("cmdline")).unwrap_or_default();
        is_shim(&arguments, dir) && fs::read_link(process.join("ns/pid")).is_ok_and(|it| it == own)
    })
}

/// Whether a process with these arguments, each of which ends with a zero, is the shim of the pod with this directory.
fn is_shim(arguments: &[u8], dir: &Path) -> bool {
    let words: Vec<&[u8]> = arguments.split(|byte| *byte == 0).collect();
    let modes = [ARG_DIE.as_bytes(), ARG_STAY.as_bytes()];
    words
        .windows(2)
        .any(|pair| pair[0] == dir.as_os_str().as_bytes() && modes.contains(&pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shim_is_known_by_its_arguments() {
        let dir = Path::new("/data/node/pods/u");
        for (arguments, expected) in [
            ("longshore-shim|/data/node/pods/u|stay|30|||", true),
            ("longshore|shim|/data/node/pods/u|die|1|", true),
            ("longshore-shim|/copy/node/pods/u|stay|30|", false),
            ("longshore-shim|/data/node/pods/u2|stay|30|", false),
            ("ls|/data/node/pods/u|", false),
            ("", false),
        ] {
            let ended = arguments.replace('|', "\0");
            assert_eq!(is_shim(ended.as_bytes(), dir), expected, "{arguments}");
        }
    }
}
