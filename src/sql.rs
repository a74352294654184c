//! `baton sql`.

use anyhow::Result;
use baton_analyzer::report::answer;
use baton_analyzer::window::Window;
use baton_record::config::Config;

use crate::cli::{Rows, Sql};
use crate::{Exit, source};

/// Answers a question in SQL.
pub(crate) fn run(args: &Sql, config: Config) -> Result<Exit> {
    source::block_on(async {
        let o = source::open(&args.source, config, Window::default()).await?;
        let (fields, batches) = o.session.read_only(&args.query).await?;
        let out = &mut std::io::BufWriter::new(std::io::stdout().lock());
        match args.format {
            Rows::Table => answer::table(&fields, &batches, out)?,
            Rows::Csv => answer::csv(&fields, &batches, out)?,
            Rows::Json => answer::json(&batches, out)?,
        }
        Ok(o.exit())
    })
}
