//! `baton compact`, `baton retain`, `baton check`.

use std::path::Path;
use std::time::SystemTime;

use anyhow::Result;
use baton_analyzer::report::text;
use baton_collector::keep::{self, CompactSettings, Problem, RetainSettings, remote};
use baton_record::objects::{Objects, Patience, is_url};

use crate::cli::{Check, Compact, Retain};
use crate::{Exit, Usage, source};

fn tell(problems: &[Problem]) -> Exit {
    for p in problems {
        eprintln!("problem: {}", text::plain(&p.to_string()));
    }
    if problems.is_empty() { Exit::Done } else { Exit::Unread }
}

/// The object store that a store's name is the URL of.
fn objects(store: &Path) -> Result<Option<Objects>> {
    let url = store.to_str().filter(|s| is_url(s));
    Ok(url.map(|u| Objects::open(u, Patience::LONG)).transpose().map_err(|e| Usage(e.to_string()))?)
}

/// Merges small files.
pub(crate) fn compact(args: &Compact) -> Result<Exit> {
    let settings = CompactSettings { all: args.all, dry_run: args.dry_run, ..CompactSettings::default() };
    let now = SystemTime::now();
    let done = match objects(&args.store)? {
        None => keep::compact(&args.store, &settings, now)?,
        Some(o) => source::block_on(async { Ok(remote::compact(&o, &settings, now).await?) })?,
    };
    for m in &done.merged {
        let folder = text::plain(&m.folder);
        match &m.into {
            Some(f) => println!(
                "{folder}: {} files, {} rows, {} bytes -> 1 file, {} rows, {} bytes",
                m.files, m.rows, m.bytes, f.rows, f.bytes
            ),
            None => {
                println!("{folder}: {} files, {} rows, {} bytes would be merged", m.files, m.rows, m.bytes)
            }
        }
    }
    println!(
        "{} merged, {} replaced files {}, {} wait to be deleted",
        done.merged.len(),
        done.deleted.len(),
        if done.dry_run { "would be deleted" } else { "deleted" },
        done.waiting
    );
    Ok(tell(&done.problems))
}

/// Removes what is old.
pub(crate) fn retain(args: &Retain) -> Result<Exit> {
    let time = keep::parse_duration(&args.keep).map_err(|e| Usage(e.to_string()))?;
    let settings = RetainSettings { dry_run: args.dry_run, ..RetainSettings::new(time) };
    let now = SystemTime::now();
    let done = match objects(&args.store)? {
        None => keep::retain(&args.store, &settings, now)?,
        Some(o) => source::block_on(async { Ok(remote::retain(&o, &settings, now).await?) })?,
    };
    let (would, were) = if done.dry_run { ("would be ", "would be ") } else { ("", "") };
    for f in &done.hidden {
        println!("{}: {would}removed", text::plain(f));
    }
    println!(
        "{} files ({} bytes) {would}taken out, {} files {were}deleted, {} wait to be deleted, {} empty folders {were}removed",
        done.hidden.len(),
        done.hidden_bytes,
        done.deleted.len(),
        done.waiting,
        done.folders.len()
    );
    Ok(Exit::Done)
}

/// Verifies a store.
pub(crate) fn check(args: &Check) -> Result<Exit> {
    let now = SystemTime::now();
    let found = match objects(&args.store)? {
        None => keep::check(&args.store, now)?,
        Some(o) => source::block_on(async { Ok(remote::check(&o, now).await?) })?,
    };
    for (folder, n) in &found.folders {
        println!("{}: {} files, {} rows", text::plain(folder), n.files, n.rows);
    }
    println!(
        "{} files, {} rows of {} traces; {} spans are there more than once and count once; {} replaced and {} removed files \
         wait to be deleted",
        found.files,
        found.rows,
        found.traces,
        found.doubles,
        found.replaced.len(),
        found.gone.len()
    );
    for f in found.leftovers.iter().chain(&found.orphans).chain(&found.unknown) {
        println!("left over: {}", text::plain(f));
    }
    Ok(tell(&found.problems))
}
