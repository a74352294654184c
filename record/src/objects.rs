//! A store on an object store (feature `objects`): `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`.
//!
//! Objects have the names that the files of a store folder have. A put is whole or not at all, so there are no temporary names. What
//! fails in passing is tried again, and a body that was cut goes on where it ended.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{
    BackoffConfig, Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutPayload, RetryConfig,
    WriteMultipart,
};

use parquet::DecodeResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataPushDecoder};

use crate::canonical::hex;
use crate::prints::PrintKey;

/// Bytes of a part of a large object.
const PART: usize = 16 << 20;
/// Bytes of a file's end that hold its footer, mostly.
const FOOTER: u64 = 64 << 10;
/// Requests under way at once for many objects.
pub const AT_ONCE: usize = 32;
/// How often, and how long, a request is tried again that fails in passing.
#[derive(Debug, Clone, Copy)]
pub struct Patience(usize, Duration);

impl Patience {
    /// Of those who have nothing else to do.
    pub const LONG: Self = Self(30, Duration::from_secs(120));
    /// Of those who try again themselves later.
    pub const SHORT: Self = Self(1, Duration::from_secs(10));
}

/// Why an object could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is wrong, or the environment lacks what it needs.
    #[error("{url}: {reason}")]
    Url {
        /// What was named.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The object store said no, or cannot be reached.
    #[error("{object}: {}", one_line(source))]
    Store {
        /// The object, with its URL.
        object: String,
        /// What it said.
        source: StoreError,
    },
    /// The local file system said no.
    #[error("{path}: {source}")]
    File {
        /// The local file.
        path: String,
        /// What it said.
        source: io::Error,
    },
    /// An object does not hold what it should.
    #[error("{object}: {reason}")]
    Content {
        /// The object, with its URL.
        object: String,
        /// What is wrong.
        reason: String,
    },
}

/// What the object store said: stores answer with pages.
fn one_line(e: &StoreError) -> String {
    let text = e.to_string();
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(400) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// Result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a listing tells of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name below the store's prefix.
    pub name: String,
    /// Its bytes.
    pub size: u64,
    /// When it was put.
    pub modified: SystemTime,
}

/// A store on an object store.
#[derive(Debug, Clone)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// `s3://bucket`.
    origin: String,
}

/// True where a store's name is a URL and no folder.
pub fn is_url(store: &str) -> bool {
    store.contains("://")
}

