//! A store on an object store: the same files under the same names, one put each.
//!
//! While the object store is away, rows wait in the journal. The key of the fingerprints is the object `key`; a copy beside the journal
//! lets a collector start while the store is away.

use std::path::Path;
use std::time::Duration;

use arrow::array::RecordBatch;
use baton_record::canonical::{hex, sha256_hex};
use baton_record::objects::{Objects, Patience};
use baton_record::prints::PrintKey;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::journal::NotKept;
use super::keep;

/// How long an answer is waited for where one can do without.
const SOON: Duration = Duration::from_secs(3);

/// A store on an object store.
pub struct Remote {
    /// Tries again and again.
    patient: Objects,
    objects: Objects,
    runtime: Handle,
}

impl Remote {
    /// Opens a URL.
    ///
    /// # Errors
    /// As [`Objects::open`].
    pub fn open(url: &str, runtime: Handle) -> Result<Self, String> {
        let open = |patience| Objects::open(url, patience).map_err(|e| e.to_string());
        // Trying again is the journal's matter: it says so, and goes on taking rows meanwhile.
        Ok(Self { patient: open(Patience::LONG)?, objects: open(Patience::SHORT)?, runtime })
    }

    /// The key of the store's fingerprints, which is made where there is none. `copy` is where it is kept for when the store
    /// is away.
    ///
    /// # Errors
    /// Where the store is away and there is no copy, or either holds no key.
    pub async fn key(&self, copy: &Path) -> Result<PrintKey, String> {
        let mut random = [0u8; 16];
        getrandom::fill(&mut random).map_err(|e| e.to_string())?;
        let known = match std::fs::read_to_string(copy) {
            Ok(text) => Some(
                PrintKey::from_hex(&text)
                    .ok_or_else(|| format!("{}: holds no key of 32 hex digits", copy.display()))?,
            ),
            Err(_) => None,
        };
        let key = match known {
            Some(known) => match timeout(SOON, self.objects.make_key(random)).await {
                Ok(Ok(key)) => key,
                // Away, or slow.
                _ => return Ok(known),
            },
            None => self.patient.make_key(random).await.map_err(|e| e.to_string())?,
        };
        std::fs::write(copy, hex(&key.0)).map_err(|e| format!("{}: {e}", copy.display()))?;
        Ok(key)
    }

    /// Puts the rows of a segment; gives the bytes written.
    ///
    /// # Errors
    /// [`NotKept::Later`] where the store refuses, [`NotKept::Never`] where the rows cannot be written at all.
    pub fn keep(&self, name: &str, batches: &[RecordBatch]) -> Result<u64, NotKept> {
        let mut bytes = 0;
        for (folder, file) in keep::files(batches)? {
            let id = &sha256_hex(&file)[..32];
            let name = format!("spans/{folder}/{name}-{id}.parquet");
            bytes += file.len() as u64;
            let put = self.objects.put(&name, file);
            self.runtime.block_on(put).map_err(|e| NotKept::Later(e.to_string()))?;
        }
        Ok(bytes)
    }
}
