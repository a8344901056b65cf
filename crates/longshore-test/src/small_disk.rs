//! A disk that is full soon: a file system in memory, in a mount namespace of its own.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The variable with the path of the disk, for the test binary that runs anew inside the namespace.
const DISK: &str = "LONGSHORE_TEST_SMALL_DISK";
/// What the inner run says when the test has held.
const HELD: &str = "held on a small disk";
/// Makes the disk, and becomes the test.
const SCRIPT: &str = r#"mount -t tmpfs -o "size=$1k,mode=777" tmpfs "$2" && shift 2 && exec "$@""#;

/// Runs `test` with a directory that holds `n_kib` KiB. `name` is the test's own path in its binary, which is started
/// anew inside a mount namespace, so that nothing stays behind whatever happens.
///
/// Where the machine allows neither mounts nor user namespaces, it prints that, and holds.
///
/// # Panics
/// The test does.
#[expect(
    clippy::disallowed_methods,
    reason = "how a test tells its own process what to do"
)]
#[expect(clippy::expect_used, reason = "it is a part of tests")]
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
pub fn on_a_small_disk(name: &str, n_kib: u32, test: impl FnOnce(&Path)) {
    if let Some(disk) = std::env::var_os(DISK) {
        test(&PathBuf::from(disk));
        println!("{HELD}");
        return;
    }
    let disk = tempfile::tempdir().expect("a directory");
    let within = |program: &Path| {
        let mut command = Command::new("unshare");
        if !is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT]);
        command.arg("small-disk").arg(n_kib.to_string());
        command.arg(disk.path()).arg(program);
        command
    };
    let trial = within(Path::new("true")).output();
    if !trial.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED {name}: this machine allows no file system in memory of our own");
        return;
    }
    let binary = std::env::current_exe().expect("a path");
    let output = within(&binary)
        .args(["--exact", name, "--nocapture"])
        .env(DISK, disk.path())
        .output()
        .expect("the test starts anew");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stdout.contains(HELD),
        "{stdout}\n{stderr}"
    );
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}
