//! Files in stores, by URL.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use jiff::Timestamp;
use object_store::{
    BackoffConfig, ClientOptions, Error, ObjectStore, ObjectStoreExt, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
    local::LocalFileSystem,
    memory::InMemory,
    path::Path,
};

use super::{
    config::{Gcs, S3, StorageConfig, StorageConfigError, StorageLimits, Stores},
    error::{Action, DataError},
    location::{Kind, Location},
};

/// How long one request to a store may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection to a store may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a request is repeated. The round that asked comes again with back-off of its own.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_RETRIES: usize = 3;

/// Files in stores, by URL: `file://` and paths on this machine; `s3://` and `gs://` where they are configured.
#[derive(Debug)]
pub struct Storage {
    stores: Stores,
    /// What the stores' libraries would take from the environment.
    environment: Vec<(String, String)>,
    max_download: u64,
    files: Arc<dyn ObjectStore>,
    buckets: Mutex<BTreeMap<String, Arc<dyn ObjectStore>>>,
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

impl Default for Storage {
    /// Files of this machine, by their paths.
    fn default() -> Self {
        Self::local(PathBuf::from("/"), StorageLimits::default().max_download())
    }
}

impl Storage {
    /// The stores of a configuration. Credentials that it leaves to the machine are looked for in `environment`, as
    /// `AWS_…` and `GOOGLE_…`, then asked of the machine itself.
    ///
    /// # Errors
    /// Where the configuration asks for what is not there.
    pub fn new(
        config: &StorageConfig,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, StorageConfigError> {
        let max_download = config.limits.max_download();
        let stores = config.stores()?;
        let environment = environment.into_iter().collect();
        Ok(Self::of(stores, environment, max_download))
    }

    /// Files below `root` on this machine; none is read beyond `max_download` bytes.
    pub fn local(root: PathBuf, max_download: u64) -> Self {
        let stores = Stores {
            root,
            ..Stores::default()
        };
        Self::of(stores, Vec::new(), max_download)
    }

    /// Files that end with the process, below `/`; none is read beyond `max_download` bytes.
    pub fn in_memory(max_download: u64) -> Self {
        let stores = Stores {
            root: PathBuf::from("/"),
            ..Stores::default()
        };
        Self {
            files: Arc::new(InMemory::new()),
            ..Self::of(stores, Vec::new(), max_download)
        }
    }

    fn of(stores: Stores, environment: Vec<(String, String)>, max_download: u64) -> Self {
        Self {
            stores,
            environment,
            max_download,
            files: Arc::new(LocalFileSystem::new().with_fsync(true)),
            buckets: Mutex::default(),
        }
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

    /// What is in a file.
    ///
    /// # Errors
    /// Where its store does not answer, or refuses: nothing is known of the file.
    pub async fn read(&self, url: &str) -> Result<File, DataError> {
        let fail = |error| DataError::of(url, Action::Read, error);
        let (store, path) = self.open(url, Action::Read)?;
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
        Ok(File::Read(found.bytes().await.map_err(fail)?))
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
        let (store, path) = self.open(url, Action::Read)?;
        match store.head(&path).await {
            Ok(meta) => {
                let at = Timestamp::from_millisecond(meta.last_modified.timestamp_millis());
                Ok(Some(at.unwrap_or(Timestamp::UNIX_EPOCH)))
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(DataError::of(url, Action::Read, error)),
        }
    }

    /// The directory of a URL that is ours to make: one below the root that is configured for files. Other stores have
    /// no directories, and without such a root a path may be anywhere on this machine.
    pub fn directory(&self, url: &str) -> Option<PathBuf> {
        let location = Location::parse(url)?;
        let is_ours = location.kind == Kind::File && self.stores.root != std::path::Path::new("/");
        is_ours.then(|| self.stores.root.join(location.key))
    }

    /// Writes a file, whatever was there: all of it or nothing.
    ///
    /// # Errors
    /// Where its store does not answer, or refuses. It may be written.
    pub async fn write(&self, url: &str, bytes: Bytes) -> Result<(), DataError> {
        let (store, path) = self.open(url, Action::Written)?;
        let written = store.put(&path, bytes.into()).await;
        let written = written.map_err(|error| DataError::of(url, Action::Written, error));
        written.map(|_| ())
    }

    fn locate<'a>(&self, url: &'a str) -> Result<Location<'a>, DataError> {
        let known = Location::parse(url).filter(|location| match location.kind {
            Kind::File => true,
            Kind::S3 => self.stores.s3.is_some(),
            Kind::Gcs => self.stores.gcs.is_some(),
        });
        known.ok_or_else(|| DataError::Unsupported {
            url: url.to_owned(),
            configured: match (&self.stores.s3, &self.stores.gcs) {
                (None, None) => "file://",
                (Some(_), None) => "file://, s3://",
                (None, Some(_)) => "file://, gs://",
                (Some(_), Some(_)) => "file://, s3://, gs://",
            },
        })
    }

    /// The store of a URL, and its path there.
    fn open(&self, url: &str, action: Action) -> Result<(Arc<dyn ObjectStore>, Path), DataError> {
        let fail = |error| DataError::of(url, action, error);
        let Location { kind, bucket, key } = self.locate(url)?;
        let unusual = |error: object_store::path::Error| fail(error.into());
        match kind {
            Kind::File => {
                let file = self.stores.root.join(key);
                let path = Path::from_absolute_path(file).map_err(unusual)?;
                Ok((Arc::clone(&self.files), path))
            }
            Kind::S3 | Kind::Gcs => {
                let path = Path::parse(key).map_err(unusual)?;
                Ok((self.bucket(kind, bucket).map_err(fail)?, path))
            }
        }
    }

    fn bucket(&self, kind: Kind, bucket: &str) -> Result<Arc<dyn ObjectStore>, Error> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("{kind:?} {bucket}");
        if let Some(store) = buckets.get(&name) {
            return Ok(Arc::clone(store));
        }
        let store: Arc<dyn ObjectStore> = match (&self.stores.s3, &self.stores.gcs) {
            (Some(s3), _) if kind == Kind::S3 => Arc::new(self.s3(s3, bucket)?),
            (_, Some(gcs)) if kind == Kind::Gcs => Arc::new(self.gcs(gcs, bucket)?),
            // Such a URL is not located.
            _ => {
                return Err(Error::NotSupported {
                    source: "no such store is configured".into(),
                });
            }
        };
        buckets.insert(name, Arc::clone(&store));
        Ok(store)
    }

