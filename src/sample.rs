//! `baton sample`.

use std::io::{BufWriter, Write};

use anyhow::Result;
use baton_analyzer::report::sample::{Choice, markdown, sample};
use baton_record::config::Config;

use crate::cli::{Review, Sample};
use crate::{Exit, source};

/// Prints transfers for review.
pub(crate) fn run(args: &Sample, config: Config) -> Result<Exit> {
    let window = source::window(&args.period)?;
    source::block_on(async {
        let o = source::open(&args.source, config, window).await?;
        let choice =
            Choice { n: args.n, seed: args.seed, by_pair: args.stratify.is_some(), worst: args.worst };
        let drawn = sample(&o.session, choice).await?;
        let mut out = BufWriter::new(std::io::stdout().lock());
        match args.format {
            Review::Markdown => out.write_all(markdown(&drawn).as_bytes())?,
            Review::Jsonl => {
                for s in &drawn {
                    serde_json::to_writer(&mut out, s)?;
                    out.write_all(b"\n")?;
                }
            }
        }
        out.flush()?;
        Ok(o.exit())
    })
}
