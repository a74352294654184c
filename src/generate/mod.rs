//! `baton generate`: made-up runs of agents whose truth is known, for measuring speed and for checking numbers at scale.
//!
//! Tasks run over one day or several, as a help desk for returns would: agents look things up, hand over with contracts of every quality,
//! delegate, and repeat each other. Spans leave in the order of their end, as exporters send them, so that tasks are interleaved
//! and children come before parents. Around each model call and tool stands a span of the HTTP or database client.
//! The same seed and number make the same bytes. On one day something may get worse between two agents, for a comparison to find.

mod profile;
mod regression;
mod script;
mod send;
mod truth;
mod wire;

use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use baton_analyzer::window::Window;
use baton_collector::import::{Summary, rows_of_traces};
use baton_collector::reading::Reader;
use baton_collector::store::Store;
use baton_record::config::Config;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use crate::cli::Generate;
use crate::target::Target;
use crate::{Exit, Usage, source};
pub(crate) use profile::Profile;
pub(crate) use regression::Regression;
use script::Script;
use send::{Options, Sender};
use truth::Truth;

/// Spans of one request.
const BATCH: usize = 512;

/// Where spans go.
enum Sink {
    /// Through the same reading as an import.
    Store(Box<Reader>, Box<Target>, Summary),
    /// A file of requests, each with its length in front.
    File(BufWriter<File>),
    /// A collector.
    Collector(Box<Sender>),
}

impl Sink {
    fn request(&mut self, spans: Vec<Span>) -> Result<()> {
        let request = wire::request(spans);
        match self {
            Self::File(out) => {
                let bytes = request.encode_to_vec();
                out.write_all(&u32::try_from(bytes.len())?.to_be_bytes())?;
                out.write_all(&bytes)?;
            }
            Self::Collector(sender) => sender.request(request)?,
            Self::Store(reader, store, summary) => into_store(reader, store, summary, &request)?,
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::File(mut out) => out.flush()?,
            Self::Store(_, target, _) => _ = target.finish()?,
            Self::Collector(sender) => sender.finish()?,
        }
        Ok(())
    }
}

fn into_store(
    reader: &Reader,
    store: &mut Store,
    summary: &mut Summary,
    request: &ExportTraceServiceRequest,
) -> Result<()> {
    let mut failed = None;
    let mut refused = None;
    rows_of_traces(
        reader,
        request,
        summary,
        &mut |at, why| refused = Some(format!("{at}: {why}")),
        &mut |row| {
            if failed.is_none() {
                failed = store.push(row).err();
            }
        },
    );
    if let Some(why) = refused {
        anyhow::bail!("a generated span is refused (a defect): {why}");
    }
    failed.map_or(Ok(()), |e| Err(e.into()))
}

/// A span that waits for its time to be sent: the earliest end first.
struct Waiting(Span);

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |w: &Self| (w.0.end_time_unix_nano, w.0.span_id.clone());
        key(other).cmp(&key(self))
    }
}

/// Generates.
pub(crate) fn run(args: &Generate, config: Config) -> Result<Exit> {
    if args.truth.is_some() && args.profile != Profile::Plain {
        return Err(Usage("--truth is told of the profile `plain` alone".to_owned()).into());
    }
    let mut sink = match (&args.store, &args.output, &args.to) {
        (Some(dir), None, None) => {
            let target = Box::new(Target::open(dir)?);
            Sink::Store(Box::new(Reader::new(Arc::new(config), target.key())), target, Summary::default())
        }
        (None, Some(path), None) => {
            Sink::File(BufWriter::new(File::create(path).with_context(|| path.display().to_string())?))
        }
        (None, None, Some(url)) => Sink::Collector(Box::new(Sender::new(Options {
            url: url.clone(),
            packing: args.compression.into(),
            connections: args.connections,
            rate: args.rate,
            token: std::env::var("BATON_TOKEN").ok(),
        })?)),
        _ => return Err(Usage("name one of --store, --output and --to".to_owned()).into()),
    };
    let mut truth = Truth::default();
    let made = generate(args, &mut truth, &mut |mut batch| {
        batch.iter_mut().for_each(|s| args.profile.apply(s));
        sink.request(batch)
    })?;
    sink.finish()?;
    if let Some(path) = &args.truth {
        write_truth(path, &truth)?;
    }
    println!(
        "{made} spans of {} tasks, {} handoffs, {} tool calls",
        truth.tasks,
        truth.handoffs(),
        truth.tool_calls
    );
    Ok(Exit::Done)
}

fn write_truth(path: &Path, truth: &Truth) -> Result<()> {
    let text = serde_json::to_string_pretty(&truth.json())?;
    std::fs::write(path, format!("{text}\n")).with_context(|| path.display().to_string())
}

/// When the first day begins.
fn first_day(args: &Generate) -> Result<u64> {
    let Some(until) = &args.until else { return Ok(script::DAY) };
    let end = Window::parse(None, Some(until), source::now()).map_err(|e| Usage(e.to_string()))?.until;
    let first =
        end.and_then(|t| u64::try_from(t).ok()).and_then(|t| t.checked_sub(args.days * script::DAY_NS));
    Ok(first
        .ok_or_else(|| Usage(format!("--until {until}: {} days before it there is no time", args.days)))?)
}

/// Makes tasks until there are about as many spans as asked for, and gives them in batches.
fn generate(
    args: &Generate,
    truth: &mut Truth,
    sink: &mut dyn FnMut(Vec<Span>) -> Result<()>,
) -> Result<u64> {
    let spans = args.spans;
    let mut rng = fastrand::Rng::with_seed(args.seed);
    let mut waiting: BinaryHeap<Waiting> = BinaryHeap::new();
    let mut batch: Vec<Span> = Vec::with_capacity(BATCH);
    let mut made = 0;
    // About how many tasks there will be, so that they fill the days.
    let tasks = (spans / script::SPANS_PER_TASK).max(1);
    let mut n = 0u64;
    let first = first_day(args)?;
    while made < spans {
        let since = (n % tasks) * (args.days * script::DAY_NS / tasks) + rng.u64(0..1_000_000);
        let start = first + since;
        let worse = args.regression.filter(|r| r.day == since / script::DAY_NS + 1);
        n += 1;
        // Two seeds make different conversations, so that both may be put into one store.
        let number = n + args.seed.saturating_sub(1).wrapping_mul(10_000_000);
        while waiting.peek().is_some_and(|w| w.0.end_time_unix_nano < start) {
            batch.extend(waiting.pop().map(|w| w.0));
            if batch.len() == BATCH {
                sink(std::mem::take(&mut batch))?;
            }
        }
        let task = Script::new(&mut rng, number, start, worse).run(truth);
        made += task.len() as u64;
        waiting.extend(task.into_iter().map(Waiting));
    }
    while let Some(w) = waiting.pop() {
        batch.push(w.0);
        if batch.len() == BATCH {
            sink(std::mem::take(&mut batch))?;
        }
    }
    if !batch.is_empty() {
        sink(batch)?;
    }
    Ok(made)
}