impl Objects {
    /// Opens a URL. Credentials, region and endpoint come from the usual variables (`AWS_*`, `GOOGLE_*`, `AZURE_*`). A request that
    /// fails in passing is tried again with `patience`.
    ///
    /// # Errors
    /// Where the URL is wrong or of another kind, or the environment lacks what it needs.
    pub fn open(url: &str, patience: Patience) -> Result<Self> {
        let wrong = |reason: String| Error::Url { url: url.to_owned(), reason };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("no URL".to_owned()))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(wrong(format!("names no bucket, as in {scheme}://bucket/prefix")));
        }
        let retry = RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: patience.0,
            retry_timeout: patience.1,
        };
        let said = |e: StoreError| wrong(e.to_string());
        let store: Arc<dyn ObjectStore> = match scheme {
            "s3" | "s3a" => Arc::new(
                AmazonS3Builder::from_env()
                    .with_bucket_name(bucket)
                    .with_retry(retry)
                    .build()
                    .map_err(said)?,
            ),
            "gs" => Arc::new(
                GoogleCloudStorageBuilder::from_env()
                    .with_bucket_name(bucket)
                    .with_retry(retry)
                    .build()
                    .map_err(said)?,
            ),
            "az" | "abfs" => Arc::new(
                MicrosoftAzureBuilder::from_env()
                    .with_container_name(bucket)
                    .with_retry(retry)
                    .build()
                    .map_err(said)?,
            ),
            _ => return Err(wrong("only s3://, gs:// and az:// are known".to_owned())),
        };
        let prefix = Path::parse(prefix.trim_end_matches('/')).map_err(|e| wrong(e.to_string()))?;
        Ok(Self { store, prefix, origin: format!("{scheme}://{bucket}") })
    }

    /// The object store, for a query engine.
    pub fn store(&self) -> Arc<dyn ObjectStore> {
        self.store.clone()
    }

    /// The URL that it is registered under in a query engine: `s3://bucket`.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The URL of an object.
    pub fn url(&self, name: &str) -> String {
        format!("{}/{}", self.origin, self.path(name))
    }

    fn path(&self, name: &str) -> Path {
        name.split('/').filter(|p| !p.is_empty()).fold(self.prefix.clone(), |p, part| p.join(part))
    }

    fn failed(&self, name: &str) -> impl FnOnce(StoreError) -> Error + '_ {
        let object = self.url(name);
        move |source| Error::Store { object, source }
    }

    /// The bytes of an object; `None` where there is none.
    ///
    /// # Errors
    /// The object store's.
    pub async fn get(&self, name: &str) -> Result<Option<Bytes>> {
        match self.store.get(&self.path(name)).await {
            Ok(found) => Ok(Some(found.bytes().await.map_err(self.failed(name))?)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed(name)(e)),
        }
    }

    /// What a Parquet file of so many bytes says of itself, its page index left out; `None` where there is none.
    ///
    /// # Errors
    /// The object store's, and where the object is no such file.
    pub async fn footer(&self, name: &str, size: u64) -> Result<Option<ParquetMetaData>> {
        let wrong = |e: ParquetError| Error::Content { object: self.url(name), reason: e.to_string() };
        let decoder = ParquetMetaDataPushDecoder::try_new(size).map_err(wrong)?;
        let mut decoder = decoder.with_page_index_policy(PageIndexPolicy::Skip);
        // Mostly it is all there at once. Not every object store knows ranges from the end.
        let mut wanted: Vec<_> = std::iter::once(size.saturating_sub(FOOTER)..size).collect();
        loop {
            match self.store.get_ranges(&self.path(name), &wanted).await {
                Ok(found) => decoder.push_ranges(wanted, found).map_err(wrong)?,
                Err(StoreError::NotFound { .. }) => return Ok(None),
                Err(e) => return Err(self.failed(name)(e)),
            }
            match decoder.try_decode().map_err(wrong)? {
                DecodeResult::NeedsData(more) => wanted = more,
                DecodeResult::Data(found) => return Ok(Some(found)),
                DecodeResult::Finished => return Err(wrong(ParquetError::EOF("no footer".to_owned()))),
            }
        }
    }

    /// When an object was put; `None` where there is none.
    ///
    /// # Errors
    /// The object store's.
    pub async fn modified(&self, name: &str) -> Result<Option<SystemTime>> {
        match self.store.head(&self.path(name)).await {
            Ok(meta) => Ok(Some(meta.last_modified.into())),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed(name)(e)),
        }
    }

    /// Puts an object.
    ///
    /// # Errors
    /// The object store's.
    pub async fn put(&self, name: &str, bytes: impl Into<PutPayload>) -> Result<()> {
        self.store.put(&self.path(name), bytes.into()).await.map_err(self.failed(name))?;
        Ok(())
    }

    /// Puts an object that is not there; false where it is.
    ///
    /// # Errors
    /// The object store's.
    pub async fn create(&self, name: &str, bytes: impl Into<PutPayload>) -> Result<bool> {
        match self.store.put_opts(&self.path(name), bytes.into(), PutMode::Create.into()).await {
            Ok(_) => Ok(true),
            Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Ok(false),
            Err(e) => Err(self.failed(name)(e)),
        }
    }

    /// All objects below a folder, sorted by name.
    ///
    /// # Errors
    /// The object store's.
    pub async fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        let found: Vec<_> =
            self.store.list(Some(&self.path(folder))).try_collect().await.map_err(self.failed(folder))?;
        let mut out = Vec::with_capacity(found.len());
        for meta in found {
            let Some(name) = meta.location.prefix_match(&self.prefix) else { continue };
            out.push(Listed {
                name: name.map(|p| p.as_ref().to_owned()).collect::<Vec<_>>().join("/"),
                size: meta.size,
                modified: meta.last_modified.into(),
            });
        }
        out.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(out)
    }

    /// Reads an object into a local file; false where there is none.
    ///
    /// # Errors
    /// The object store's and the file system's.
    pub async fn fetch(&self, name: &str, to: &FilePath) -> Result<bool> {
        let file = |source| Error::File { path: to.display().to_string(), source };
        let found = match self.store.get(&self.path(name)).await {
            Ok(found) => found,
            Err(StoreError::NotFound { .. }) => return Ok(false),
            Err(e) => return Err(self.failed(name)(e)),
        };
        let size = found.meta.size;
        let mut out = File::create(to).map_err(file)?;
        let mut written = 0;
        let mut stream = found.into_stream();
        while let Some(part) = stream.next().await {
            let part = part.map_err(self.failed(name))?;
            written += part.len() as u64;
            out.write_all(&part).map_err(file)?;
        }
        if written != size {
            let reason = format!("{written} of {size} bytes came");
            return Err(Error::Content { object: self.url(name), reason });
        }
        Ok(true)
    }

    /// Puts a local file.
    ///
    /// # Errors
    /// The object store's and the file system's.
    pub async fn send(&self, from: &FilePath, name: &str) -> Result<()> {
        let file = |source| Error::File { path: from.display().to_string(), source };
        let mut source = File::open(from).map_err(file)?;
        if source.metadata().map_err(file)?.len() <= PART as u64 {
            let mut bytes = Vec::new();
            source.read_to_end(&mut bytes).map_err(file)?;
            return self.put(name, bytes).await;
        }
        let upload = self.store.put_multipart(&self.path(name)).await.map_err(self.failed(name))?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PART);
        let mut part = vec![0; PART];
        loop {
            match source.read(&mut part).map_err(file)? {
                0 => break,
                n => upload.write(&part[..n]),
            }
            // A few parts are held, not all of the file.
            upload.wait_for_capacity(4).await.map_err(self.failed(name))?;
        }
        upload.finish().await.map_err(self.failed(name))?;
        Ok(())
    }

    /// Copies an object within the store, without moving its bytes through here.
    ///
    /// # Errors
    /// The object store's.
    pub async fn copy(&self, from: &str, to: &str) -> Result<()> {
        self.store.copy(&self.path(from), &self.path(to)).await.map_err(self.failed(from))
    }

    /// Deletes objects. One that is not there is no error.
    ///
    /// # Errors
    /// The object store's.
    pub async fn delete(&self, names: Vec<String>) -> Result<()> {
        each(names, |name| async move {
            match self.store.delete(&self.path(&name)).await {
                Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
                Err(e) => Err(self.failed(&name)(e)),
            }
        })
        .await
    }

    /// The key of the store's fingerprints; `None` where there is none.
    ///
    /// # Errors
    /// The object store's, and where the object holds no key.
    pub async fn key(&self) -> Result<Option<PrintKey>> {
        let Some(text) = self.get(KEY).await? else { return Ok(None) };
        let key = PrintKey::from_hex(&String::from_utf8_lossy(&text));
        let reason = || "holds no key of 32 hex digits".to_owned();
        key.map(Some).ok_or_else(|| Error::Content { object: self.url(KEY), reason: reason() })
    }

    /// Makes a key where there is none, from 16 random bytes; gives the one that counts.
    ///
    /// # Errors
    /// As [`Self::key`].
    pub async fn make_key(&self, random: [u8; 16]) -> Result<PrintKey> {
        if let Some(key) = self.key().await? {
            return Ok(key);
        }
        self.create(KEY, hex(&random)).await?;
        // Another may have been first.
        let reason = || "neither there nor to be made".to_owned();
        self.key().await?.ok_or_else(|| Error::Content { object: self.url(KEY), reason: reason() })
    }
}

const KEY: &str = "key";

/// Does something for each of many, some at once, and gives the answers in their order.
///
/// # Errors
/// The first one.
pub async fn all<A, T, E, F>(of: Vec<A>, f: impl Fn(A) -> F) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<T, E>>,
{
    futures::stream::iter(of).map(f).buffered(AT_ONCE).try_collect().await
}

/// Does something for each of many, some at once.
///
/// # Errors
/// The first one.
pub async fn each<A, E, F>(of: Vec<A>, f: impl Fn(A) -> F) -> Result<(), E>
where
    F: Future<Output = Result<(), E>>,
{
    futures::stream::iter(of).map(f).buffer_unordered(AT_ONCE).try_collect().await
}
