//! `baton eval`.

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Result;
use baton_analyzer::compare::{Side, compare};
use baton_analyzer::gates::file::{Against, Gates};
use baton_analyzer::gates::{self, Answer, Outcome};
use baton_analyzer::report::{gates as forms, json, summary};
use baton_analyzer::window::Window;
use baton_record::config::Config;

use crate::cli::{Eval, Format, Source};
use crate::source::Opened;
use crate::{Exit, Usage, source};

/// Evaluates and prints the report.
pub(crate) fn run(args: &Eval, config: Config) -> Result<Exit> {
    let gates = args.gate.as_deref().map(read).transpose()?;
    if gates.is_none() && args.format == Format::Junit {
        return Err(Usage("--format junit tells of gates: name them with --gate".to_owned()).into());
    }
    let window = source::window(&args.period)?;
    source::block_on(async {
        let o = source::open(&args.source, config.clone(), window).await?;
        let (answers, exit) = match &gates {
            Some(g) => check(&o, g, &args.source, config).await.map(|(a, e)| (Some(a), e))?,
            None => (None, o.exit()),
        };
        let mut out = BufWriter::new(std::io::stdout().lock());
        let answers = answers.as_deref();
        match args.format {
            Format::Json => json::write(&o.session, answers, &mut out).await?,
            Format::Terminal => {
                let mut doc = summary::document(&o.session).await?;
                // The end of a long report is what a terminal shows.
                doc.sections.extend(answers.map(forms::section));
                out.write_all(doc.terminal().as_bytes())?;
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
        out.flush()?;
        Ok(exit)
    })
}

fn read(path: &Path) -> Result<Gates> {
    let text = std::fs::read_to_string(path).map_err(|e| Usage(format!("{}: {e}", path.display())))?;
    Ok(Gates::parse(&path.display().to_string(), &text).map_err(|e| Usage(e.to_string()))?)
}

/// Asks the gates. A gate that failed counts more than input that could not be read, and that more than data that is missing, for
/// which it may be the cause.
async fn check(o: &Opened, gates: &Gates, source: &Source, config: Config) -> Result<(Vec<Answer>, Exit)> {
    let mut unread = o.exit();
    let comparison = match &gates.baseline {
        Some(b) => {
            let (before, service) = match &b.against {
                Against::Named(word) => source::named(word, config).await?,
                Against::Before(long) => {
                    let until = o.session.window().since.ok_or_else(|| {
                        Usage("baseline.before: the run has no beginning; name it with --since".to_owned())
                    })?;
                    let long = i64::try_from(long.as_nanos()).unwrap_or(i64::MAX);
                    let window = Window { since: Some(until.saturating_sub(long)), until: Some(until) };
                    (source::open(source, config, window).await?, None)
                }
            };
            if before.exit() != Exit::Done {
                unread = before.exit();
            }
            let a = Side { session: &before.session, service: service.as_deref() };
            let run = Side { session: &o.session, service: None };
            Some(compare(a, run, &b.measures, b.level).await?)
        }
        None => None,
    };
    let answers = gates::check(&o.session, gates, comparison.as_ref()).await?;
    let exit = match gates::outcome(&answers) {
        Outcome::Failed => Exit::Failed,
        _ if unread != Exit::Done => unread,
        Outcome::NotEnoughData => Exit::NotEnoughData,
        Outcome::Passed => Exit::Done,
    };
    Ok((answers, exit))
}
