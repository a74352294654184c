//! `baton explain`.

use std::io::Write;

use anyhow::Result;
use baton_analyzer::report::explain::{Found, explain};
use baton_analyzer::report::text;
use baton_analyzer::window::Window;
use baton_record::config::Config;

use crate::cli::{Explain, Page};
use crate::{Exit, Usage, source, terminal};

/// Prints the story of one task.
pub(crate) fn run(args: &Explain, config: Config) -> Result<Exit> {
    source::block_on(async {
        let o = source::open(&args.source, config, Window::default()).await?;
        let doc = match explain(&o.session, &args.id).await? {
            Found::Story(d) => d,
            Found::Nothing => {
                return Err(
                    Usage(format!("no task, trace or handoff has the id {}", text::plain(&args.id))).into()
                );
            }
            Found::Several(ids) => {
                let list: Vec<String> = ids.iter().map(|i| text::plain(i)).collect();
                return Err(Usage(format!(
                    "{} is the start of several: {}",
                    text::plain(&args.id),
                    list.join(", ")
                ))
                .into());
            }
        };
        let text = match args.format {
            Page::Terminal => terminal::text(&doc, false),
            Page::Markdown => doc.markdown(),
        };
        std::io::stdout().lock().write_all(text.as_bytes())?;
        Ok(o.exit())
    })
}
