//! hostPath volumes, and what their types require.

use std::{
    fs::{self, FileType, Permissions},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{FileTypeExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::HostPathVolumeSource;
use nix::errno::Errno;

use crate::{
    beneath::{self, Kind},
    refusal::Refusal,
};

/// Checks the path, and makes it where the type says so. What no pod may see is refused; of a directory further up, the
/// shim hides it.
pub(super) fn prepare(
    volume: &str,
    source: &HostPathVolumeSource,
    hidden: &[PathBuf],
) -> Result<PathBuf, Refusal> {
    let path = PathBuf::from(&source.path);
    let wanted = source.type_.as_deref().unwrap_or_default();
    let refused = |why: String| {
        Refusal::volume(format!(
            "hostPath volume {volume}: {}: {why}",
            path.display()
        ))
    };
    let place = Place::of(&path).map_err(|e| refused(e.to_string()))?;
    if let Some(secret) = place.is_in(hidden) {
        return Err(refused(format!(
            "expected a path outside of {}, where this node keeps its own files: use another directory",
            secret.display()
        )));
    }
    let made = match wanted {
        "DirectoryOrCreate" => place.make(Kind::Directory, 0o755),
        "FileOrCreate" => place.make(Kind::File, 0o644),
        _ => Ok(()),
    };
    made.map_err(|e| refused(e.to_string()))?;
    let kind = fs::metadata(&path)
        .map_err(|e| refused(e.to_string()))?
        .file_type();
    let fits: fn(&FileType) -> bool = match wanted {
        "" => |_| true,
        "Directory" | "DirectoryOrCreate" => FileType::is_dir,
        "File" | "FileOrCreate" => FileType::is_file,
        "Socket" => FileTypeExt::is_socket,
        "CharDevice" => FileTypeExt::is_char_device,
        "BlockDevice" => FileTypeExt::is_block_device,
        other => {
            return Err(Refusal::pod(format!(
                "hostPath volume {volume}: unknown type {other}"
            )));
        }
    };
    if fits(&kind) {
        Ok(path)
    } else {
        Err(refused(format!("is not of the type {wanted}")))
    }
}

/// Where a path leads.
struct Place<'a> {
    /// The deepest directory on the way that exists.
    open: OwnedFd,
    /// Where that is, whatever links led to it.
    real: PathBuf,
    missing: &'a Path,
}

impl<'a> Place<'a> {
    fn of(path: &'a Path) -> io::Result<Self> {
        let root: OwnedFd = fs::File::open("/")?.into();
        let (open, missing) = beneath::deepest(&root, path)?;
        Ok(Self {
            real: fs::read_link(by_number(&open))?,
            open,
            missing,
        })
    }

    /// Which of these directories and files it is or is in.
    fn is_in<'b>(&self, hidden: &'b [PathBuf]) -> Option<&'b PathBuf> {
        let whole = self.real.join(self.missing);
        hidden.iter().find(|it| {
            let real = fs::canonicalize(it).unwrap_or_else(|_| (*it).clone());
            whole.starts_with(real)
        })
    }

    /// Makes what is missing. As on Kubernetes, the directory of a file must exist.
    fn make(&self, kind: Kind, mode: u32) -> io::Result<()> {
        let n_missing = self.missing.components().count();
        if n_missing == 0 {
            return Ok(());
        }
        if kind == Kind::File && n_missing > 1 {
            return Err(Errno::ENOENT.into());
        }
        let made = beneath::create(&self.open, self.missing, kind)?;
        // Whatever the umask of the node is.
        fs::set_permissions(by_number(&made), Permissions::from_mode(mode))
    }
}

fn by_number(file: &OwnedFd) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn prepared(path: &Path, kind: &str, hidden: &[PathBuf]) -> Result<PathBuf, String> {
        let source = HostPathVolumeSource {
            path: path.display().to_string(),
            type_: Some(kind.into()),
        };
        prepare("data", &source, hidden).map_err(|refusal| refusal.message)
    }

    #[test]
    fn what_no_pod_may_see_is_refused_by_any_name_and_nothing_is_made_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("state");
        fs::create_dir(&secret).unwrap();
        fs::write(secret.join("token"), "").unwrap();
        symlink(&secret, dir.path().join("link")).unwrap();
        let hidden = [dir.path().join("link")];
        for (path, kind) in [
            ("state", ""),
            ("link", "Directory"),
            ("state/token", "File"),
            ("link/token", ""),
            ("link/new", "DirectoryOrCreate"),
            ("state/new", "FileOrCreate"),
        ] {
            let why = prepared(&dir.path().join(path), kind, &hidden).unwrap_err();
            assert!(why.contains("use another directory"), "{path}: {why}");
        }
        assert!(!secret.join("new").exists());
        // What is beside or above is none of it.
        for (path, kind) in [
            ("", "Directory"),
            ("state-of-others/deep", "DirectoryOrCreate"),
            ("file", "FileOrCreate"),
        ] {
            prepared(&dir.path().join(path), kind, &hidden).unwrap();
        }
        let mode = |name: &str| {
            fs::metadata(dir.path().join(name))
                .unwrap()
                .permissions()
                .mode()
        };
        assert_eq!(mode("state-of-others/deep") & 0o777, 0o755);
        assert_eq!(mode("file") & 0o777, 0o644);
        prepared(&dir.path().join("no/file"), "FileOrCreate", &hidden).unwrap_err();
    }
}
