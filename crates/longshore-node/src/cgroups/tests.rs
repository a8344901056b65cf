//! Directories with the files of cgroups stand for cgroups.

use serde_json::{from_value, json};

use super::*;

const LIMIT: Option<NonZeroU64> = NonZeroU64::new(64);

fn cgroup(dir: &Path, controllers: &str) {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join(CONTROLLERS), controllers).unwrap();
    fs::write(dir.join(SUBTREE), "cpu").unwrap();
}

fn container(limits: serde_json::Value) -> Container {
    from_value(json!({"name": "main", "resources": {"limits": limits}})).unwrap()
}

#[test]
fn root_takes_the_top_and_others_their_own() {
    let top = tempfile::tempdir().unwrap();
    let own = top.path().join("user.slice/own.scope");
    cgroup(top.path(), "cpu memory pids\n");
    cgroup(&own, "memory\n");
    let line = "3:cpu:/x\n0::/user.slice/own.scope\n";
    for (is_root, base, given, counts) in [
        (true, top.path(), "+memory +pids", true),
        (false, own.as_path(), "+memory", false),
    ] {
        let found = Cgroups::find_below(top.path(), line, is_root, LIMIT);
        assert_eq!(found.memory.as_deref(), Some(base));
        assert_eq!(found.limits_processes(), counts);
        let subtree = fs::read_to_string(base.join(SUBTREE)).unwrap();
        assert_eq!(subtree, given);
    }
    let off = Cgroups::find_below(top.path(), line, true, None);
    assert!(off.limits_memory() && !off.limits_processes());
}

#[test]
fn where_limits_cannot_be_set_it_is_said_why() {
    let top = tempfile::tempdir().unwrap();
    let found = |line: &str| Base::find(top.path(), line, false, &[MEMORY, PIDS]).unwrap_err();
    assert!(found("0::/own\n").contains("no hierarchy of cgroups of version 2"));
    cgroup(top.path(), "cpu memory\n");
    assert!(found("3:memory:/own\n").contains("in no cgroup of version 2"));
    cgroup(&top.path().join("own"), "cpu\n");
    let why = found("0::/own\n");
    assert!(
        why.contains("Delegate=yes") && why.contains("memory controller"),
        "{why}"
    );
    let why = pids_of_version_one(top.path(), "8:pids:/\n").unwrap_err();
    assert!(why.contains("no pids controller of version 1"), "{why}");
}

#[test]
fn processes_are_counted_in_version_one_where_version_two_does_not_count_them() {
    let top = tempfile::tempdir().unwrap();
    let own = top.path().join("pids/system.slice/own.service");
    fs::create_dir_all(&own).unwrap();
    let found = || {
        Cgroups::find_below(
            top.path(),
            "8:pids:/system.slice/own.service\n",
            true,
            LIMIT,
        )
    };
    assert!(!found().limits_processes());
    for dir in [&top.path().join("pids"), &own] {
        fs::write(dir.join("tasks"), "").unwrap();
        assert_eq!(&found().processes.unwrap().base, dir);
    }
    let cgroups = found();
    cgroups.prepare("u").unwrap();
    let pod = own.join("longshore-u");
    assert_eq!(fs::read_to_string(pod.join("pids.max")).unwrap(), "64");
    let processes = cgroups.processes("u", None).unwrap();
    assert_eq!((&processes.pod, &processes.cgroup), (&pod, &pod));
}

#[test]
fn a_limit_has_a_cgroup_of_its_container() {
    let cgroups = Cgroups {
        memory: Some("/c".into()),
        processes: None,
    };
    for (limits, expected) in [
        (json!({"memory": "1Ki"}), Some(1024)),
        (json!({"memory": "100m"}), Some(1)),
        (json!({"cpu": "1"}), None),
        (json!({"memory": "0"}), None),
        (json!({"memory": "much"}), None),
    ] {
        let limit = cgroups.limit("u", &container(limits.clone()));
        assert_eq!(limit.as_ref().map(|it| it.limit), expected, "{limits}");
        let at = limit.map(|it| it.cgroup);
        assert_eq!(at, expected.map(|_| "/c/longshore-u-main".into()));
    }
    assert_eq!(cgroups.processes("u", None), None);
}

#[test]
fn in_version_two_all_containers_of_a_pod_are_below_its_cgroup() {
    let top = tempfile::tempdir().unwrap();
    cgroup(top.path(), "memory pids\n");
    let cgroups = Cgroups::find_below(top.path(), "0::/\n", true, LIMIT);
    cgroups.prepare("u").unwrap();
    cgroups.prepare("u").unwrap();
    let pod = top.path().join("longshore-u");
    let read = |file| fs::read_to_string(pod.join(file)).unwrap();
    assert_eq!(
        (read("pids.max"), read(SUBTREE)),
        ("64".into(), "+memory".into())
    );
    let memory = cgroups.limit("u", &container(json!({"memory": "1Ki"})));
    for (memory, name) in [(memory, "main"), (None, OTHERS)] {
        let processes = cgroups.processes("u", memory.as_ref()).unwrap();
        assert_eq!((&processes.pod, processes.cgroup), (&pod, pod.join(name)));
        assert!(memory.is_none_or(|memory| memory.cgroup == pod.join(name)));
    }
}

#[test]
fn a_cgroup_that_was_left_is_removed_and_one_in_use_stays() {
    let base = tempfile::tempdir().unwrap();
    let cgroups = Cgroups {
        memory: Some(base.path().to_owned()),
        processes: Some(Processes {
            base: base.path().to_owned(),
            version: Version::Two,
            limit: LIMIT.unwrap(),
        }),
    };
    let [left, used] = ["left", "used"].map(|name| alone(base.path(), "u", name));
    fs::create_dir_all(&left).unwrap();
    fs::create_dir_all(used.join("child")).unwrap();
    let [pod, busy] = ["u", "busy"].map(|uid| base.path().join(format!("longshore-{uid}")));
    fs::create_dir_all(pod.join(OTHERS)).unwrap();
    fs::create_dir_all(busy.join(OTHERS).join("child")).unwrap();
    cgroups.forget("u", ["left", "used", "none"]);
    cgroups.forget("busy", []);
    assert!(!left.exists() && used.exists());
    assert!(!pod.exists() && busy.exists());
}
