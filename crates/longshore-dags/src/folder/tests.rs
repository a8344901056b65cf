use super::*;

const DAG: &str = "dag_id: a\nfiles: [data.csv]\ntasks: {t: {command: [x]}}\n";

fn states(files: Vec<DagFile>) -> Vec<String> {
    let word = |file: DagFile| match file.state {
        FileState::Dag(dag) => format!("{}: dag {}", file.name, dag.dag_id),
        FileState::Pools(pools) => format!("{}: pools {pools:?}", file.name),
        FileState::Broken(_) => format!("{}: broken", file.name),
        FileState::Removed => format!("{}: removed", file.name),
    };
    files.into_iter().map(word).collect()
}

#[test]
fn a_look_tells_what_is_new_since_the_last_one() {
    let root = tempfile::tempdir().unwrap();
    let file = |name: &str| root.path().join(name);
    fs::create_dir(file("sub")).unwrap();
    fs::write(file("sub/a.yaml"), DAG).unwrap();
    fs::write(file("sub/data.csv"), "1").unwrap();
    fs::write(file("broken.yml"), "dag_id: [").unwrap();
    fs::write(file(".hidden.yaml"), "dag_id: [").unwrap();
    fs::write(file("notes.txt"), "not a DAG").unwrap();
    let mut folder = DagFolder::open(root.path()).unwrap();
    assert_eq!(
        states(folder.look().unwrap()),
        ["broken.yml: broken", "sub/a.yaml: dag a"]
    );
    assert!(folder.look().unwrap().is_empty());

    // A file beside the DAG is part of it.
    fs::write(file("sub/data.csv"), "1,2").unwrap();
    assert_eq!(states(folder.look().unwrap()), ["sub/a.yaml: dag a"]);

    fs::write(file("broken.yml"), DAG.replace("data.csv", "")).unwrap();
    fs::remove_file(file("sub/a.yaml")).unwrap();
    let news = states(folder.look().unwrap());
    assert_eq!(news.last().unwrap(), "sub/a.yaml: removed");
}

#[test]
fn pools_are_read_at_the_top_of_the_folder() {
    let root = tempfile::tempdir().unwrap();
    let file = |name: &str| root.path().join(name);
    fs::create_dir(file("sub")).unwrap();
    for name in ["pools.json", "pools.yaml", "sub/pools.yaml"] {
        fs::write(file(name), r#"{"db": {"slots": 2}}"#).unwrap();
    }
    fs::write(file("sub/pools.json"), "no file of ours").unwrap();
    let mut folder = DagFolder::open(root.path()).unwrap();
    let expected = [
        r#"pools.json: pools {"db": 2}"#,
        r#"pools.yaml: pools {"db": 2}"#,
        "sub/pools.yaml: broken",
    ];
    assert_eq!(states(folder.look().unwrap()), expected);
    fs::write(file("pools.yaml"), "db: 2").unwrap();
    assert_eq!(states(folder.look().unwrap()), ["pools.yaml: broken"]);
    let dag = DAG.replace("[data.csv]", "[]");
    fs::write(file("pools.yaml"), dag).unwrap();
    assert_eq!(states(folder.look().unwrap()), ["pools.yaml: dag a"]);
}

#[test]
fn a_manifest_for_kubectl_is_no_broken_dag() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.yaml");
    fs::write(&path, DAG.replace("[data.csv]", "[]")).unwrap();
    let mut folder = DagFolder::open(root.path()).unwrap();
    assert_eq!(states(folder.look().unwrap()), ["a.yaml: dag a"]);
    fs::write(&path, "apiVersion: v1\nkind: Pod\nspec: {}\n").unwrap();
    assert_eq!(states(folder.look().unwrap()), ["a.yaml: removed"]);
}

#[test]
fn a_file_that_has_no_end_or_is_too_large_is_broken_and_not_read() {
    let root = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/zero", root.path().join("zero.yaml")).unwrap();
    let large = fs::File::create(root.path().join("large.yaml")).unwrap();
    large.set_len(1 << 40).unwrap();
    fs::write(root.path().join("a.yaml"), DAG.replace("[data.csv]", "[]")).unwrap();
    let mut folder = DagFolder::open(root.path()).unwrap();
    assert_eq!(
        states(folder.look().unwrap()),
        ["a.yaml: dag a", "large.yaml: broken", "zero.yaml: broken"]
    );
}

