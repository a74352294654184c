//! `baton eval`.

use std::io::Write;

use anyhow::Result;
use baton_analyzer::report::{html, json, summary};
use baton_record::config::Config;

use crate::cli::{Eval, Format};
use crate::output::Output;
use crate::{Exit, emit, source, terminal};

/// Evaluates and writes the report.
pub(crate) fn run(args: &Eval, config: Config) -> Result<Exit> {
    let window = source::window(&args.period)?;
    // A place that cannot be written to is told before the work.
    let mut out = Output::open(args.output.as_deref())?;
    let target = args.emit.as_deref().map(emit::Target::parse).transpose()?;
    source::block_on(async {
        let o = source::open(&args.source, config, window).await?;
        match args.format {
            Format::Json => json::write(&o.session, &mut out).await?,
            Format::Html => html::write(&o.session, None, &mut out).await?,
            Format::Terminal => {
                let doc = summary::document(&o.session).await?;
                out.write_all(terminal::text(&doc, args.output.is_some()).as_bytes())?;
            }
            Format::Markdown => out.write_all(summary::document(&o.session).await?.markdown().as_bytes())?,
        }
        out.finish()?;
        if let Some(t) = target {
            emit::send(&o.session, &t).await?;
        }
        Ok(o.exit())
    })
}
