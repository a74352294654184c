//! `baton eval`.

use std::io::Write;

use anyhow::Result;
use baton_analyzer::report::{json, summary};
use baton_record::config::Config;

use crate::cli::{Eval, Format};
use crate::{Exit, source};

/// Evaluates and prints the report.
pub(crate) fn run(args: &Eval, config: Config) -> Result<Exit> {
    source::block_on(async {
        let o = source::open(&args.source, config).await?;
        let text = match args.format {
            Format::Json => format!("{}\n", json::report(&o.session).await?),
            Format::Terminal => summary::document(&o.session).await?.terminal(),
            Format::Markdown => summary::document(&o.session).await?.markdown(),
        };
        std::io::stdout().lock().write_all(text.as_bytes())?;
        Ok(o.exit())
    })
}
