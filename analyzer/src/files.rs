//! Which files of a store count.
//!
//! A store is kept in order beside its readers: small files are merged, old ones removed. A merged file names in its footer,
//! under [`schema::REPLACES_KEY`], those it replaces, and a file that is going to be removed has an empty `<file>.gone` beside
//! it. Both are left out here, so that every row counts once at each moment; they are deleted a while later, when no reader
//! that listed them before is at work any more.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::sync::{Mutex, PoisonError};

use baton_record::objects::{Listed, each};
use baton_record::schema;
use datafusion::parquet::file::metadata::{KeyValue, ParquetMetaDataReader};

use crate::place::Place;
use crate::session::{Error, Result, io};

/// Where files of spans lie.
pub(crate) const SPANS: &str = "spans";

/// What counts, and what that stands on.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// The files that count, sorted by name.
    pub(crate) files: Vec<Listed>,
    /// Of all files that are there: those they replace that are there too.
    pub(crate) replaces: BTreeMap<String, Vec<String>>,
}

/// The files of spans that count. Only footers are read, and only of files that are not `known` with what they replace.
///
/// # Errors
/// Where a folder or a footer cannot be read, and where a file has another layout.
pub(crate) async fn live(place: &Place, known: &BTreeMap<String, Vec<String>>) -> Result<Live> {
    let mut listed = place.list(SPANS).await?;
    let gone: HashSet<String> =
        listed.iter().filter_map(|f| f.name.strip_suffix(".gone")).map(str::to_owned).collect();
    listed.retain(|f| f.name.ends_with(".parquet"));
    let there: HashSet<&str> = listed.iter().map(|f| f.name.as_str()).collect();
    let read = Mutex::new(BTreeMap::new());
    let unknown: Vec<Listed> = listed.iter().filter(|f| !known.contains_key(&f.name)).cloned().collect();
    each(unknown, |file| {
        let (read, there) = (&read, &there);
        async move {
            // It may have been removed since it was listed.
            if let Some(found) = footer(place, &file).await? {
                let mut found = replaces(place, &file.name, &found)?;
                found.retain(|n| there.contains(n.as_str()));
                read.lock().unwrap_or_else(PoisonError::into_inner).insert(file.name, found);
            }
            Ok::<_, Error>(())
        }
    })
    .await?;
    let mut replaces = read.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Also of files out of use: what they replaced is out of use with them.
    for (name, list) in known.iter().filter(|(name, _)| there.contains(name.as_str())) {
        replaces.insert(name.clone(), list.clone());
    }
    let out_of_use: HashSet<&String> = replaces.values().flatten().chain(&gone).collect();
    let counts = |f: &Listed| replaces.contains_key(&f.name) && !out_of_use.contains(&f.name);
    let files = listed.iter().filter(|f| counts(f)).cloned().collect();
    Ok(Live { files, replaces })
}

fn replaces(place: &Place, name: &str, footer: &[KeyValue]) -> Result<Vec<String>> {
    let value = |key: &str| footer.iter().find(|k| k.key == key).and_then(|k| k.value.clone());
    match value(schema::VERSION_KEY) {
        Some(v) if v == schema::VERSION => {}
        other => {
            let found = other.unwrap_or("none".to_owned());
            return Err(Error::Layout { path: place.address(name).into(), found });
        }
    }
    let Some(list) = value(schema::REPLACES_KEY) else { return Ok(Vec::new()) };
    // Not to know what a file replaces is to count rows twice.
    let replaces: Vec<String> = serde_json::from_str(&list)
        .map_err(|e| wrong(place, name, &format!("{}: no list of paths: {e}", schema::REPLACES_KEY)))?;
    Ok(replaces.into_iter().map(|r| format!("{SPANS}/{r}")).collect())
}

fn wrong(place: &Place, name: &str, what: &str) -> Error {
    Error::Io { path: place.address(name).into(), source: io::Error::other(what.to_owned()) }
}

/// A file's own words about itself; `None` where it is not there.
async fn footer(place: &Place, file: &Listed) -> Result<Option<Vec<KeyValue>>> {
    let metadata = match place {
        Place::Folder(root) => {
            let path = root.join(&file.name);
            let open = match fs::File::open(&path) {
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
                open => open.map_err(io(&path))?,
            };
            ParquetMetaDataReader::new()
                .parse_and_finish(&open)
                .map_err(|e| wrong(place, &file.name, &e.to_string()))?
        }
        Place::Objects(objects) => match objects.footer(&file.name, file.size).await? {
            Some(metadata) => metadata,
            None => return Ok(None),
        },
    };
    Ok(Some(metadata.file_metadata().key_value_metadata().cloned().unwrap_or_default()))
}
