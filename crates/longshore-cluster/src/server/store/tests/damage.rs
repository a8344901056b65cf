//! Files that are not what was written, and directories that cannot be used.

use std::{fs, path::Path};

use redb::{Database, TableDefinition};
use tempfile::TempDir;

use super::{Writes, fold};
use crate::server::{
    random::Random,
    store::{Durability, FileStore, Loaded, OpenError, Store},
};

/// A closed store with some objects and events.
fn filled() -> (TempDir, Writes) {
    let directory = tempfile::tempdir().unwrap();
    let mut store = FileStore::open(directory.path(), Durability::Strict, 50).unwrap();
    store.load().unwrap();
    let mut writes = Writes::default();
    for n in 0..80 {
        let key = format!("a/{}", n % 20);
        let record = writes.next("core/pods", &key, (n % 7 != 6).then_some(n * 10));
        store.append(&[record]).unwrap();
    }
    store.close(writes.revision).unwrap();
    (directory, writes)
}

fn load(directory: &Path) -> Result<Loaded, OpenError> {
    FileStore::open(directory, Durability::Strict, 50)?.load()
}

fn file(directory: &TempDir) -> std::path::PathBuf {
    directory.path().join("cluster.redb")
}

#[test]
fn a_changed_byte_is_refused_or_harmless() {
    let (directory, writes) = filled();
    let whole = fs::read(file(&directory)).unwrap();
    let expected = fold(&writes.records, Some(50)).shelves;
    let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    let random = Random::seeded(7);
    let mut n_refused = 0;
    let header = 0..64;
    let scattered = (0..150).map(|_| used[random.next() as usize % used.len()]);
    for at in header.chain(scattered) {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (random.next() % 8);
        fs::write(file(&directory), changed).unwrap();
        match load(directory.path()) {
            Ok(loaded) => assert_eq!(loaded.shelves, expected, "byte {at} was taken for true"),
            Err(OpenError::Damaged { what, .. }) => {
                assert!(!what.is_empty());
                n_refused += 1;
            }
            Err(error) => panic!("byte {at}: {error:?}"),
        }
    }
    assert!(n_refused > 20, "only {n_refused} were noticed");
}

#[test]
fn a_changed_row_is_named() {
    let (directory, _) = filled();
    let mut content = fs::read(file(&directory)).unwrap();
    let needle = b"core/podsa/3";
    let places = content.windows(needle.len()).enumerate();
    let places: Vec<usize> = places
        .filter(|(_, it)| it == needle)
        .map(|(at, _)| at)
        .collect();
    for at in places {
        content[at + needle.len() - 1] = b'?';
    }
    fs::write(file(&directory), content).unwrap();
    let error = load(directory.path()).unwrap_err().to_string();
    assert!(
        error.contains("core/pods") && error.contains("a/?"),
        "{error}"
    );
}

#[test]
fn a_truncated_file_is_refused() {
    let (directory, _) = filled();
    let whole = fs::read(file(&directory)).unwrap();
    for length in [0, 1, 100, 4096, 5000, whole.len() / 2, whole.len() - 1] {
        fs::write(file(&directory), &whole[..length]).unwrap();
        let error = load(directory.path()).unwrap_err();
        assert!(
            matches!(error, OpenError::Damaged { .. }),
            "{length} bytes: {error:?}"
        );
    }
}

#[test]
fn another_kind_of_file_is_refused() {
    let (directory, _) = filled();
    fs::write(file(&directory), "objects: []\n".repeat(1000)).unwrap();
    assert!(matches!(
        load(directory.path()),
        Err(OpenError::Damaged { .. })
    ));
    fs::remove_file(file(&directory)).unwrap();
    let foreign = Database::create(file(&directory)).unwrap();
    let transaction = foreign.begin_write().unwrap();
    transaction
        .open_table(TableDefinition::<u64, u64>::new("birds"))
        .unwrap();
    transaction.commit().unwrap();
    drop(foreign);
    assert!(matches!(
        load(directory.path()),
        Err(OpenError::Damaged { .. })
    ));
}

#[test]
fn a_newer_format_is_refused_with_both_numbers() {
    let (directory, _) = filled();
    let database = Database::open(file(&directory)).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction
        .open_table(TableDefinition::<&str, u64>::new("meta"))
        .unwrap()
        .insert("format", 9)
        .unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = load(directory.path()).unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::NewerFormat {
                found: 9,
                supported: 1,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn a_store_is_open_once() {
    let (directory, _) = filled();
    let store = FileStore::open(directory.path(), Durability::Strict, 50).unwrap();
    let error = load(directory.path()).unwrap_err();
    let expected = format!("in use by process {}", std::process::id());
    assert!(error.to_string().contains(&expected), "{error}");
    drop(store);
    load(directory.path()).unwrap();
}

#[test]
fn a_place_that_is_no_directory_is_refused() {
    let (directory, _) = filled();
    let error = load(&file(&directory).join("below")).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error:?}");
    let error = load(&file(&directory)).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error:?}");
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_objects() {
    use std::os::unix::fs::PermissionsExt;
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("new");
    load(&directory).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join("cluster.redb")), 0o600);
}
