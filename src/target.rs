//! A store that files are read into. One on an object store is filled in a folder first, and then sent.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use baton_collector::store::Store;
use baton_record::canonical::hex;
use baton_record::objects::{Objects, Patience, each, is_url};
use tempfile::TempDir;
use walkdir::WalkDir;

use crate::{Usage, source};

/// The store.
pub(crate) struct Target {
    store: Store,
    remote: Option<(Objects, TempDir)>,
}

impl Target {
    /// Opens a store by its folder or URL, and makes it where there is none.
    pub(crate) fn open(place: &Path) -> Result<Self> {
        let Some(url) = place.to_str().filter(|s| is_url(s)) else {
            return Ok(Self { store: Store::open(place)?, remote: None });
        };
        let objects = Objects::open(url, Patience::LONG).map_err(|e| Usage(e.to_string()))?;
        let folder = tempfile::Builder::new().prefix("baton-").tempdir()?;
        // Fingerprints of one store are made under one key.
        let mut random = [0; 16];
        getrandom::fill(&mut random)?;
        let key = source::block_on(async { Ok(objects.make_key(random).await?) })?;
        std::fs::write(folder.path().join("key"), hex(&key.0))
            .with_context(|| folder.path().display().to_string())?;
        Ok(Self { store: Store::open(folder.path())?, remote: Some((objects, folder)) })
    }

    /// Writes what is held, and sends what was written.
    pub(crate) fn finish(mut self) -> Result<usize> {
        self.store.flush()?;
        let Some((objects, folder)) = self.remote else { return Ok(self.store.files_written) };
        let mut files = Vec::new();
        for entry in WalkDir::new(folder.path().join("spans")) {
            let entry = entry?;
            if entry.file_type().is_file() {
                files.push(entry.into_path());
            }
        }
        source::block_on(async {
            let n = files.len();
            let (objects, root) = (&objects, folder.path());
            each(files, |path: PathBuf| async move {
                let below = path.strip_prefix(root).unwrap_or(&path);
                let name: Vec<_> = below.iter().map(|p| p.to_string_lossy()).collect();
                objects.send(&path, &name.join("/")).await
            })
            .await?;
            Ok(n)
        })
    }
}

impl Deref for Target {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl DerefMut for Target {
    fn deref_mut(&mut self) -> &mut Store {
        &mut self.store
    }
}
