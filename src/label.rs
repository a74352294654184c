//! `baton label`.

use std::io::{Read, Write};

use anyhow::{Context, Result};
use baton_analyzer::labels::{Automatic, agreement, keep, parse};
use baton_analyzer::report::{labels, text};
use baton_analyzer::session::{Limits, Session};
use baton_analyzer::window::Window;
use baton_record::config::Config;

use crate::cli::{Label, Page};
use crate::{Exit, source, terminal};

/// Keeps the labels of a file, and prints the agreement of all that are kept.
pub(crate) fn run(args: &Label, config: Config) -> Result<Exit> {
    source::block_on(async {
        let mut session = Session::open(&args.store, &config, Limits::default(), Window::default()).await?;
        if let Some(file) = &args.file {
            let name = text::plain(&file.display().to_string());
            let read = match name.as_str() {
                "-" => {
                    let mut text = String::new();
                    std::io::stdin().lock().read_to_string(&mut text).map(|_| text)
                }
                _ => std::fs::read_to_string(file),
            };
            let automatic = Automatic::new(&session).await?;
            let known = |id: &str| automatic.of(id).is_some();
            let found = parse(&name, &read.context(name.clone())?, args.reviewer.as_deref(), known)?;
            if !found.is_empty() {
                keep(&args.store, &found, source::now()).await?;
                session = Session::open(&args.store, &config, Limits::default(), Window::default()).await?;
            }
            terminal::note(&format!("{name}: {} labelled transfers kept", found.len()));
        }
        let page = labels::document(&agreement(&session).await?);
        let text = match args.format {
            Page::Terminal => terminal::text(&page, false),
            Page::Markdown => page.markdown(),
        };
        std::io::stdout().lock().write_all(text.as_bytes())?;
        Ok(Exit::Done)
    })
}
