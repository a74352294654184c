//! `baton import`.

use anyhow::Result;
use baton_record::config::Config;

use crate::cli::Import;
use crate::target::Target;
use crate::{Exit, source};

/// Reads files into the store.
pub(crate) fn run(args: &Import, config: Config) -> Result<Exit> {
    let mut target = Target::open(&args.store)?;
    let s = source::read(&args.paths, &config, &mut target, true)?;
    let written = target.finish()?;
    println!(
        "{}: {} files read, {} spans and {} log records kept, {} new files written",
        args.store.display(),
        s.files,
        s.spans,
        s.logs,
        written
    );
    if s.metrics > 0 {
        println!("{} requests with metrics are not read", s.metrics);
    }
    Ok(if s.problems.is_empty() { Exit::Done } else { Exit::Unread })
}
