//! Files in stores, by URL.

use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use jiff::Timestamp;
use longshore_outbound::{BodyRoom, Permit};
use object_store::{
    Error, GetResult, ObjectStore, ObjectStoreExt, local::LocalFileSystem, memory::InMemory,
    path::Path,
};

use crate::{
    beneath::{Beneath, Content},
    buckets::Buckets,
    config::{Azure, StorageConfig, StorageConfigError, StorageLimits, Stores},
    environment,
    error::{Action, DataError},
    location::{Kind, Location, is_without_slashes},
    store_client::CutOff,
};

/// Files in stores, by URL: `file://` and paths on this machine, as far as there are any; `s3://`, `gs://`, `abfs://` and
/// `abfss://` where they are configured.
#[derive(Debug)]
pub struct Storage {
    buckets: Buckets,
    max_download: u64,
    files: Files,
    /// For files that are read over HTTP, by what the store is.
    rooms: Rooms,
    /// What the actions of a namespace may name.
    namespaces: Option<BTreeMap<String, Vec<String>>>,
}

/// What `file://` URLs and paths mean.
#[derive(Clone, Debug)]
enum Files {
    /// Nothing.
    Refused,
    /// Files below a directory.
    Beneath(Beneath),
    /// Any file of this machine, by its path; or what ends with the process.
    Anywhere(Arc<dyn ObjectStore>),
}

/// A store that never ends a file leaves room for those of others.
#[derive(Debug, Default)]
struct Rooms {
    s3: BodyRoom,
    gcs: BodyRoom,
    azure: BodyRoom,
}

/// A file, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum File {
    /// There is none.
    Missing,
    /// It has so many bytes, and was not read.
    TooLarge(u64),
    /// What is in it.
    Read(Bytes),
}

/// Where a URL leads.
enum Place<'a> {
    Store(Arc<dyn ObjectStore>, Path),
    Beneath(&'a Beneath, &'a str),
}

impl Default for Storage {
    /// Files of this machine, by their paths.
    fn default() -> Self {
        Self::local(PathBuf::from("/"), StorageLimits::default().max_download())
    }
}

