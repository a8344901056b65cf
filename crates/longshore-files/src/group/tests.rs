use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use super::*;
use crate::{
    Draft,
    lossy::{LossyDisk, LossyFile},
};

type Hook = dyn Fn(&Path) -> io::Result<()> + Send + Sync;

/// A disk on which something happens before each sync of a directory.
#[derive(Clone)]
struct Hooked {
    disk: LossyDisk,
    before_sync: Arc<Hook>,
}

impl Hooked {
    fn new(before_sync: impl Fn(&Path) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self {
            disk: LossyDisk::default(),
            before_sync: Arc::new(before_sync),
        }
    }
}

impl Disk for Hooked {
    type File = LossyFile;

    fn create(&self, path: &Path, mode: u32) -> io::Result<LossyFile> {
        self.disk.create(path, mode)
    }

    fn sync(&self, file: &LossyFile) -> io::Result<()> {
        self.disk.sync(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        (self.before_sync)(path)?;
        self.disk.sync_directory(path)
    }

    fn create_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.disk.create_directory(path, mode)
    }

    fn has_directory(&self, path: &Path) -> bool {
        self.disk.has_directory(path)
    }
}

/// A disk whose first sync of this directory waits until the lock is free, and the number of syncs that have begun.
fn held(
    directory: &'static str,
    hold: &Arc<RwLock<()>>,
) -> (GroupSync<Hooked>, LossyDisk, Arc<AtomicUsize>) {
    let n_syncs = Arc::<AtomicUsize>::default();
    let (hold, counted) = (Arc::clone(hold), Arc::clone(&n_syncs));
    let disk = Hooked::new(move |path| {
        if path == Path::new(directory) && counted.fetch_add(1, Ordering::SeqCst) == 0 {
            drop(hold.read());
        }
        Ok(())
    });
    let lossy = disk.disk.clone();
    (GroupSync::new(disk), lossy, n_syncs)
}

fn write(disk: &impl Disk, path: &str) -> io::Result<()> {
    let draft = Draft::begin_in_new_directory(disk.clone(), Path::new(path), 0o600, 0o700)?;
    draft.with(path.as_bytes())?.commit()
}

fn spawn_sync<D: Disk>(disk: &GroupSync<D>, path: &'static str) -> JoinHandle<io::Result<()>> {
    let disk = disk.clone();
    thread::spawn(move || disk.sync_directory(Path::new(path)))
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        thread::yield_now();
    }
}

/// How many calls wait for the next sync of a directory.
fn n_waiting<D: Disk>(disk: &GroupSync<D>, path: &str) -> usize {
    let directories = disk.groups.lock();
    let directory = directories.get(Path::new(path));
    let group = directory.and_then(|directory| directory.next.as_ref());
    // The table has one of them.
    group.map_or(0, |group| Arc::strong_count(group) - 1)
}

#[test]
fn calls_during_a_sync_share_the_next_one_and_no_other_directory_waits() {
    let hold = Arc::<RwLock<()>>::default();
    let (disk, _, n_syncs) = held("/a", &hold);
    let held = hold.write().unwrap();
    let first = spawn_sync(&disk, "/a");
    wait_until(|| n_syncs.load(Ordering::SeqCst) == 1);
    let others: Vec<_> = (0..20).map(|_| spawn_sync(&disk, "/a")).collect();
    wait_until(|| n_waiting(&disk, "/a") == others.len());
    disk.sync_directory(Path::new("/b")).unwrap();
    drop(held);
    for call in others.into_iter().chain([first]) {
        call.join().unwrap().unwrap();
    }
    assert_eq!(n_syncs.load(Ordering::SeqCst), 2);
    assert!(disk.groups.lock().is_empty());
}

/// A sync that has begun may have missed what was renamed during it.
#[test]
fn a_file_that_is_renamed_during_a_sync_waits_for_the_next_one() {
    let hold = Arc::<RwLock<()>>::default();
    let (disk, lossy, n_syncs) = held("/", &hold);
    let held = hold.write().unwrap();
    let first = spawn_sync(&disk, "/");
    wait_until(|| n_syncs.load(Ordering::SeqCst) == 1);
    let writes = ["/1", "/2", "/3"].map(|path| {
        let disk = disk.clone();
        thread::spawn(move || write(&disk, path))
    });
    wait_until(|| n_waiting(&disk, "/") == writes.len());
    assert!(writes.iter().all(|write| !write.is_finished()));
    drop(held);
    first.join().unwrap().unwrap();
    for write in writes {
        write.join().unwrap().unwrap();
    }
    assert_eq!(n_syncs.load(Ordering::SeqCst), 2);
    lossy.lose_power_after(0);
    lossy.restore_power();
    for path in ["/1", "/2", "/3"] {
        assert_eq!(lossy.read(Path::new(path)).unwrap(), path.as_bytes());
    }
}

