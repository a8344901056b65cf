//! Pods that look for a way out of their containers, with what a pod may say: each ends where it began.

use std::{
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use longshore_node::{
    LogOptions, NodeConfig, PodsLifetime, Profile,
    shim::protocol::{MountSpec, Origin, Sandbox},
};
use serde_json::{Value, json};

use crate::{
    node_rig::{Rig, RunningNode, script},
    shim_rig,
};

/// The profiles with mounts that this machine allows.
fn profiles() -> Vec<Profile> {
    let available = shim_rig::Profile::available().into_iter();
    let profiles = available.filter_map(|it| match it {
        shim_rig::Profile::Full => Some(Profile::Full),
        shim_rig::Profile::User => Some(Profile::User),
        shim_rig::Profile::None => None,
    });
    profiles.collect()
}

async fn node(rig: &Rig, profile: Profile) -> RunningNode {
    rig.start_with(NodeConfig {
        profile: Some(profile),
        ..rig.config(PodsLifetime::DieWithNode)
    })
    .await
}

/// What of the rig's directory could be the work of a pod.
fn is_made(rig: &Rig) -> bool {
    rig.path().join("made").exists() || rig.path().join("made-file").exists()
}

fn has_ended(status: &Value) -> bool {
    status["phase"] == "Succeeded" || status["phase"] == "Failed"
}

/// Where a container could find the host's tree while it is built, but for the links of an init to its open files.
fn ways_to_the_host() -> Vec<String> {
    let by_number = (3..8).map(|n| format!("/proc/self/fd/{n}"));
    let by_init = (3..8).map(|n| format!("/proc/1/fd/{n}"));
    let named = ["/dev/.longshore-old", "/proc/1/root", "/proc/self/cwd"].map(String::from);
    named.into_iter().chain(by_number).chain(by_init).collect()
}

#[tokio::test]
async fn no_path_that_a_pod_names_makes_anything_on_the_machine() {
    for profile in profiles() {
        let rig = Rig::new();
        let node = node(&rig, profile).await;
        let dir = rig.path().display().to_string();
        for (n, way) in ways_to_the_host().into_iter().enumerate() {
            for (kind, name) in [("mount", "made"), ("message", "made-file"), ("dir", "made")] {
                let mut spec = script("true");
                let path = format!("{way}{dir}/{name}");
                spec["volumes"] = json!([{"name": "e", "emptyDir": {}}]);
                let container = &mut spec["containers"][0];
                match kind {
                    "mount" => {
                        container["volumeMounts"] = json!([{"name": "e", "mountPath": path}]);
                    }
                    "message" => container["terminationMessagePath"] = json!(path),
                    _ => container["workingDir"] = json!(path),
                }
                rig.run(&format!("{kind}-{n}"), spec).await;
            }
        }
        for n in 0..ways_to_the_host().len() {
            for kind in ["mount", "message", "dir"] {
                rig.until(&format!("{kind}-{n}"), "the end", has_ended)
                    .await;
                assert!(!is_made(&rig), "{profile:?} {kind}-{n}");
            }
        }
        node.stop().await;
    }
}

/// One mount makes a link of an earlier container reachable, which leads the next one to the host.
#[tokio::test]
async fn links_between_volumes_show_nothing_of_the_machine() {
    for profile in profiles() {
        let rig = Rig::new();
        let node = node(&rig, profile).await;
        std::fs::write(rig.path().join("secret"), "").expect("a file");
        for (n, way) in ways_to_the_host().into_iter().enumerate() {
            let dir = rig.path().display();
            let links =
                format!("ln -s {way}{dir}/node/pods/$POD_UID/volumes /a/x; ln -s {way}{dir} /b/cc");
            let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
            let mut spec = script("find /z /a; cat /z/z/z/secret && echo out");
            spec["volumes"] = ["a", "b", "cc"]
                .map(|name| json!({"name": name, "emptyDir": {}}))
                .into();
            spec["initContainers"] = json!([{
                "name": "links", "image": "any", "command": ["sh", "-c", links],
                "env": [{"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
                "volumeMounts": [mount("a", "/a"), mount("b", "/b")],
            }]);
            spec["containers"][0]["volumeMounts"] =
                json!([mount("a", "/a"), mount("b", "/a/x"), mount("cc", "/z/z/z")]);
            rig.run(&format!("links-{n}"), spec).await;
        }
        for n in 0..ways_to_the_host().len() {
            let name = format!("links-{n}");
            let status = rig.until(&name, "the end", has_ended).await;
            assert_eq!(status["phase"], "Failed", "{profile:?}: {status:#}");
            let told = status["containerStatuses"][0]["state"]["terminated"]["reason"].clone();
            if told != "StartError" {
                let options = LogOptions::default();
                let log = node.log_of(&name, Some("main"), options).await;
                let has_secret = log.contains("/secret\n") || log.contains("out\n");
                assert!(!has_secret, "{profile:?} {n}: {log}");
            }
        }
        node.stop().await;
    }
}

#[test]
fn a_device_that_a_program_makes_opens_nowhere() {
    if !shim_rig::Profile::available().contains(&shim_rig::Profile::Full) {
        return;
    }
    let mut rig = shim_rig::Rig::start(shim_rig::Profile::Full, "stay");
    let volume = rig.path().join("volume");
    let sub_path = volume.join("sub");
    std::fs::create_dir_all(&sub_path).expect("a volume");
    let script = "\
        for dir in / /tmp /var/tmp /run /home /dev /dev/shm /etc /volume /sub; do \
        mknod $dir/own c 1 5 2>/dev/null; \
        n=$(head -c 1 $dir/own 2>/dev/null | wc -c); test $n = 0 || echo opened $dir; done; \
        head -c 2 /dev/zero | wc -c; chmod 600 /dev/null 2>/dev/null || echo kept";
    let mut spec = rig.shell(script);
    if let Sandbox::Full(root) | Sandbox::User(root) = &mut spec.sandbox {
        for (target, source, within) in [
            ("/volume", volume.clone(), None),
            ("/sub", sub_path, Some(volume)),
        ] {
            root.mounts.push(MountSpec {
                origin: Origin::Node,
                within,
                source,
                target: target.into(),
                read_only: false,
            });
        }
    }
    let exit = rig.run_to_end(spec);
    assert_eq!(rig.output(), "2\nkept", "{}", exit.message);
}

/// As images have at `/etc/resolv.conf`: the file is made where the link leads, inside of the container.
#[test]
fn a_link_to_what_is_missing_is_a_place_for_a_mount() {
    for profile in shim_rig::Profile::available() {
        for (link, code, output) in [("../run/ls-a/b", 0, "names"), ("link", 128, "")] {
            if profile == shim_rig::Profile::None {
                continue;
            }
            let mut rig = shim_rig::Rig::start(profile, "stay");
            let (volume, file) = (rig.path().join("volume"), rig.path().join("file"));
            std::fs::create_dir(&volume).expect("a volume");
            std::fs::write(&file, "names").expect("a file");
            symlink(link, volume.join("link")).expect("a link");
            let mut spec = rig.shell("cat /volume/link && cmp /volume/link /run/ls-a/b");
            if let Sandbox::Full(root) | Sandbox::User(root) = &mut spec.sandbox {
                for (source, target) in [(volume, "/volume"), (file, "/volume/link")] {
                    root.mounts.push(MountSpec {
                        origin: Origin::Node,
                        within: None,
                        source,
                        target: target.into(),
                        read_only: false,
                    });
                }
            }
            let exit = rig.run_to_end(spec);
            assert_eq!(exit.code, code, "{profile:?} {link}: {}", exit.message);
            assert_eq!(rig.output(), output, "{profile:?} {link}");
            assert!(!Path::new("/run/ls-a").exists());
        }
    }
}

#[test]
fn a_program_changes_nothing_of_the_kernel_and_reads_nothing_of_other_programs() {
    for profile in shim_rig::Profile::available() {
        if profile == shim_rig::Profile::None {
            continue;
        }
        let mut rig = shim_rig::Rig::start(profile, "stay");
        // Nothing is written: that a file opens for writing is enough.
        let script = "\
            for file in sys/kernel/core_pattern sys/vm/swappiness sysrq-trigger irq/default_smp_affinity; do \
            (exec 3>>/proc/$file) 2>/dev/null && echo open $file; done; \
            for dir in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/memory; do \
            mkdir $dir/longshore-x 2>/dev/null && echo made $dir && rmdir $dir/longshore-x; done; \
            for file in kcore keys timer_list interrupts sched_debug latency_stats; do \
            n=$(head -c 1 /proc/$file 2>/dev/null | wc -c); test $n = 0 || echo read $file; done; \
            ls -A /sys/firmware /proc/acpi /proc/scsi 2>/dev/null | grep -v : | grep .; \
            echo x > /proc/self/comm && cat /proc/sys/kernel/ostype";
        let spec = rig.shell(script);
        let exit = rig.run_to_end(spec);
        assert_eq!(rig.output(), "Linux", "{profile:?}: {}", exit.message);
    }
}

#[tokio::test]
async fn a_pod_in_the_network_of_the_machine_has_raw_sockets_only_where_it_names_them() {
    if !profiles().contains(&Profile::Full) {
        return;
    }
    let rig = Rig::new();
    let node = node(&rig, Profile::Full).await;
    let program = "cap=$(grep CapBnd /proc/self/status | cut -f 2); echo $(( (0x$cap >> 13) & 1 ))";
    for (name, security, expected) in [
        ("silent", json!({}), "0\n"),
        ("drops", json!({"capabilities": {"drop": ["CHOWN"]}}), "0\n"),
        (
            "names",
            json!({"capabilities": {"add": ["NET_RAW"]}}),
            "1\n",
        ),
    ] {
        let mut spec = script(&program.replace("$(", "$$("));
        spec["containers"][0]["securityContext"] = security;
        rig.run(name, spec).await;
        rig.until_phase(name, "Succeeded").await;
        let log = node.log(name, LogOptions::default()).await;
        assert_eq!(log, expected, "{name}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_link_in_a_volume_makes_no_directory_elsewhere() {
    let rig = Rig::new();
    let node = rig.start().await;
    if !node.has_mounts() {
        return;
    }
    rig.create::<PersistentVolumeClaim>(json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }))
    .await;
    let with_claim = |program: &str, sub_path: &str| {
        let mut spec = script(program);
        spec["volumes"] =
            json!([{"name": "claim", "persistentVolumeClaim": {"claimName": "data"}}]);
        spec["containers"][0]["volumeMounts"] =
            json!([{"name": "claim", "mountPath": "/claim", "subPath": sub_path}]);
        spec
    };
    let dir = rig.path().display();
    let links = format!(
        "ln -s {dir} /claim/out; mkdir /claim/real; ln -s real /claim/in; ln -s no /claim/no"
    );
    rig.run("links", with_claim(&links, "")).await;
    rig.until_phase("links", "Succeeded").await;
    for (name, sub_path) in [("out", "out/made"), ("no", "no/made")] {
        rig.run(name, with_claim("true", sub_path)).await;
        let status = rig
            .until(name, "refused", |status| {
                let waiting = &status["containerStatuses"][0]["state"]["waiting"];
                waiting["reason"] == "CreateContainerConfigError"
            })
            .await;
        let message = &status["containerStatuses"][0]["state"]["waiting"]["message"];
        assert!(message.to_string().contains("subPath"), "{message}");
    }
    assert!(!is_made(&rig));
    // A link inside of the volume is followed, and what is made has the mode of the volume.
    rig.run("in", with_claim("stat -c %a /claim", "in/deep/er"))
        .await;
    rig.until_phase("in", "Succeeded").await;
    assert_eq!(node.log("in", LogOptions::default()).await, "777\n");
    node.stop().await;
}

#[tokio::test]
async fn a_host_path_shows_nothing_of_what_is_hidden() {
    for profile in profiles() {
        let rig = Rig::new();
        let node = node(&rig, profile).await;
        std::fs::write(rig.path().join("node/token"), "secret").expect("a file");
        std::fs::write(rig.path().join("beside"), "").expect("a file");
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(rig.path(), open).expect("its mode");
        symlink("node", rig.path().join("link")).expect("a link");
        let at = |path: &Path, sub_path: &str| {
            let mut spec = script("ls /h; echo; ls -A /h/node /h/*/node 2>/dev/null | grep token");
            spec["volumes"] = json!([{"name": "h", "hostPath": {"path": path}}]);
            spec["containers"][0]["volumeMounts"] =
                json!([{"name": "h", "mountPath": "/h", "subPath": sub_path}]);
            spec
        };
        rig.run("above", at(rig.path(), "")).await;
        let parent = rig.path().parent().expect("a parent");
        let name = rig.path().file_name().expect("a name");
        rig.run("far", at(parent, &name.to_string_lossy())).await;
        for pod in ["above", "far"] {
            rig.until(pod, "the end", has_ended).await;
            let log = node.log(pod, LogOptions::default()).await;
            assert_eq!(log, "beside\nlink\nnode\n\n", "{profile:?} {pod}");
        }
        for (pod, path) in [("at", "node"), ("below", "node/token"), ("behind", "link")] {
            rig.run(pod, at(&rig.path().join(path), "")).await;
            let status = rig
                .until(pod, "refused", |status| {
                    !status["containerStatuses"][0]["state"]["waiting"]["message"].is_null()
                })
                .await;
            let why = status["containerStatuses"][0]["state"]["waiting"]["message"].to_string();
            assert!(
                why.contains("keeps its own files"),
                "{profile:?} {pod}: {why}"
            );
        }
        // A subPath leads there only when the shim looks.
        rig.run("deep", at(rig.path(), "node/pods")).await;
        let status = rig.until("deep", "the end", has_ended).await;
        let why = status["containerStatuses"][0]["state"]["terminated"]["message"].to_string();
        assert!(why.contains("no pod may see"), "{profile:?}: {why}");
        node.stop().await;
    }
}
