//! hostPath volumes, and what their types require.

use std::{
    fs::{self, FileType},
    io,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::HostPathVolumeSource;

use crate::{private_dir, refusal::Refusal};

/// Checks the path, and makes it where the type says so.
pub(super) fn prepare(volume: &str, source: &HostPathVolumeSource) -> Result<PathBuf, Refusal> {
    let path = PathBuf::from(&source.path);
    let wanted = source.type_.as_deref().unwrap_or_default();
    let refused = |why: String| {
        Refusal::volume(format!(
            "hostPath volume {volume}: {}: {why}",
            path.display()
        ))
    };
    let made = match wanted {
        "DirectoryOrCreate" if !path.exists() => private_dir::make_readable(&path, &path),
        "FileOrCreate" if !path.exists() => make_file(&path),
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

fn make_file(path: &Path) -> io::Result<()> {
    let file = fs::File::create(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}
