use std::{collections::BTreeSet, fs};

use tokio::sync::mpsc;

use super::*;
use crate::{IgnoreSyntax, Limits};

/// What was reported: the paths that were added, changed, removed; or why nothing could be listed.
#[derive(Debug, PartialEq)]
enum Report {
    Found([Vec<String>; 3]),
    Failed,
}

fn found(added: &[&str], changed: &[&str], removed: &[&str]) -> Report {
    Report::Found([added, changed, removed].map(|paths| {
        let paths = paths.iter().map(|path| (*path).to_owned());
        paths.collect()
    }))
}

struct Followed {
    reports: mpsc::UnboundedReceiver<Report>,
    shutdown: CancellationToken,
    following: tokio::task::JoinHandle<()>,
}

impl Followed {
    fn of(root: &Path) -> Self {
        let (sender, reports) = mpsc::unbounded_channel();
        let report = move |look: Result<Look, ScanError>| {
            let list = |set: &BTreeSet<String>| set.iter().cloned().collect();
            let report = look.map_or(Report::Failed, |look| {
                let diff = look.diff;
                Report::Found([list(&diff.added), list(&diff.changed), list(&diff.removed)])
            });
            sender.send(report).unwrap();
            std::future::ready(())
        };
        // An hour: what is seen in the test, a notification has told.
        let pace = Pace {
            rescan_interval: Duration::from_secs(3_600),
            settle_time: Duration::from_millis(20),
        };
        let scanner = Scanner::new(root, IgnoreSyntax::Glob, Limits::default());
        let shutdown = CancellationToken::new();
        let folder = LocalFolder::new(scanner, pace);
        let following = folder.follow(|| Timestamp::MIN, report, shutdown.clone());
        Self {
            reports,
            shutdown,
            following: tokio::spawn(following),
        }
    }

    async fn next(&mut self) -> Report {
        let next = tokio::time::timeout(Duration::from_secs(30), self.reports.recv());
        next.await.expect("a report in 30 s").unwrap()
    }
}

/// Puts a whole file in place in one step. The draft is made where nobody looks.
fn put(path: &Path, text: &str) {
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    fs::write(elsewhere.path(), text).unwrap();
    let draft = elsewhere.into_temp_path().keep().unwrap();
    longshore_files::Disk::rename(&longshore_files::System, &draft, path).unwrap();
}

#[tokio::test]
async fn a_folder_is_followed_through_all_that_happens_to_it() {
    let parent = tempfile::tempdir().unwrap();
    let parent = parent.path().canonicalize().unwrap();
    let root = parent.join("dags");
    let mut followed = Followed::of(&root);
    assert_eq!(followed.next().await, Report::Failed);
    for version in ["v1", "v2"] {
        let folder = parent.join(version).join("sub");
        fs::create_dir_all(&folder).unwrap();
        put(&folder.join("a.py"), version);
        put(&folder.join("b.py"), "b");
    }
    longshore_files::replace_link(&root, Path::new("v1")).unwrap();
    assert_eq!(
        followed.next().await,
        found(&["sub/a.py", "sub/b.py"], &[], &[])
    );
    longshore_files::replace_link(&root, Path::new("v2")).unwrap();
    assert_eq!(followed.next().await, found(&[], &["sub/a.py"], &[]));
    put(&parent.join("v2/sub/b.py"), "c");
    assert_eq!(followed.next().await, found(&[], &["sub/b.py"], &[]));
    fs::remove_file(parent.join("v2/sub/b.py")).unwrap();
    assert_eq!(followed.next().await, found(&[], &[], &["sub/b.py"]));
    fs::remove_file(&root).unwrap();
    assert_eq!(followed.next().await, Report::Failed);
    longshore_files::replace_link(&root, Path::new("v2")).unwrap();
    assert_eq!(followed.next().await, found(&[], &[], &[]));
    followed.shutdown.cancel();
    followed.following.await.unwrap();
}
