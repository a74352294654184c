//! Which files of a store count.
//!
//! A store is kept in order beside its readers: small files are merged, old ones removed. A merged file names in its footer,
//! under [`schema::REPLACES_KEY`], those it replaces, and a file that is going to be removed has an empty `<file>.gone` beside
//! it. Both are left out here, so that every row counts once at each moment; they are deleted a while later, when no reader
//! that listed them before is at work any more.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use baton_record::schema;
use datafusion::parquet::file::metadata::{KeyValue, ParquetMetaDataReader};

use crate::session::{Error, Result, io};

/// The files below `spans` that count, sorted. Only footers are read.
///
/// # Errors
/// Where a folder or a footer cannot be read, and where a file has another layout.
pub fn live(spans: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut out_of_use) = (Vec::new(), HashSet::new());
    list(spans, &mut files, &mut out_of_use)?;
    let mut found = Vec::new();
    // Also of files out of use: what they replaced is out of use with them.
    for path in files {
        let Some(footer) = footer(&path)? else { continue };
        let value = |key: &str| footer.iter().find(|k| k.key == key).and_then(|k| k.value.clone());
        match value(schema::VERSION_KEY) {
            Some(v) if v == schema::VERSION => {}
            other => return Err(Error::Layout { path, found: other.unwrap_or("none".to_owned()) }),
        }
        if let Some(list) = value(schema::REPLACES_KEY) {
            // Not to know what a file replaces is to count rows twice.
            let replaces: Vec<String> = serde_json::from_str(&list).map_err(|e| Error::Io {
                path: path.clone(),
                source: std::io::Error::other(format!("{}: no list of paths: {e}", schema::REPLACES_KEY)),
            })?;
            out_of_use.extend(replaces.iter().map(|r| spans.join(r)));
        }
        found.push(path);
    }
    found.retain(|f| !out_of_use.contains(f));
    found.sort();
    Ok(found)
}

/// All names below `spans`, sorted. A file never changes under its name, so what counts changes only where these do.
///
/// # Errors
/// Where a folder cannot be read.
pub fn names(spans: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut gone) = (Vec::new(), HashSet::new());
    list(spans, &mut files, &mut gone)?;
    files.extend(gone.into_iter().map(|f| f.join("gone")));
    files.sort();
    Ok(files)
}

fn list(dir: &Path, files: &mut Vec<PathBuf>, gone: &mut HashSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(io(dir))? {
        let path = entry.map_err(io(dir))?.path();
        if path.is_dir() {
            list(&path, files, gone)?;
        } else {
            match path.extension().and_then(|e| e.to_str()) {
                Some("parquet") => files.push(path),
                Some("gone") => _ = gone.insert(path.with_extension("")),
                _ => {}
            }
        }
    }
    Ok(())
}

/// A file's own words about itself; `None` where it was removed since it was listed.
fn footer(path: &Path) -> Result<Option<Vec<KeyValue>>> {
    let file = match fs::File::open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(io(path))?,
    };
    let metadata = ParquetMetaDataReader::new()
        .parse_and_finish(&file)
        .map_err(|e| Error::Io { path: path.to_owned(), source: std::io::Error::other(e.to_string()) })?;
    Ok(Some(metadata.file_metadata().key_value_metadata().cloned().unwrap_or_default()))
}