#[test]
fn a_file_in_a_directory_that_another_thread_has_made_waits_for_the_sync_of_its_name() {
    let hold = Arc::<RwLock<()>>::default();
    let (disk, lossy, n_syncs) = held("/", &hold);
    let held = hold.write().unwrap();
    let spawn_write = |path: &'static str| {
        let disk = disk.clone();
        thread::spawn(move || write(&disk, path))
    };
    // This one has made /run, and hangs before the name of /run is durable.
    let first = spawn_write("/run/1");
    wait_until(|| n_syncs.load(Ordering::SeqCst) == 1);
    let second = spawn_write("/run/2");
    wait_until(|| second.is_finished() || n_waiting(&disk, "/") == 1);
    if second.is_finished() {
        // It has to be there already.
        lossy.lose_power_after(0);
        lossy.restore_power();
        assert!(lossy.read(Path::new("/run/2")).is_some());
    }
    drop(held);
    for write in [first, second] {
        write.join().unwrap().unwrap();
    }
    lossy.lose_power_after(0);
    lossy.restore_power();
    for path in ["/run/1", "/run/2"] {
        assert_eq!(lossy.read(Path::new(path)).unwrap(), path.as_bytes());
    }
    assert!(disk.groups.lock().is_empty());
}

#[test]
fn one_sync_covers_all_directories_that_were_made_before_it() {
    let n_syncs = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&n_syncs);
    let disk = Hooked::new(move |path| {
        if path == Path::new("/run") {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    });
    let lossy = disk.disk.clone();
    let disk = GroupSync::new(disk);
    let paths = ["/run/1/log", "/run/2/log", "/run/3/log"];
    let drafts = paths.map(|path| {
        let draft = Draft::begin_in_new_directory(disk.clone(), Path::new(path), 0o600, 0o700);
        draft.unwrap().with(path.as_bytes()).unwrap()
    });
    for draft in drafts {
        draft.commit().unwrap();
    }
    assert_eq!(n_syncs.load(Ordering::SeqCst), 1);
    lossy.lose_power_after(0);
    lossy.restore_power();
    for path in paths {
        assert_eq!(lossy.read(Path::new(path)).unwrap(), path.as_bytes());
    }
    assert!(disk.groups.lock().is_empty());
}

#[test]
fn a_sync_does_not_cover_a_directory_that_was_made_after_it_began() {
    let hold = Arc::<RwLock<()>>::default();
    let (disk, _, n_syncs) = held("/", &hold);
    let held = hold.write().unwrap();
    let first = spawn_sync(&disk, "/");
    wait_until(|| n_syncs.load(Ordering::SeqCst) == 1);
    let made = Path::new("/run");
    disk.create_directory(made, 0o700).unwrap();
    drop(held);
    first.join().unwrap().unwrap();
    assert_eq!(disk.has_unsynced_name(made), Some(true));
    disk.sync_directory(Path::new("/")).unwrap();
    assert_eq!(disk.has_unsynced_name(made), Some(false));
}

#[test]
fn a_sync_does_not_cover_a_directory_that_is_made_meanwhile() {
    let disk = GroupSync::new(LossyDisk::default());
    let (above, made) = (Path::new("/"), Path::new("/run"));
    disk.groups.begin_making(made);
    disk.sync_directory(above).unwrap();
    assert_eq!(disk.has_unsynced_name(made), Some(true));
    disk.groups.end_making(made);
    assert_eq!(disk.has_unsynced_name(made), Some(true));
    disk.sync_directory(above).unwrap();
    assert_eq!(disk.has_unsynced_name(made), Some(false));
}

