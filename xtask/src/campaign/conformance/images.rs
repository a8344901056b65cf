//! What the images of the suite stand for: there is no registry.

use std::path::Path;

use serde_json::{Value, json};

/// What a web server of the suite does: it shows one page, which items move away and back.
const WEB_SERVER: &str = "mkdir -p /usr/local/apache2/htdocs && cd /usr/local/apache2/htdocs && \
    echo '<html><body><h1>It works!</h1></body></html>' > index.html && exec python3 -m http.server 80";

/// What stands for the shell of busybox. Items ask it for `[[`, which the smallest shells do not have.
const SHELL: &str = "/bin/bash";

/// The image map, with agnhost at a path of this machine. An image without an entry is refused.
pub(super) fn map(agnhost: &Path) -> Value {
    let mount =
        |path: &str| json!({"host": agnhost.display().to_string(), "path": path, "readOnly": true});
    let mounts = json!([mount("/agnhost"), mount("/agnhost-2")]);
    json!({
        "registry.k8s.io/e2e-test-images/agnhost:*":
            {"entrypoint": ["/agnhost"], "command": ["pause"], "mounts": mounts},
        "registry.k8s.io/pause:*": {"entrypoint": ["/agnhost", "pause"], "mounts": mounts},
        "registry.k8s.io/e2e-test-images/busybox:*":
            {"command": ["sh"], "mounts": [{"host": SHELL, "path": "/bin/sh", "readOnly": true}]},
        "registry.k8s.io/e2e-test-images/httpd:*": {"entrypoint": ["/bin/sh", "-c", WEB_SERVER]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agnhost_is_where_its_image_has_it() {
        let map = map(Path::new("/cache/agnhost"));
        let agnhost = &map["registry.k8s.io/e2e-test-images/agnhost:*"];
        assert_eq!(agnhost["entrypoint"][0], agnhost["mounts"][0]["path"]);
        assert_eq!(agnhost["mounts"][0]["host"], "/cache/agnhost");
    }

    #[test]
    fn the_shell_of_busybox_knows_double_brackets() {
        let map = map(Path::new("/cache/agnhost"));
        let mount = &map["registry.k8s.io/e2e-test-images/busybox:*"]["mounts"][0];
        assert_eq!(mount["path"], "/bin/sh");
        let shell = mount["host"].as_str().unwrap();
        let script = ["-c", "[[ -r / ]]"];
        let ran = std::process::Command::new(shell).args(script).status();
        assert!(ran.unwrap().success(), "{shell}");
    }
}
