//! `baton eval`.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use baton_analyzer::compare::{Side, compare};
use baton_analyzer::evaluate::totals;
use baton_analyzer::gates::file::{Against, Baseline, Gates};
use baton_analyzer::gates::{self, Outcome};
use baton_analyzer::report::{gates as forms, html, json, summary};
use baton_analyzer::window::Window;
use baton_record::config::Config;

use crate::cli::{Eval, Format, Source};
use crate::output::Output;
use crate::source::Opened;
use crate::{Exit, Usage, emit, source, terminal};

/// Evaluates and writes the report.
pub(crate) fn run(args: &Eval, config: Config) -> Result<Exit> {
    let gates = args.gate.as_deref().map(read).transpose()?;
    if gates.is_none() && args.format == Format::Junit {
        return Err(Usage("--format junit tells of gates: name them with --gate".to_owned()).into());
    }
    let window = source::window(&args.period)?;
    // A place that cannot be written to is told before the work.
    let mut out = Output::open(args.output.as_deref())?;
    let target = args.emit.as_deref().map(emit::Target::parse).transpose()?;
    source::block_on(async {
        let o = source::open_on(args.engine.clone(), &args.source, config.clone(), window).await?;
        let (mut answers, mut before, mut exit) = (None, None, o.exit());
        if let Some(g) = &gates {
            if let Some(b) = &g.baseline {
                before = Some(baseline(b, window, &args.source, config).await?);
            }
            let asked = ask(&o, g, before.as_ref()).await?;
            answers = Some(asked.0);
            exit = asked.1;
        }
        let answers = answers.as_deref();
        match args.format {
            Format::Json => json::write(&o.session, answers, &mut out).await?,
            Format::Html => {
                let was = match &before {
                    Some((b, None)) => Some(totals(&b.session).await?),
                    // The page shows totals of a whole store, not of one service.
                    _ => None,
                };
                html::write(&o.session, was.as_deref(), answers, &mut out).await?;
            }
            Format::Terminal => {
                let mut doc = summary::document(&o.session).await?;
                // The end of a long report is what a terminal shows.
                doc.sections.extend(answers.map(forms::section));
                out.write_all(terminal::text(&doc, args.output.is_some()).as_bytes())?;
            }
            Format::Markdown => {
                let mut doc = summary::document(&o.session).await?;
                // Whoever reads a summary wants to know first, after what it is about.
                let second = doc.sections.len().min(1);
                doc.sections.splice(second..second, answers.map(forms::section));
                out.write_all(doc.markdown().as_bytes())?;
            }
            Format::Junit => out.write_all(forms::junit(answers.unwrap_or_default()).as_bytes())?,
        }
        out.finish()?;
        if let Some(t) = target {
            emit::send(&o.session, &t).await?;
        }
        Ok(exit)
    })
}

fn read(path: &Path) -> Result<Gates> {
    let text = std::fs::read_to_string(path).map_err(|e| Usage(format!("{}: {e}", path.display())))?;
    Ok(Gates::parse(&path.display().to_string(), &text).map_err(|e| Usage(e.to_string()))?)
}

/// Opens what a run is compared with, and the service that it is about.
async fn baseline(
    baseline: &Baseline,
    window: Window,
    source: &Source,
    config: Config,
) -> Result<(Opened, Option<String>)> {
    let long = match &baseline.against {
        Against::Named(word) => return source::named(word, config).await,
        Against::Before(long) => i64::try_from(long.as_nanos()).unwrap_or(i64::MAX),
    };
    let until = window
        .since
        .ok_or_else(|| Usage("baseline.before: the run has no beginning; name it with --since".to_owned()))?;
    let window = Window { since: Some(until.saturating_sub(long)), until: Some(until) };
    Ok((source::open(source, config, window).await?, None))
}

/// Asks the gates. A gate that failed counts more than input that could not be read, and that more than data that is missing, for
/// which it may be the cause.
async fn ask(
    o: &Opened,
    gates: &Gates,
    before: Option<&(Opened, Option<String>)>,
) -> Result<(Vec<gates::Answer>, Exit)> {
    let mut unread = o.exit() != Exit::Done;
    let comparison = match gates.baseline.as_ref().zip(before) {
        Some((b, (was, service))) => {
            unread |= was.exit() != Exit::Done;
            let a = Side { session: &was.session, service: service.as_deref() };
            let run = Side { session: &o.session, service: None };
            Some(compare(a, run, &b.measures, b.level).await?)
        }
        None => None,
    };
    let answers = gates::check(&o.session, gates, comparison.as_ref()).await?;
    let exit = match gates::outcome(&answers) {
        Outcome::Failed => Exit::Failed,
        _ if unread => Exit::Unread,
        Outcome::NotEnoughData => Exit::NotEnoughData,
        Outcome::Passed => Exit::Done,
    };
    Ok((answers, exit))
}
