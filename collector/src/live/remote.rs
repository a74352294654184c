//! A store on an object store: the same files under the same names, one put each.
//!
//! A put is whole or not at all, so there is no temporary name. While the object store is away, rows wait in the journal. The key
//! of the fingerprints is the object `key`; a copy beside the journal lets a collector start while the store is away.

use std::path::Path as FilePath;
use std::time::Duration;

use arrow::array::RecordBatch;
use baton_record::canonical::{hex, sha256_hex};
use baton_record::prints::PrintKey;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{BackoffConfig, ObjectStore, ObjectStoreExt, PutMode, PutPayload, RetryConfig};
use tokio::runtime::Handle;

use super::journal::NotKept;
use super::keep;

/// A store on an object store.
pub struct Remote {
    store: Box<dyn ObjectStore>,
    prefix: Path,
    runtime: Handle,
}

/// True where a store's name is a URL and no folder.
pub fn is_url(store: &str) -> bool {
    store.contains("://")
}

impl Remote {
    /// Opens `s3://bucket/prefix`. Credentials, region and endpoint come from the usual `AWS_*` variables.
    ///
    /// # Errors
    /// Where the URL is wrong or of another kind.
    pub fn open(url: &str, runtime: Handle) -> Result<Self, String> {
        let rest = url.strip_prefix("s3://").ok_or_else(|| format!("{url}: only s3:// is known"))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        // Trying again is the journal's matter: it says so, and goes on taking rows meanwhile.
        let retry = RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: 1,
            retry_timeout: Duration::from_secs(10),
        };
        let store = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_retry(retry)
            .build()
            .map_err(|e| format!("{url}: {e}"))?;
        let prefix = Path::parse(prefix).map_err(|e| format!("{url}: {e}"))?;
        Ok(Self { store: Box::new(store), prefix, runtime })
    }

    /// The key of the store's fingerprints, which is made where there is none. `copy` is where it is kept for when the store
    /// is away.
    ///
    /// # Errors
    /// Where the store is away and there is no copy, or either holds no key.
    pub async fn key(&self, copy: &FilePath) -> Result<PrintKey, String> {
        let path = self.prefix.clone().join("key");
        let text = match self.fetch_or_make_key(&path).await {
            Ok(text) => {
                std::fs::write(copy, &text).map_err(|e| format!("{}: {e}", copy.display()))?;
                text
            }
            Err(away) => std::fs::read_to_string(copy).map_err(|_| format!("{path}: {away}"))?,
        };
        PrintKey::from_hex(&text).ok_or_else(|| format!("{path}: holds no key of 32 hex digits"))
    }

    async fn fetch_or_make_key(&self, path: &Path) -> Result<String, object_store::Error> {
        for _ in 0..2 {
            match self.store.get(path).await {
                Ok(found) => return Ok(String::from_utf8_lossy(&found.bytes().await?).into_owned()),
                Err(object_store::Error::NotFound { .. }) => {}
                Err(e) => return Err(e),
            }
            let mut key = [0u8; 16];
            if let Err(e) = getrandom::fill(&mut key) {
                return Err(object_store::Error::Generic { store: "key", source: e.to_string().into() });
            }
            let text = hex(&key);
            match self.store.put_opts(path, PutPayload::from(text.clone()), PutMode::Create.into()).await {
                Ok(_) => return Ok(text),
                // Another collector made it in between.
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                }
                Err(e) => return Err(e),
            }
        }
        Err(object_store::Error::Generic { store: "key", source: "neither there nor to be made".into() })
    }

    /// Puts the rows of a segment; gives the bytes written.
    ///
    /// # Errors
    /// [`NotKept::Later`] where the store refuses, [`NotKept::Never`] where the rows cannot be written at all.
    pub fn keep(&self, name: &str, batches: &[RecordBatch]) -> Result<u64, NotKept> {
        let mut bytes = 0;
        for (folder, file) in keep::files(batches)? {
            let id = &sha256_hex(&file)[..32];
            let path = folder.split('/').fold(self.prefix.clone().join("spans"), |p, part| p.join(part));
            let path = path.join(format!("{name}-{id}.parquet"));
            bytes += file.len() as u64;
            self.runtime
                .block_on(self.store.put(&path, PutPayload::from(file)))
                .map_err(|e| NotKept::Later(format!("{path}: {e}")))?;
        }
        Ok(bytes)
    }
}
