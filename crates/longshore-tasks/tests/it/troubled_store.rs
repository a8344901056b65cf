//! A store in memory that does not return some of its files.

use std::{
    fmt,
    future::pending,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, memory::InMemory,
    path::Path,
};

/// What becomes of the reads of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// There is no such file, as with 404.
    Missing,
    /// The store refuses, as with 403.
    Refuses,
    /// The store fails, as with 500.
    Fails,
    /// The store never answers.
    Hangs,
}

/// A store in memory.
#[derive(Debug, Default)]
pub(crate) struct TroubledStore {
    files: InMemory,
    /// What the paths of the files contain that are not returned, and what becomes of their reads.
    trouble: Mutex<Option<(String, Trouble)>>,
}

impl TroubledStore {
    /// From now on, files whose paths contain this are not returned.
    pub(crate) fn trouble(&self, of: &str, trouble: Trouble) {
        *self.trouble.lock().unwrap() = Some((of.to_owned(), trouble));
    }

    fn trouble_of(&self, path: &Path) -> Option<Trouble> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, trouble) = trouble.as_ref()?;
        path.as_ref().contains(of).then_some(*trouble)
    }
}

impl fmt::Display for TroubledStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a store with troubles")
    }
}

#[async_trait]
impl ObjectStore for TroubledStore {
    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        match self.trouble_of(path) {
            None => self.files.get_opts(path, options).await,
            Some(Trouble::Missing) => Err(Error::NotFound {
                path: path.to_string(),
                source: "404 NoSuchKey".into(),
            }),
            Some(Trouble::Refuses) => Err(Error::PermissionDenied {
                path: path.to_string(),
                source: "403 AccessDenied".into(),
            }),
            Some(Trouble::Fails) => Err(Error::Generic {
                store: "troubled",
                source: "500 InternalError".into(),
            }),
            Some(Trouble::Hangs) => pending().await,
        }
    }

    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.files.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.files.put_multipart_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.files.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.files.copy_opts(from, to, options).await
    }
}