impl Storage {
    /// The stores of a configuration, for the actions of the user of this process: where it names no directory for files,
    /// any file of this machine is one. Credentials that it leaves to the machine are looked for in `environment`, as
    /// `AWS_…`, `GOOGLE_…` and `AZURE_…`, then asked of the machine itself.
    ///
    /// # Errors
    /// Where the configuration asks for what is not there.
    pub fn new(
        config: &StorageConfig,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, StorageConfigError> {
        let mut stores = config.stores()?;
        stores.root.get_or_insert_with(|| PathBuf::from("/"));
        Self::configured(config, stores, environment)
    }

    /// The same for the actions of others, as in a cluster: where the configuration names no directory for files, there
    /// are none, because any file of this machine would be one.
    ///
    /// # Errors
    /// Where the configuration asks for what is not there.
    pub fn of_cluster(
        config: &StorageConfig,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, StorageConfigError> {
        let stores = config.stores()?;
        Self::configured(config, stores, environment)
    }

    fn configured(
        config: &StorageConfig,
        stores: Stores,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, StorageConfigError> {
        let environment: Vec<_> = environment.into_iter().collect();
        environment::check(&stores, &environment)?;
        Ok(Self {
            namespaces: config.namespaces.clone(),
            ..Self::of(stores, environment, config.limits.max_download())
        })
    }

    /// Files below `root` on this machine; none is read beyond `max_download` bytes.
    pub fn local(root: PathBuf, max_download: u64) -> Self {
        let stores = Stores {
            root: Some(root),
            ..Stores::default()
        };
        Self::of(stores, Vec::new(), max_download)
    }

    /// Files that end with the process, below `/`; none is read beyond `max_download` bytes.
    pub fn in_memory(max_download: u64) -> Self {
        Self::of_store(Arc::new(InMemory::new()), max_download)
    }

    /// `file://` URLs and paths are the files of this store; none is read beyond `max_download` bytes.
    pub fn of_store(store: Arc<dyn ObjectStore>, max_download: u64) -> Self {
        Self {
            files: Files::Anywhere(store),
            ..Self::of(Stores::default(), Vec::new(), max_download)
        }
    }

    fn of(stores: Stores, environment: Vec<(String, String)>, max_download: u64) -> Self {
        let files = match &stores.root {
            None => Files::Refused,
            Some(root) if root.as_os_str() == "/" => {
                Files::Anywhere(Arc::new(LocalFileSystem::new().with_fsync(true)))
            }
            Some(root) => Files::Beneath(Beneath::new(root.clone())),
        };
        Self {
            buckets: Buckets::new(stores, environment),
            max_download,
            files,
            rooms: Rooms::default(),
            namespaces: None,
        }
    }

    /// Sends requests to stores for as long as `permit` holds.
    #[must_use]
    pub fn with_permit(mut self, permit: Permit) -> Self {
        self.buckets.permit = permit;
        self
    }

    /// No file is read beyond this, in bytes.
    pub fn max_download(&self) -> u64 {
        self.max_download
    }

    /// Whether there is a store for a URL.
    ///
    /// # Errors
    /// [`DataError::Unsupported`].
    pub fn is_supported(&self, url: &str) -> Result<(), DataError> {
        self.locate(url).map(|_| ())
    }

    /// Whether actions of a namespace may name a URL: without a table, any at which something can be.
    ///
    /// # Errors
    /// [`DataError::NotAllowed`] or [`DataError::Impossible`].
    pub fn admits(&self, namespace: &str, url: &str) -> Result<(), DataError> {
        self.is_possible(url)?;
        let Some(namespaces) = &self.namespaces else {
            return Ok(());
        };
        let allowed = namespaces.get(namespace).or_else(|| namespaces.get("*"));
        let allowed = allowed.map_or(&[][..], Vec::as_slice);
        let azure = self.buckets.stores.azure.as_ref();
        let mut beginnings = allowed.iter();
        if beginnings.any(|beginning| begins_with(url, beginning, azure)) {
            return Ok(());
        }
        Err(DataError::NotAllowed {
            url: url.to_owned(),
            namespace: namespace.to_owned(),
            allowed: if allowed.is_empty() {
                "none".to_owned()
            } else {
                allowed.join(", ")
            },
        })
    }

    /// Whether a store of ours could have something at a URL. What is in no store of ours is for the task itself.
    fn is_possible(&self, url: &str) -> Result<(), DataError> {
        let impossible = |why: String| DataError::Impossible {
            url: url.to_owned(),
            why,
        };
        if is_without_slashes(url) {
            let why = "expected `://` behind its scheme, as in file:///path, or an absolute path";
            return Err(impossible(why.to_owned()));
        }
        let Ok(Location { kind, key, .. }) = self.locate(url) else {
            return Ok(());
        };
        match kind {
            Kind::File => crate::beneath::parts(key)
                .map(drop)
                .map_err(|error| impossible(error.to_string())),
            Kind::S3 | Kind::Gcs | Kind::Azure => Path::parse(key)
                .map(drop)
                .map_err(|error| impossible(error.to_string())),
        }
    }

    /// What is in a file.
    ///
    /// # Errors
    /// Where its store does not answer, or refuses: nothing is known of the file.
    pub async fn read(&self, url: &str) -> Result<File, DataError> {
        let fail = |error| DataError::of(url, Action::Read, error);
        let (store, path) = match self.open(url, Action::Read).await? {
            Place::Store(store, path) => (store, path),
            Place::Beneath(files, key) => {
                let max = self.max_download;
                let read = beneath(files, key, move |files, key| files.read(key, max)).await;
                return match read {
                    Ok(Content::Read(bytes)) => Ok(File::Read(bytes.into())),
                    Ok(Content::TooLarge(size)) => Ok(File::TooLarge(size)),
                    Err(error) if is_missing(&error) => Ok(File::Missing),
                    Err(error) => Err(fail(of_files(error))),
                };
            }
        };
        let found = match store.get(&path).await {
            Ok(found) => found,
            Err(error) => {
                let is_missing = matches!(error, Error::NotFound { .. });
                let error = fail(error);
                let is_file = matches!(error, DataError::Failed { .. });
                return if is_missing && is_file {
                    Ok(File::Missing)
                } else {
                    Err(error)
                };
            }
        };
        if found.meta.size > self.max_download {
            return Ok(File::TooLarge(found.meta.size));
        }
        let _room = match self.room(url) {
            Some(room) => Some(room.reserve(length(found.meta.size)).await),
            None => None,
        };
        whole(found).await.map(File::Read).map_err(fail)
    }

    /// Whether there is a file.
    ///
    /// # Errors
    /// Where its store does not answer, or refuses.
    pub async fn exists(&self, url: &str) -> Result<bool, DataError> {
        Ok(self.written_at(url).await?.is_some())
    }

    /// When a file was written, by the clock of its store; `None` where there is none.
    ///
    /// # Errors
    /// Where its store does not answer, or refuses.
    pub async fn written_at(&self, url: &str) -> Result<Option<Timestamp>, DataError> {
        let fail = |error| DataError::of(url, Action::Read, error);
        let (store, path) = match self.open(url, Action::Read).await? {
            Place::Store(store, path) => (store, path),
            Place::Beneath(files, key) => {
                let modified = |files: &Beneath, key: &str| files.metadata(key)?.modified();
                return match beneath(files, key, modified).await {
                    Ok(at) => Ok(Some(at.try_into().unwrap_or(Timestamp::UNIX_EPOCH))),
                    Err(error) if is_missing(&error) => Ok(None),
                    Err(error) => Err(fail(of_files(error))),
                };
            }
        };
        match store.head(&path).await {
            Ok(meta) => {
                let at = Timestamp::from_millisecond(meta.last_modified.timestamp_millis());
                Ok(Some(at.unwrap_or(Timestamp::UNIX_EPOCH)))
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(fail(error)),
        }
    }

    /// Whether the directory of a URL is ours to make: one below the root that is configured for files. Other stores have
    /// no directories, and without such a root a path may be anywhere on this machine.
    pub fn has_directories(&self, url: &str) -> bool {
        let is_file = |location: Location<'_>| location.kind == Kind::File;
        matches!(self.files, Files::Beneath(_)) && self.locate(url).is_ok_and(is_file)
    }

    /// Makes the directory of a URL, where that is ours to do, and those above it.
    ///
    /// # Errors
    /// Where the file system refuses.
    pub async fn make_directory(&self, url: &str) -> Result<(), DataError> {
        let Ok(Place::Beneath(files, key)) = self.open(url, Action::Written).await else {
            return Ok(());
        };
        let made = beneath(files, key, |files, key| files.make_directory(key)).await;
        made.map_err(|source| DataError::NoDirectory {
            url: url.to_owned(),
            source,
        })
    }

    /// Writes a file, whatever was there: all of it or nothing.
    ///
    /// # Errors
    /// Where its store does not answer, or refuses. It may be written.
    pub async fn write(&self, url: &str, bytes: Bytes) -> Result<(), DataError> {
        let fail = |error| DataError::of(url, Action::Written, error);
        match self.open(url, Action::Written).await? {
            Place::Store(store, path) => {
                let written = store.put(&path, bytes.into()).await;
                written.map(drop).map_err(fail)
            }
            Place::Beneath(files, key) => {
                let write = move |files: &Beneath, key: &str| files.write(key, &bytes);
                let written = beneath(files, key, write).await;
                written.map_err(|error| fail(of_files(error)))
            }
        }
    }

    fn locate<'a>(&self, url: &'a str) -> Result<Location<'a>, DataError> {
        let has_files = !matches!(self.files, Files::Refused);
        let Stores { s3, gcs, azure, .. } = &self.buckets.stores;
        let known = Location::parse(url).filter(|location| match location.kind {
            Kind::File => has_files,
            Kind::S3 => s3.is_some(),
            Kind::Gcs => gcs.is_some(),
            Kind::Azure => azure.as_ref().is_some_and(|it| it.has(location.host)),
        });
        known.ok_or_else(|| {
            let of_account = |azure: &Azure| format!("abfs:// of account {}", azure.account);
            let kinds = [
                has_files.then(|| "file://".to_owned()),
                s3.as_ref().map(|_| "s3://".to_owned()),
                gcs.as_ref().map(|_| "gs://".to_owned()),
                azure.as_ref().map(of_account),
            ];
            let configured: Vec<String> = kinds.into_iter().flatten().collect();
            DataError::Unsupported {
                url: url.to_owned(),
                configured: if configured.is_empty() {
                    "none; storage.files-root allows file://".to_owned()
                } else {
                    configured.join(", ")
                },
            }
        })
    }

    /// The room for files of a store; `None` for those of this machine.
    fn room(&self, url: &str) -> Option<&BodyRoom> {
        match self.locate(url).ok()?.kind {
            Kind::File => None,
            Kind::S3 => Some(&self.rooms.s3),
            Kind::Gcs => Some(&self.rooms.gcs),
            Kind::Azure => Some(&self.rooms.azure),
        }
    }

    /// The store of a URL, and its path there.
    async fn open<'a>(&'a self, url: &'a str, action: Action) -> Result<Place<'a>, DataError> {
        let fail = |error| DataError::of(url, action, error);
        let Location {
            kind, bucket, key, ..
        } = self.locate(url)?;
        let unusual = |error: object_store::path::Error| fail(error.into());
        match (kind, &self.files) {
            (Kind::File, Files::Beneath(files)) => Ok(Place::Beneath(files, key)),
            (Kind::File, Files::Anywhere(files)) => {
                let file = std::path::Path::new("/").join(key);
                if is_special(&file).await {
                    let error = io::Error::other("expected a regular file");
                    return Err(fail(of_files(error)));
                }
                let path = Path::from_absolute_path(file).map_err(unusual)?;
                Ok(Place::Store(Arc::clone(files), path))
            }
            // Such a URL is not located.
            (Kind::File, Files::Refused) => Err(fail(Error::NotSupported {
                source: "no directory is configured for files".into(),
            })),
            (Kind::S3 | Kind::Gcs | Kind::Azure, _) => {
                let path = Path::parse(key).map_err(unusual)?;
                let store = self.buckets.get(kind, bucket).map_err(fail)?;
                Ok(Place::Store(store, path))
            }
        }
    }
}

fn length(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// All of a file.
async fn whole(found: GetResult) -> Result<Bytes, Error> {
    let size = found.meta.size;
    let mut bytes = BytesMut::new();
    let mut chunks = found.into_stream();
    let end = loop {
        match chunks.next().await {
            Some(Ok(chunk)) => bytes.extend_from_slice(&chunk),
            Some(Err(error)) => break Err(error),
            None => break Ok(()),
        }
    };
    let n = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    match end {
        Ok(()) if n == size => Ok(bytes.freeze()),
        Err(error) if n == 0 => Err(error),
        Ok(()) | Err(_) => Err(Error::Generic {
            store: "http",
            source: Box::new(CutOff::Body { n, size }),
        }),
    }
}

/// Does this with a file, beside the rounds: the disk may take its time.
async fn beneath<T: Send + 'static>(
    files: &Beneath,
    key: &str,
    work: impl FnOnce(&Beneath, &str) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (files, key) = (files.clone(), key.to_owned());
    let done = tokio::task::spawn_blocking(move || work(&files, &key)).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Whether a file is a pipe, a socket or a device: a read of it may never end, nor can it be cancelled.
async fn is_special(file: &std::path::Path) -> bool {
    let metadata = tokio::fs::metadata(file).await;
    metadata.is_ok_and(|it| !it.is_file() && !it.is_dir())
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn of_files(error: io::Error) -> Error {
    Error::Generic {
        store: "files",
        source: Box::new(error),
    }
}

/// Whether a URL is at or below another one. Whole parts are compared: `s3://a` is no beginning of `s3://ab`. What leads
/// up is below nothing. The account of the configuration may be named or left out.
fn begins_with(url: &str, beginning: &str, azure: Option<&Azure>) -> bool {
    let (Some(url), Some(beginning)) = (Location::parse(url), Location::parse(beginning)) else {
        return false;
    };
    let is_ours = |host: &str| azure.is_some_and(|azure| azure.has(host));
    let is_one_host = url.host == beginning.host || is_ours(url.host) && is_ours(beginning.host);
    if url.kind != beginning.kind || url.bucket != beginning.bucket || !is_one_host {
        return false;
    }
    if names(url.key).any(|part| part == "..") {
        return false;
    }
    let mut own = names(url.key);
    names(beginning.key).all(|part| own.next() == Some(part))
}

fn names(key: &str) -> impl Iterator<Item = &str> {
    key.split('/').filter(|part| !matches!(*part, "" | "."))
}
