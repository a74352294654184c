//! Where a store lies: in a folder, or on an object store.
//!
//! Both hold files under the same names. What is computed of them reads and writes files of this machine: of an object store they are
//! fetched first and sent afterwards, whole, so that the work in between knows nothing of it.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use baton_record::objects::{self, Listed, Objects, Patience, each};
use baton_record::prints::PrintKey;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::prelude::SessionContext;
use tempfile::TempDir;

use crate::session::{Error, Result, io};

/// Where a store lies.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// In a folder, which is its root.
    Folder(PathBuf),
    /// On an object store.
    Objects(Objects),
}

/// Files that can be read on this machine for as long as this is held.
#[derive(Debug, Default)]
pub(crate) struct Local {
    pub(crate) paths: Vec<PathBuf>,
    _fetched: Option<TempDir>,
}

impl Place {
    /// What a user names: a folder, or a URL.
    ///
    /// # Errors
    /// Where the URL is wrong.
    pub(crate) fn open(store: &Path) -> Result<Self> {
        match store.to_str().filter(|s| objects::is_url(s)) {
            Some(url) => Ok(Self::Objects(Objects::open(url, Patience::LONG)?)),
            None => Ok(Self::Folder(store.to_owned())),
        }
    }

    /// The path or URL of a file, as the query engine takes it.
    pub(crate) fn address(&self, name: &str) -> String {
        match self {
            Self::Folder(root) => root.join(name).display().to_string(),
            Self::Objects(o) => o.url(name),
        }
    }

    /// Makes the place known to a query engine.
    ///
    /// # Errors
    /// Where its URL is none (a defect).
    pub(crate) fn register(&self, ctx: &SessionContext) -> Result<()> {
        if let Self::Objects(o) = self {
            ctx.register_object_store(ObjectStoreUrl::parse(o.origin())?.as_ref(), o.store());
        }
        Ok(())
    }

    /// True where there is a store, be it an empty one.
    ///
    /// # Errors
    /// The object store's.
    pub(crate) async fn is_store(&self) -> Result<bool> {
        Ok(match self {
            Self::Folder(root) => root.join("spans").is_dir(),
            Self::Objects(o) => o.key().await?.is_some() || !o.list("spans").await?.is_empty(),
        })
    }

