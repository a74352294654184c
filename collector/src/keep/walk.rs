//! The folders of hours, and what lies in them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{Error, at, name_of};
use crate::store::TEMPORARY;

/// A regular file.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub path: PathBuf,
    /// Relative to `spans/`, with `/`.
    pub name: String,
    pub bytes: u64,
    pub modified: SystemTime,
}

/// A folder `date=*/hour=*`.
#[derive(Debug)]
pub(super) struct Hour {
    pub dir: PathBuf,
    /// Relative to `spans/`, with `/`.
    pub name: String,
    /// Start in seconds since 1970; `None`: `date=unknown`.
    pub start: Option<i64>,
    pub files: Vec<Found>,
    /// `<file>.gone`.
    pub gone: Vec<Found>,
    /// Files that are being written, or were when something crashed.
    pub temporary: Vec<Found>,
}

/// All that lies under `spans/`. What is neither a folder of an hour nor known in one is `unknown`, and so is every link.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub hours: Vec<Hour>,
    pub unknown: Vec<String>,
}

/// Reads the folders, sorted by name. No link is followed.
pub(super) fn walk(spans: &Path) -> Result<Tree, Error> {
    let mut out = Tree::default();
    for date in entries(spans)? {
        let named = date.name.strip_prefix("date=").and_then(date_of);
        let (true, Some(day)) = (date.is_dir, named) else {
            out.unknown.push(name_of(spans, &date.path));
            continue;
        };
        for hour in entries(&date.path)? {
            let of_day = hour.name.strip_prefix("hour=").and_then(|h| number(h, 2)).filter(|h| *h < 24);
            let (true, Some(h)) = (hour.is_dir, of_day) else {
                out.unknown.push(name_of(spans, &hour.path));
                continue;
            };
            let start = day.map(|d| d * 86_400 + h * 3600);
            let (found, unknown) = read_hour(spans, hour.path, start)?;
            out.hours.push(found);
            out.unknown.extend(unknown);
        }
    }
    Ok(out)
}

fn read_hour(spans: &Path, dir: PathBuf, start: Option<i64>) -> Result<(Hour, Vec<String>), Error> {
    let mut unknown = Vec::new();
    let mut hour = Hour {
        name: name_of(spans, &dir),
        start,
        files: Vec::new(),
        gone: Vec::new(),
        temporary: Vec::new(),
        dir,
    };
    for e in entries(&hour.dir)? {
        let name = name_of(spans, &e.path);
        let list = match e.name.as_str() {
            n if n.ends_with(".parquet") => &mut hour.files,
            n if n.ends_with(".parquet.gone") => &mut hour.gone,
            n if n.starts_with(TEMPORARY.0) && n.ends_with(TEMPORARY.1) => &mut hour.temporary,
            _ => {
                unknown.push(name);
                continue;
            }
        };
        if !e.is_file {
            unknown.push(name);
            continue;
        }
        match fs::symlink_metadata(&e.path).and_then(|m| Ok((m.len(), m.modified()?))) {
            Ok((bytes, modified)) => list.push(Found { path: e.path, name, bytes, modified }),
            // Deleted since the folder was listed.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(at(&e.path)(source)),
        }
    }
    Ok((hour, unknown))
}

struct Entry {
    path: PathBuf,
    name: String,
    is_dir: bool,
    is_file: bool,
}

fn entries(dir: &Path) -> Result<Vec<Entry>, Error> {
    let list = match fs::read_dir(dir) {
        // Removed since the folder above was listed.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(at(dir))?,
    };
    let mut out = Vec::new();
    for e in list {
        let e = e.map_err(at(dir))?;
        // The kind of the entry itself: a link is neither a folder nor a file.
        let kind = e.file_type().map_err(at(dir))?;
        let name = e.file_name().to_string_lossy().into_owned();
        out.push(Entry { path: e.path(), name, is_dir: kind.is_dir(), is_file: kind.is_file() });
    }
    out.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(out)
}

/// A number of exactly so many digits.
fn number(text: &str, digits: usize) -> Option<i64> {
    (text.len() == digits && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

/// The day of `YYYY-MM-DD` since 1970, `Some(None)` for `unknown`; `None` where it is no date.
fn date_of(text: &str) -> Option<Option<i64>> {
    if text == "unknown" {
        return Some(None);
    }
    let mut parts = text.split('-');
    let (y, m, d) = (number(parts.next()?, 4)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let leap = y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
    let days = match m {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if parts.next().is_some() || !(1..=days).contains(&d) {
        return None;
    }
    // Years are counted from March, so that the day of a leap year comes last.
    let (y, m) = if m > 2 { (y, m - 3) } else { (y - 1, m + 9) };
    let before = 365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400);
    Some(Some(before + (153 * m + 2) / 5 + d - 1 - 719_468))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::partition;

    #[test]
    fn dates_are_those_of_the_folders() {
        for day in [-106_000, -719, -1, 0, 58, 59, 60, 789, 11_016, 20_786, 47_540, 106_000] {
            let folder = partition(Some(day * 86_400_000_000_000));
            let date = folder.strip_prefix("date=").and_then(|f| f.strip_suffix("/hour=00"));
            assert_eq!(date.and_then(date_of), Some(Some(day)), "{folder}");
        }
        assert_eq!(date_of("unknown"), Some(None));
        for no in ["2026-02-29", "2026-13-01", "2026-00-01", "2026-1-01", "2026-01-01-01", "+026-01-01", ""] {
            assert_eq!(date_of(no), None, "{no}");
        }
    }
}