    fn s3(&self, s3: &S3, bucket: &str) -> Result<object_store::aws::AmazonS3, Error> {
        let mut builder = AmazonS3Builder::new();
        for (name, value) in self.variables::<AmazonS3ConfigKey>("AWS_") {
            builder = builder.with_config(name, value);
        }
        if !s3.endpoint.is_empty() {
            builder = builder
                .with_endpoint(&s3.endpoint)
                .with_allow_http(s3.endpoint.starts_with("http://"));
        }
        if !s3.region.is_empty() {
            builder = builder.with_region(&s3.region);
        }
        if let Some((id, secret)) = &s3.key {
            builder = builder
                .with_access_key_id(id)
                .with_secret_access_key(secret);
        }
        builder
            .with_bucket_name(bucket)
            .with_retry(retries())
            .with_client_options(client(&s3.endpoint))
            .build()
    }

    fn gcs(&self, gcs: &Gcs, bucket: &str) -> Result<object_store::gcp::GoogleCloudStorage, Error> {
        let mut builder = GoogleCloudStorageBuilder::new();
        for (name, value) in self.variables::<GoogleConfigKey>("GOOGLE_") {
            builder = builder.with_config(name, value);
        }
        if !gcs.key.is_empty() {
            builder = builder.with_service_account_key(&gcs.key);
        }
        builder
            .with_bucket_name(bucket)
            .with_retry(retries())
            .with_client_options(client(""))
            .build()
    }

    /// The variables of the environment that a library knows.
    fn variables<K: std::str::FromStr>(
        &self,
        prefix: &'static str,
    ) -> impl Iterator<Item = (K, &String)> {
        let theirs = self.environment.iter();
        let theirs = theirs.filter(move |(name, _)| name.starts_with(prefix));
        theirs.filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value)))
    }
}

fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: MAX_RETRIES,
        retry_timeout: RETRY_TIMEOUT,
    }
}

fn client(endpoint: &str) -> ClientOptions {
    ClientOptions::new()
        .with_timeout(REQUEST_TIMEOUT)
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_allow_http(endpoint.starts_with("http://"))
}
