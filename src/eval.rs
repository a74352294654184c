//! `baton eval`.

use std::io::{BufWriter, Write};

use anyhow::Result;
use baton_analyzer::report::{json, summary};
use baton_record::config::Config;

use crate::cli::{Eval, Format};
use crate::{Exit, emit, source};

/// Evaluates and prints the report.
pub(crate) fn run(args: &Eval, config: Config) -> Result<Exit> {
    let target = args.emit.as_deref().map(emit::Target::parse).transpose()?;
    source::block_on(async {
        let o = source::open(&args.source, config).await?;
        let mut out = BufWriter::new(std::io::stdout().lock());
        match args.format {
            Format::Json => json::write(&o.session, &mut out).await?,
            Format::Terminal => out.write_all(summary::document(&o.session).await?.terminal().as_bytes())?,
            Format::Markdown => out.write_all(summary::document(&o.session).await?.markdown().as_bytes())?,
        }
        out.flush()?;
        if let Some(t) = target {
            emit::send(&o.session, &t).await?;
        }
        Ok(o.exit())
    })
}
