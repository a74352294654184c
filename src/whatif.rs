//! `baton whatif`: the filters of the tracing layer, applied to transfers that were recorded.

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use baton_analyzer::assemble::{HistoryFilter, Step};
use baton_analyzer::report::text;
use baton_analyzer::report::whatif::WhatIf;
use baton_collector::handoff::filter::Filter;
use baton_collector::handoff::history::History;
use baton_collector::messages::{Message, Part};
use baton_collector::reading::Reader;
use baton_collector::said::Messages;
use baton_record::config::{Config, ContentMode};
use baton_record::json;
use baton_record::span::{Args, Item, ItemKind, Source};
use regex::Regex;
use serde_json::Value;

use crate::cli::{Sheet, Whatif};
use crate::{Exit, Usage, source, terminal};

/// Prints what was passed, and what the filter would have passed.
pub(crate) fn run(args: &Whatif, config: Config) -> Result<Exit> {
    let wanted = args.filter.iter().map(|f| steps(f)).collect::<Result<Vec<_>, _>>()?.concat();
    let window = source::window(&args.period)?;
    source::block_on(async {
        let o = source::open(&args.source, config.clone(), window).await?;
        // Changed text is read as the collector reads it, with the key of the store; it stays in memory.
        let reading = Config { content: ContentMode::Full, ..config.clone() };
        let reader = Arc::new(Reader::new(Arc::new(reading), o.session.key()));
        let filter = HistoryFilter {
            steps: wanted.into_iter().map(|s| s.step(&reader)).collect(),
            config: Arc::new(config.clone()),
        };
        let folder = tempfile::Builder::new().prefix("baton-").tempdir()?;
        let filtered = o.session.under_filter(&config, filter, folder.path()).await?;
        let w = WhatIf::new(&o.session, &filtered, &args.filter.join(",")).await?;
        let mut out = std::io::stdout().lock();
        match args.format {
            Sheet::Json => {
                serde_json::to_writer(&mut out, &w.json())?;
                out.write_all(b"\n")?;
            }
            Sheet::Terminal => out.write_all(terminal::text(&w.document(), false).as_bytes())?,
            Sheet::Markdown => out.write_all(w.document().markdown().as_bytes())?,
        }
        Ok(o.exit())
    })
}

/// A step as it was asked for.
#[derive(Debug, Clone)]
enum Wanted {
    /// One that looks at no content.
    Structure(Step),
    /// One of the tracing layer that changes content.
    Content(Filter),
}

impl Wanted {
    fn step(self, reader: &Arc<Reader>) -> Step {
        match self {
            Self::Structure(s) => s,
            Self::Content(filter) => {
                let reader = reader.clone();
                Step::Change(Arc::new(move |i| change(&filter, &reader, i)))
            }
        }
    }
}

/// Reads `remove_tools,last_n=6,redact=REGEX`.
fn steps(text: &str) -> Result<Vec<Wanted>, Usage> {
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let step = match rest.starts_with("redact=") {
            // A pattern may hold commas.
            true => std::mem::take(&mut rest),
            false => {
                let (step, more) = rest.split_once(',').unwrap_or((rest, ""));
                rest = more;
                step
            }
        };
        let (name, value) = step.split_once('=').map_or((step, None), |(n, v)| (n, Some(v)));
        out.push(
            one(name.trim(), value)
                .map_err(|why| Usage(format!("--filter: {}: {why}", text::plain(step))))?,
        );
    }
    if out.is_empty() { Err(Usage("--filter: no step".to_owned())) } else { Ok(out) }
}

fn one(name: &str, value: Option<&str>) -> Result<Wanted, String> {
    let number = || {
        let v = value.ok_or("needs a number, as in `last_n=6`")?;
        v.trim().parse::<u32>().map_err(|e| format!("{}: {e}", text::plain(v)))
    };
    let listed = || value.filter(|v| !v.is_empty()).ok_or_else(|| "needs a value after `=`".to_owned());
    Ok(match name {
        "remove_tools" if value.is_some() => return Err("takes no value".to_owned()),
        "remove_tools" => Wanted::Structure(Step::RemoveTools),
        "last_n" => Wanted::Structure(Step::LastItems(number()? as usize)),
        "last_turns" => Wanted::Structure(Step::LastTurns(number()? as usize)),
        "budget" => Wanted::Structure(Step::Budget(i64::from(number()?))),
        "only_fields" => {
            Wanted::Content(Filter::OnlyFields(listed()?.split('|').map(|f| f.trim().to_owned()).collect()))
        }
        "redact" => Wanted::Content(Filter::Redact(vec![Regex::new(listed()?).map_err(|e| e.to_string())?])),
        _ => return Err("no such step; `baton whatif --help` lists them".to_owned()),
    })
}

/// An item after a filter of the tracing layer; `None` where it stays as it is.
fn change(filter: &Filter, reader: &Reader, i: &Item) -> Option<Item> {
    let said = i.text.as_deref()?.to_owned();
    let (name, id) = (i.name.clone(), i.call_id.clone());
    let part = match i.kind {
        ItemKind::Call if i.args == Args::Absent => return None,
        ItemKind::Call => {
            let args = json::parse(&said).unwrap_or(Value::String(said));
            Part::Call { name: name.unwrap_or_default(), id, args: Some(args) }
        }
        ItemKind::Result => Part::Result { name, id, content: Value::String(said), error: i.error },
        ItemKind::Text | ItemKind::Instructions => Part::Text(said),
    };
    let message = Message { speaker: i.speaker, author: None, parts: vec![part] };
    let f = History::from(vec![message]).filtered(std::slice::from_ref(filter));
    if f.removed.is_empty() {
        return None;
    }
    reader.said(Messages::List(f.history.messages), Source::Input).items.into_iter().next()
}