#[test]
fn a_directory_whose_sync_failed_is_synced_by_the_next_one_that_uses_it() {
    let n_syncs = AtomicUsize::new(0);
    let disk = Hooked::new(move |path| {
        let is_first = path == Path::new("/") && n_syncs.fetch_add(1, Ordering::SeqCst) == 0;
        if is_first {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    });
    let lossy = disk.disk.clone();
    let disk = GroupSync::new(disk);
    let failed = write(&disk, "/run/1").unwrap_err();
    assert_eq!(failed.kind(), io::ErrorKind::StorageFull);
    write(&disk, "/run/2").unwrap();
    lossy.lose_power_after(0);
    lossy.restore_power();
    assert!(lossy.read(Path::new("/run/2")).is_some());
    assert!(disk.groups.lock().is_empty());
}

/// The code for a failed disk.
const EIO: i32 = 5;

#[test]
fn an_error_of_a_sync_is_returned_to_each_call_of_its_group_and_to_no_other() {
    let hold = Arc::<RwLock<()>>::default();
    let n_syncs = Arc::<AtomicUsize>::default();
    let (of_disk, counted) = (Arc::clone(&hold), Arc::clone(&n_syncs));
    let disk = GroupSync::new(Hooked::new(move |_| {
        match counted.fetch_add(1, Ordering::SeqCst) {
            0 => drop(of_disk.read()),
            1 => return Err(io::Error::from_raw_os_error(EIO)),
            _ => {}
        }
        Ok(())
    }));
    let held = hold.write().unwrap();
    let first = spawn_sync(&disk, "/a");
    wait_until(|| n_syncs.load(Ordering::SeqCst) == 1);
    let group = [(); 3].map(|()| spawn_sync(&disk, "/a"));
    wait_until(|| n_waiting(&disk, "/a") == group.len());
    drop(held);
    first.join().unwrap().unwrap();
    for call in group {
        let error = call.join().unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(EIO));
    }
    disk.sync_directory(Path::new("/a")).unwrap();
}

#[test]
fn a_leader_that_panics_fails_its_group_and_holds_no_later_one() {
    let hold = Arc::<RwLock<()>>::default();
    let n_syncs = Arc::<AtomicUsize>::default();
    let (of_disk, counted) = (Arc::clone(&hold), Arc::clone(&n_syncs));
    let disk = GroupSync::new(Hooked::new(move |_| {
        match counted.fetch_add(1, Ordering::SeqCst) {
            0 => drop(of_disk.read()),
            1 => panic!("a bug of the disk"),
            _ => {}
        }
        Ok(())
    }));
    let held = hold.write().unwrap();
    let first = spawn_sync(&disk, "/a");
    wait_until(|| n_syncs.load(Ordering::SeqCst) == 1);
    let group = [(); 3].map(|()| {
        let disk = disk.clone();
        let sync = move || disk.sync_directory(Path::new("/a"));
        thread::spawn(|| catch_unwind(AssertUnwindSafe(sync)))
    });
    wait_until(|| n_waiting(&disk, "/a") == group.len());
    drop(held);
    first.join().unwrap().unwrap();
    let results = group.map(|call| call.join().unwrap());
    let n_panics = results.iter().filter(|result| result.is_err()).count();
    assert_eq!(n_panics, 1);
    assert!(results.into_iter().flatten().all(|synced| synced.is_err()));
    disk.sync_directory(Path::new("/a")).unwrap();
}

/// Threads write files of several runs, each in a directory of its own, until the power is lost.
#[test]
fn of_many_threads_no_file_is_lost_whose_write_has_returned() {
    const PER_THREAD: usize = 4;
    for n_operations in (0..400).step_by(7) {
        let disk = Hooked::new(|_| {
            thread::yield_now();
            Ok(())
        });
        let lossy = disk.disk.clone();
        let disk = GroupSync::new(disk);
        lossy.lose_power_after(n_operations);
        let threads = [0, 1, 2, 3, 4, 5, 6, 7].map(|thread| {
            let disk = disk.clone();
            thread::spawn(move || {
                let paths = (0..PER_THREAD).map(|n| format!("/logs/run{}/{thread}/{n}", n % 2));
                let written = paths.filter(|path| write(&disk, path).is_ok());
                written.collect::<Vec<_>>()
            })
        });
        let written = threads.map(|thread| thread.join().unwrap()).concat();
        lossy.lose_power_after(0);
        lossy.restore_power();
        for path in written {
            let found = lossy.read(Path::new(&path));
            assert_eq!(found.as_deref(), Some(path.as_bytes()), "{n_operations}");
        }
    }
}
