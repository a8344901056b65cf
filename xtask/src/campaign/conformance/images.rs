//! What the images of the suite stand for: there is no registry.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

/// What a web server of the suite does: it shows one page, which items move away and back.
const WEB_SERVER: &str = "mkdir -p /usr/local/apache2/htdocs && cd /usr/local/apache2/htdocs && \
    echo '<html><body><h1>It works!</h1></body></html>' > index.html && exec python3 -m http.server 80";

/// The shell that `sh` is in containers of busybox. Items look for variables like `data-1` in what `sh -c env` prints, and
/// ask for `[[`: the shell of busybox passes on what it cannot name, and knows double brackets; dash does neither.
const SHELL: &str = "/bin/bash";

/// A program of busybox, and where this machine has it, if it does.
const SYSCTL: &str = "/bin/sysctl";
const SYSCTL_HERE: &str = "/usr/sbin/sysctl";

/// Certificate and key in the root of agnhost's image, with which it serves HTTPS.
const CERTIFICATE: &str = "localhost.crt";
const KEY: &str = "localhost.key";

/// Makes the files that images have and this machine has not, in a directory.
pub(super) fn make_files(folder: &Path) -> Result<()> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(["localhost".to_owned()])?.self_signed(&key)?;
    for (name, text) in [(CERTIFICATE, certificate.pem()), (KEY, key.serialize_pem())] {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The image map, with agnhost at a path of this machine and what [`make_files`] has made in `folder`. An image without an
/// entry is refused.
pub(super) fn map(agnhost: &Path, folder: &Path) -> Value {
    let mount = |host: &Path, path: &str| json!({"host": host.display().to_string(), "path": path, "readOnly": true});
    let mounts = json!([
        mount(agnhost, "/agnhost"),
        mount(agnhost, "/agnhost-2"),
        mount(&folder.join(CERTIFICATE), "/localhost.crt"),
        mount(&folder.join(KEY), "/localhost.key"),
    ]);
    let mut of_busybox = vec![mount(Path::new(SHELL), "/bin/sh")];
    if Path::new(SYSCTL_HERE).exists() {
        of_busybox.push(mount(Path::new(SYSCTL_HERE), SYSCTL));
    }
    json!({
        "registry.k8s.io/e2e-test-images/agnhost:*":
            {"entrypoint": ["/agnhost"], "command": ["pause"], "mounts": mounts},
        "registry.k8s.io/pause:*": {"entrypoint": ["/agnhost", "pause"], "mounts": mounts},
        "registry.k8s.io/e2e-test-images/busybox:*": {"command": ["sh"], "mounts": of_busybox},
        "registry.k8s.io/e2e-test-images/httpd:*": {"entrypoint": ["/bin/sh", "-c", WEB_SERVER]},
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    };

    use super::*;

    #[test]
    fn the_files_of_agnhost_are_where_its_image_has_them() {
        let folder = tempfile::tempdir().unwrap();
        make_files(folder.path()).unwrap();
        let map = map(Path::new("/cache/agnhost"), folder.path());
        let agnhost = &map["registry.k8s.io/e2e-test-images/agnhost:*"];
        assert_eq!(agnhost["entrypoint"][0], agnhost["mounts"][0]["path"]);
        assert_eq!(agnhost["mounts"][0]["host"], "/cache/agnhost");
        let host_path = |path: &str| {
            let mut mounts = agnhost["mounts"].as_array().unwrap().iter();
            let mount = mounts.find(|mount| mount["path"] == path).unwrap();
            mount["host"].as_str().unwrap().to_owned()
        };
        // Refused where the key is not that of the certificate.
        let certificate = CertificateDer::from_pem_file(host_path("/localhost.crt")).unwrap();
        let key = PrivateKeyDer::from_pem_file(host_path("/localhost.key")).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
    }

    #[test]
    fn the_shell_of_busybox_knows_double_brackets() {
        let map = map(Path::new("/cache/agnhost"), Path::new("/cache"));
        let mount = &map["registry.k8s.io/e2e-test-images/busybox:*"]["mounts"][0];
        assert_eq!(mount["path"], "/bin/sh");
        let shell = mount["host"].as_str().unwrap();
        let script = ["-c", "[[ -r / ]]"];
        let ran = std::process::Command::new(shell).args(script).status();
        assert!(ran.unwrap().success(), "{shell}");
    }
}
