//! `baton import`.

use anyhow::Result;
use baton_collector::store::Store;
use baton_record::config::Config;

use crate::cli::Import;
use crate::{Exit, source};

/// Reads files into the store.
pub(crate) fn run(args: &Import, config: Config) -> Result<Exit> {
    let mut store = Store::open(&args.store)?;
    let s = source::read(&args.paths, &config, &mut store, true)?;
    println!(
        "{}: {} files read, {} spans and {} log records kept, {} new files written",
        args.store.display(),
        s.files,
        s.spans,
        s.logs,
        store.files_written
    );
    if s.metrics > 0 {
        println!("{} requests with metrics are not read", s.metrics);
    }
    Ok(if s.problems.is_empty() { Exit::Done } else { Exit::Unread })
}