    /// All files below a folder, sorted by name; none where there is no such folder.
    ///
    /// # Errors
    /// Where it cannot be listed.
    pub(crate) async fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        match self {
            Self::Folder(root) => {
                let mut out = Vec::new();
                walk(root, &root.join(folder), &mut out)?;
                out.sort_by(|a, b| a.name.cmp(&b.name));
                Ok(out)
            }
            Self::Objects(o) => Ok(o.list(folder).await?),
        }
    }

    /// The bytes of a file; `None` where there is none.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub(crate) async fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Folder(root) => {
                let path = root.join(name);
                match fs::read(&path) {
                    Ok(bytes) => Ok(Some(bytes)),
                    Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
                    Err(e) => Err(io(&path)(e)),
                }
            }
            Self::Objects(o) => Ok(o.get(name).await?.map(|b| b.to_vec())),
        }
    }

    /// Writes a file, which appears whole. A machine that fails may lose it, and others like it can be made again.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub(crate) async fn write(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        self.put(name, bytes, false).await
    }

    /// Writes a file that lasts from then on.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub(crate) async fn keep(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        self.put(name, bytes, true).await
    }

    async fn put(&self, name: &str, bytes: Vec<u8>, lasting: bool) -> Result<()> {
        match self {
            Self::Folder(root) => {
                let path = root.join(name);
                let dir = path.parent().unwrap_or(root);
                fs::create_dir_all(dir).map_err(io(dir))?;
                // No reader looks at a name that begins with a dot.
                let mut file = tempfile::Builder::new().prefix(".").tempfile_in(dir).map_err(io(dir))?;
                file.write_all(&bytes).map_err(io(&path))?;
                if lasting {
                    file.as_file().sync_all().map_err(io(&path))?;
                }
                file.persist(&path).map_err(|e| io(&path)(e.error))?;
                if lasting {
                    fs::File::open(dir).and_then(|d| d.sync_all()).map_err(io(dir))?;
                }
                Ok(())
            }
            Self::Objects(o) => Ok(o.put(name, bytes).await?),
        }
    }

    /// Files, to be read on this machine.
    ///
    /// # Errors
    /// Where one is not there or cannot be fetched.
    pub(crate) async fn local(&self, names: &[String]) -> Result<Local> {
        match self {
            Self::Folder(root) => {
                Ok(Local { paths: names.iter().map(|n| root.join(n)).collect(), _fetched: None })
            }
            Self::Objects(o) => {
                let dir = temporary()?;
                // By number: what stands in a folder of its own may have the name of another.
                let path = |i: usize, name: &str| {
                    let last = name.rsplit('/').next().unwrap_or_default();
                    dir.path().join(format!("{i}-{last}"))
                };
                let paths: Vec<PathBuf> = names.iter().enumerate().map(|(i, n)| path(i, n)).collect();
                let pairs: Vec<(String, PathBuf)> = names.iter().cloned().zip(paths.clone()).collect();
                each(pairs, |(name, path)| async move {
                    match o.fetch(&name, &path).await? {
                        true => Ok(()),
                        false => Err(gone(&o.url(&name))),
                    }
                })
                .await?;
                Ok(Local { paths, _fetched: Some(dir) })
            }
        }
    }

    /// A folder of this machine to write files in that are then put into a folder of this place.
    ///
    /// # Errors
    /// Where the file system refuses.
    pub(crate) fn workshop(&self, out: &str) -> Result<TempDir> {
        match self {
            // Beside where they go, so that they only change their name.
            Self::Folder(root) => {
                let dir = root.join(out);
                tempfile::Builder::new().prefix(".work-").tempdir_in(&dir).map_err(io(&dir))
            }
            Self::Objects(_) => temporary(),
        }
    }

    /// Puts all files of a workshop into a folder of this place, under their paths in it. What is there under one of these is replaced.
    ///
    /// # Errors
    /// Where one cannot be put.
    pub(crate) async fn publish(&self, workshop: &Path, out: &str) -> Result<()> {
        let mut files = Vec::new();
        walk(workshop, workshop, &mut files)?;
        let files = files.into_iter().map(|f| f.name).collect();
        match self {
            Self::Folder(root) => {
                for name in files {
                    let (from, to) = (workshop.join(&name), root.join(out).join(&name));
                    let dir = to.parent().unwrap_or(root);
                    fs::create_dir_all(dir).map_err(io(dir))?;
                    fs::rename(&from, &to).map_err(io(&to))?;
                }
                Ok(())
            }
            Self::Objects(o) => {
                each(files, |name: String| async move {
                    Ok(o.send(&workshop.join(&name), &format!("{out}/{name}")).await?)
                })
                .await
            }
        }
    }

    /// Gives files a second name, each by a pair of names.
    ///
    /// # Errors
    /// Where one is not there or cannot be written.
    pub(crate) async fn link(&self, pairs: Vec<(String, String)>) -> Result<()> {
        match self {
            Self::Folder(root) => {
                for (from, to) in pairs {
                    let (from, to) = (root.join(from), root.join(to));
                    // A copy where the file system has no second names.
                    fs::hard_link(&from, &to)
                        .or_else(|_| fs::copy(&from, &to).map(|_| ()))
                        .map_err(io(&from))?;
                }
                Ok(())
            }
            Self::Objects(o) => each(pairs, |(from, to)| async move { Ok(o.copy(&from, &to).await?) }).await,
        }
    }

    /// Removes files. One that is not there is no error.
    ///
    /// # Errors
    /// Where one cannot be removed.
    pub(crate) async fn remove(&self, names: Vec<String>) -> Result<()> {
        match self {
            Self::Folder(root) => {
                for name in names {
                    let path = root.join(name);
                    match fs::remove_file(&path) {
                        Err(e) if e.kind() != ErrorKind::NotFound => return Err(io(&path)(e)),
                        _ => {}
                    }
                }
                Ok(())
            }
            Self::Objects(o) => Ok(o.delete(names).await?),
        }
    }

    /// The key under which the spans were fingerprinted; all zero where the store names none.
    ///
    /// # Errors
    /// Where it cannot be read, or is none.
    pub(crate) async fn key(&self) -> Result<PrintKey> {
        let path = match self {
            Self::Folder(root) => root.join("key"),
            Self::Objects(o) => return Ok(o.key().await?.unwrap_or_default()),
        };
        let Some(text) = self.read("key").await? else { return Ok(PrintKey::default()) };
        PrintKey::from_hex(&String::from_utf8_lossy(&text))
            .ok_or_else(|| Error::Io { path, source: io::Error::other("holds no key of 32 hex digits") })
    }
}

/// Regular files below a folder; links are followed. Names are relative to the root.
fn walk(root: &Path, dir: &Path, out: &mut Vec<Listed>) -> Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(io(dir))?,
    };
    for entry in entries {
        let path = entry.map_err(io(dir))?.path();
        let meta = match fs::metadata(&path) {
            // Removed since the folder was listed.
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            meta => meta.map_err(io(&path))?,
        };
        if meta.is_dir() {
            walk(root, &path, out)?;
            continue;
        }
        let below = path.strip_prefix(root).unwrap_or(&path);
        out.push(Listed {
            name: below.iter().map(|p| p.to_string_lossy()).collect::<Vec<_>>().join("/"),
            size: meta.len(),
            modified: meta.modified().map_err(io(&path))?,
        });
    }
    Ok(())
}

fn temporary() -> Result<TempDir> {
    tempfile::Builder::new().prefix("baton-").tempdir().map_err(io(&std::env::temp_dir()))
}

fn gone(what: &str) -> Error {
    Error::Io { path: what.into(), source: io::Error::new(ErrorKind::NotFound, "it was there and is gone") }
}