#[test]
fn what_changes_while_it_is_read_is_read_again() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a.yaml");
    fs::write(&path, DAG.replace("[data.csv]", "[]")).unwrap();
    let mut signature = vec![signed(path.clone())];
    fs::write(&path, "dag_id: other\ntasks: {t: {command: [x]}}\n").unwrap();
    // This reads the second text; its signature is that of the first one.
    let read = read_with("a.yaml", root.path(), &path, &mut signature);
    assert!(matches!(read, FileState::Dag(dag) if dag.dag_id == "other"));
    assert_ne!(sign(&signature), signature);
}

#[tokio::test]
async fn a_change_is_told_soon() {
    let root = tempfile::tempdir().unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let shutdown = CancellationToken::new();
    let folder = DagFolder::open(root.path()).unwrap();
    let tell = move |news| tell.send(news).unwrap();
    let following = tokio::spawn(folder.follow(tell, shutdown.clone()));
    let mut next = async || {
        let next = tokio::time::timeout(Duration::from_secs(30), told.recv());
        next.await.unwrap().unwrap()
    };
    assert!(next().await.is_empty(), "an empty folder is told");
    fs::write(root.path().join("a.yaml"), DAG.replace("[data.csv]", "[]")).unwrap();
    assert_eq!(states(next().await), ["a.yaml: dag a"]);
    shutdown.cancel();
    following.await.unwrap();
}

#[test]
fn a_folder_that_is_none_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("a.yaml");
    fs::write(&file, DAG).unwrap();
    assert!(DagFolder::open(&file).is_err());
    assert!(DagFolder::open(&root.path().join("missing")).is_err());
}

/// As Kubernetes mounts a ConfigMap: a link to a file in a hidden folder behind another link.
#[test]
fn links_stay_in_the_folder_and_the_content_of_others_is_not_shown() {
    use std::os::unix::fs::symlink;
    let place = tempfile::tempdir().unwrap();
    let dag = |id: &str| format!("dag_id: {id}\ntasks: {{t: {{command: [x]}}}}\n");
    let root = place.path().join("dags");
    fs::create_dir_all(root.join("..2026_01")).unwrap();
    fs::write(root.join("..2026_01/a.yaml"), dag("mounted")).unwrap();
    symlink("..2026_01", root.join("..data")).unwrap();
    symlink("..data/a.yaml", root.join("a.yaml")).unwrap();
    fs::write(place.path().join("secret"), "postgres://me:hunter2@db/x").unwrap();
    for name in ["pools.yaml", "x.yaml"] {
        symlink("../secret", root.join(name)).unwrap();
    }
    symlink(".", root.join("again")).unwrap();
    let news = DagFolder::open(&root).unwrap().look().unwrap();
    for file in &news {
        if let FileState::Broken(why) = &file.state {
            let expected = format!(
                "{}: cannot be read: it is a link that leads out of the DAG folder",
                file.name
            );
            assert_eq!(*why, expected);
        }
    }
    let expected = [
        "a.yaml: dag mounted",
        "pools.yaml: broken",
        "x.yaml: broken",
    ];
    assert_eq!(states(news), expected);
}

/// As git-sync does it: the folder is a link, which is replaced. The worktree before it is still there.
#[test]
fn a_folder_that_is_a_link_may_lead_to_another_one_later() {
    use std::os::unix::fs::symlink;
    let place = tempfile::tempdir().unwrap();
    let link = place.path().join("current");
    for (tree, id) in [("one", "a"), ("two", "b")] {
        let folder = place.path().join(tree);
        fs::create_dir(&folder).unwrap();
        let text = format!("dag_id: {id}\ntasks: {{t: {{command: [x]}}}}\n");
        fs::write(folder.join("a.yaml"), text).unwrap();
    }
    symlink("one", &link).unwrap();
    let mut folder = DagFolder::open(&link).unwrap();
    assert_eq!(states(folder.look().unwrap()), ["a.yaml: dag a"]);
    symlink("two", place.path().join("next")).unwrap();
    fs::rename(place.path().join("next"), &link).unwrap();
    assert_eq!(states(folder.look().unwrap()), ["a.yaml: dag b"]);
}
