//! Which pools the files of the DAG folder name, and what follows from that. Pure.

use std::{collections::BTreeMap, sync::Arc};

use longshore_store::{Pool, PoolFile};

use super::Catalog;
use crate::{document::POOL_FILES, folder::FileState};

/// What the DAG folder says about pools.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FolderPools {
    /// Nothing that can be used: the folder was not looked at yet, or a file with pools is broken.
    Unreadable,
    /// No file names pools.
    Absent,
    /// The slots of pools by name.
    Named {
        file: String,
        slots: Arc<BTreeMap<String, i64>>,
    },
}

/// A change of the pools.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PoolChange {
    Set(Pool),
    Delete(String),
}

impl Catalog {
    /// The file of pools that counts.
    pub(super) fn pools_file(&self) -> Option<&str> {
        let mut files = self.files.as_ref()?.iter();
        let found = files.find(|(_, read)| matches!(read.state, FileState::Pools(_)));
        found.map(|(name, _)| name.as_str())
    }

    /// What the folder says about pools. While one of the files is broken, it says nothing: the pools stay as they are.
    pub(crate) fn folder_pools(&self) -> FolderPools {
        let Some(files) = &self.files else {
            return FolderPools::Unreadable;
        };
        let mut found = FolderPools::Absent;
        for (name, read) in POOL_FILES
            .iter()
            .filter_map(|name| files.get_key_value(*name))
        {
            match &read.state {
                FileState::Broken(_) => return FolderPools::Unreadable,
                FileState::Pools(slots) if found == FolderPools::Absent => {
                    found = FolderPools::Named {
                        file: name.clone(),
                        slots: Arc::clone(slots),
                    };
                }
                FileState::Pools(_) | FileState::Dag(_) | FileState::Removed => {}
            }
        }
        found
    }
}

/// The changes that make the pools what the folder says. A pool that the folder no longer names gets back the slots that a
/// user gave it, or goes where there were none.
pub(crate) fn changes(pools: &BTreeMap<String, Pool>, wanted: &FolderPools) -> Vec<PoolChange> {
    let (file, slots) = match wanted {
        FolderPools::Unreadable => return Vec::new(),
        FolderPools::Absent => ("", None),
        FolderPools::Named { file, slots } => (file.as_str(), Some(slots)),
    };
    let slots_of = |name: &String| slots.and_then(|slots| slots.get(name)).copied();
    let named = slots.into_iter().flat_map(|slots| slots.iter());
    let set = named.filter_map(|(name, slots)| {
        let before = pools.get(name);
        let slots_before = match before {
            Some(Pool {
                file: Some(file), ..
            }) => file.slots_before,
            Some(pool) => Some(pool.slots),
            None => None,
        };
        let pool = Pool {
            include_deferred: before.is_some_and(|pool| pool.include_deferred),
            file: Some(PoolFile {
                name: file.to_owned(),
                slots_before,
            }),
            ..Pool::new(name, *slots)
        };
        (before != Some(&pool)).then_some(PoolChange::Set(pool))
    });
    let of_files = pools
        .values()
        .filter_map(|pool| Some((pool, pool.file.as_ref()?)));
    let left = of_files.filter(|(pool, _)| slots_of(&pool.name).is_none());
    let left = left.map(|(pool, file)| match file.slots_before {
        Some(slots) => PoolChange::Set(Pool {
            slots,
            file: None,
            ..pool.clone()
        }),
        None => PoolChange::Delete(pool.name.clone()),
    });
    set.chain(left).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::folder::DagFile;

    fn of_file(name: &str, slots: i64, slots_before: Option<i64>) -> Pool {
        Pool {
            file: Some(PoolFile {
                name: "pools.yaml".to_owned(),
                slots_before,
            }),
            ..Pool::new(name, slots)
        }
    }

    fn slots(pools: &[(&str, i64)]) -> Arc<BTreeMap<String, i64>> {
        let pools = pools
            .iter()
            .map(|(name, slots)| ((*name).to_owned(), *slots));
        Arc::new(pools.collect())
    }

    fn named(pools: &[(&str, i64)]) -> FolderPools {
        FolderPools::Named {
            file: "pools.yaml".to_owned(),
            slots: slots(pools),
        }
    }

    #[test]
    fn the_file_counts_while_it_names_a_pool() {
        let own = || Pool::new("db", 4);
        let set = |pool: Pool| vec![PoolChange::Set(pool)];
        let gone = || vec![PoolChange::Delete("db".to_owned())];
        let deferring = |pool: Pool| Pool {
            include_deferred: true,
            ..pool
        };
        let kept = of_file("db", 2, Some(4));
        for (before, wanted, expected) in [
            (None, named(&[("db", 2)]), set(of_file("db", 2, None))),
            (Some(own()), named(&[("db", 2)]), set(kept.clone())),
            // What a user had set is remembered over changes of the file.
            (
                Some(kept.clone()),
                named(&[("db", 3)]),
                set(of_file("db", 3, Some(4))),
            ),
            (Some(kept.clone()), named(&[("db", 2)]), vec![]),
            (Some(kept.clone()), named(&[]), set(own())),
            (Some(kept.clone()), FolderPools::Absent, set(own())),
            (Some(kept.clone()), FolderPools::Unreadable, vec![]),
            (Some(of_file("db", 2, None)), FolderPools::Absent, gone()),
            (Some(own()), FolderPools::Absent, vec![]),
            (Some(own()), named(&[]), vec![]),
            // The file says nothing of deferred tasks.
            (
                Some(deferring(own())),
                named(&[("db", 2)]),
                set(deferring(kept.clone())),
            ),
            (
                Some(deferring(kept)),
                FolderPools::Absent,
                set(deferring(own())),
            ),
        ] {
            let pools = before.map(|pool: Pool| (pool.name.clone(), pool));
            let found = changes(&pools.clone().into_iter().collect(), &wanted);
            assert_eq!(found, expected, "{pools:?} {wanted:?}");
        }
    }

    #[test]
    fn a_broken_file_says_nothing_and_the_first_of_several_counts() {
        let mut catalog = Catalog::default();
        assert_eq!(catalog.folder_pools(), FolderPools::Unreadable);
        let mut look = |files: &[(&str, FileState)]| {
            let files = files.iter().map(|(name, state)| DagFile {
                name: (*name).to_owned(),
                state: state.clone(),
            });
            catalog.update_files(files.collect(), Timestamp::UNIX_EPOCH);
            let errors = catalog.known().into_iter().filter_map(|dag| dag.error);
            (catalog.folder_pools(), errors.collect::<Vec<_>>())
        };
        let pools = || FileState::Pools(slots(&[("db", 2)]));
        assert_eq!(look(&[]), (FolderPools::Absent, vec![]));
        let yaml = named(&[("db", 2)]);
        assert_eq!(look(&[("pools.yaml", pools())]), (yaml.clone(), vec![]));
        let (found, errors) = look(&[("pools.yml", pools())]);
        assert_eq!(found, yaml);
        assert!(errors[0].contains("`pools.yml` is not used"), "{errors:?}");
        let broken = FileState::Broken("a mistake".to_owned());
        let (found, errors) = look(&[("pools.yml", broken)]);
        assert_eq!(found, FolderPools::Unreadable);
        assert_eq!(errors, ["a mistake"]);
        let gone = [
            ("pools.yml", FileState::Removed),
            ("pools.yaml", FileState::Removed),
        ];
        assert_eq!(look(&gone), (FolderPools::Absent, vec![]));
    }
}
