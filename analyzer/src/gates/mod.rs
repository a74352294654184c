//! Gates: whether a run is good enough. [`mod@file`] says what they are; this module says whether they hold.

pub mod file;

use std::collections::HashMap;

use crate::compare::{Change, Comparison, MIN_TASKS, Rate, Verdict};
use crate::evaluate::Stream;
use crate::measures::{Measure, Subject};
use crate::session::{Result, Session};
use file::{Baseline, Gates, Limit};

/// How a gate, or all of them, came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Passed,
    /// It does not.
    Failed,
    /// Nobody knows.
    NotEnoughData,
}

impl Outcome {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotEnoughData => "not enough data",
        }
    }
}

/// What a gate asks.
#[derive(Debug, Clone)]
pub enum Question {
    /// Whether a limit holds.
    Limit(Limit),
    /// Whether a measure is not worse than the baseline.
    NotWorse(&'static Measure),
}

/// How one gate came out.
#[derive(Debug, Clone)]
pub struct Answer {
    /// What it asks.
    pub question: Question,
    /// How it came out.
    pub outcome: Outcome,
    /// What was measured; `None` where nothing was.
    pub rate: Option<Rate>,
    /// Transfers that it looks at.
    pub handoffs: i64,
    /// Rows that are not known.
    pub unknown: i64,
    /// Of a comparison: over everything, then what is worse for a pair of agents.
    pub changes: Vec<Change>,
    /// Why there is not enough data.
    pub missing: Option<String>,
}

impl Answer {
    /// The measure it is about.
    pub fn measure(&self) -> &'static Measure {
        match &self.question {
            Question::Limit(l) => l.measure,
            Question::NotWorse(m) => m,
        }
    }
}

/// How all of them came out: failed where one failed, else not enough data where one lacks it.
pub fn outcome(answers: &[Answer]) -> Outcome {
    let any = |o| answers.iter().any(|a| a.outcome == o);
    match () {
        () if any(Outcome::Failed) => Outcome::Failed,
        () if any(Outcome::NotEnoughData) => Outcome::NotEnoughData,
        () => Outcome::Passed,
    }
}

/// Asks all gates; those of the baseline with a comparison of it, as the first side, with the run.
///
/// # Errors
/// The engine's.
pub async fn check(session: &Session, gates: &Gates, comparison: Option<&Comparison>) -> Result<Vec<Answer>> {
    let mut out = limits(session, &gates.limits).await?;
    if let Some((baseline, comparison)) = gates.baseline.as_ref().zip(comparison) {
        out.extend(not_worse(baseline, comparison, gates.min_handoffs));
    }
    Ok(out)
}

async fn limits(session: &Session, limits: &[Limit]) -> Result<Vec<Answer>> {
    if limits.is_empty() {
        return Ok(Vec::new());
    }
    // Which limits look at a transfer or task.
    let mut covered: HashMap<String, Vec<bool>> = HashMap::new();
    let mut handoffs = vec![0; limits.len()];
    for (sql, transfer) in [
        ("SELECT handoff_id AS id, from_agent, to_agent, service FROM handoffs WHERE rated", true),
        ("SELECT task_id AS id, service FROM tasks", false),
    ] {
        let mut rows = Stream::new(session, sql).await?;
        while rows.advance().await? {
            let r = rows.row();
            let [from, to, service] = ["from_agent", "to_agent", "service"].map(|c| r.text(c));
            let own: Vec<bool> = limits.iter().map(|l| l.covers(from, to, service)).collect();
            if transfer {
                own.iter().zip(&mut handoffs).for_each(|(own, n)| *n += i64::from(*own));
            }
            covered.insert(r.text("id").unwrap_or_default().to_owned(), own);
        }
    }
    let mut out = Vec::new();
    for (i, (limit, handoffs)) in limits.iter().zip(handoffs).enumerate() {
        let (mut numerator, mut denominator, mut known, mut unknown) = (0, 0, 0, 0);
        let mut rows = Stream::new(session, limit.measure.sql).await?;
        while rows.advance().await? {
            let r = rows.row();
            let own = r.text("id").and_then(|id| covered.get(id)).is_some_and(|own| own[i]);
            if r.flag("rated") != Some(true) || !own {
                continue;
            }
            match (r.text("unknown"), r.int("numerator"), r.int("denominator")) {
                (None, Some(n), Some(d)) => {
                    (numerator, denominator, known) = (numerator + n, denominator + d, known + 1)
                }
                _ => unknown += 1,
            }
        }
        let rate = Rate { numerator: numerator as f64 * limit.measure.scale, denominator, tasks: known };
        let holds = rate.value().map(|v| limit.comparator.holds(v, limit.limit));
        let missing = if handoffs < limit.min_handoffs {
            Some(format!("{handoffs} of the {} handoffs that are needed", limit.min_handoffs))
        } else if holds.is_none() {
            Some(match unknown {
                0 => "there is nothing to measure".to_owned(),
                n => format!("nothing is known; {n} {} are not", subject(limit.measure)),
            })
        } else {
            None
        };
        out.push(Answer {
            question: Question::Limit(limit.clone()),
            outcome: match holds {
                Some(true) if missing.is_none() => Outcome::Passed,
                Some(false) if missing.is_none() => Outcome::Failed,
                _ => Outcome::NotEnoughData,
            },
            rate: holds.map(|_| rate),
            handoffs,
            unknown,
            changes: Vec::new(),
            missing,
        });
    }
    Ok(out)
}

fn subject(m: &Measure) -> &'static str {
    match m.subject {
        Subject::Handoff => "handoffs",
        Subject::Task => "tasks",
    }
}

fn not_worse(baseline: &Baseline, comparison: &Comparison, min_handoffs: i64) -> Vec<Answer> {
    let fewest = comparison.handoffs[0].min(comparison.handoffs[1]);
    let answer = |measure: &'static Measure| {
        let own: Vec<&Change> =
            comparison.changes.iter().filter(|c| c.measure.name == measure.name).collect();
        let all = own.iter().find(|c| c.pair.is_none())?;
        let missing = if fewest < min_handoffs {
            Some(format!("{fewest} of the {min_handoffs} handoffs that are needed on each side"))
        } else if all.verdict == Verdict::NotEnoughData {
            let [a, b] = [all.a.tasks, all.b.tasks];
            Some(format!("known of {a} tasks of the baseline and {b} of the run; each must have {MIN_TASKS}"))
        } else {
            None
        };
        // Of measures that nobody named, those that have data.
        if missing.is_some() && !baseline.named {
            return None;
        }
        let worse: Vec<Change> = own
            .iter()
            .filter(|c| c.pair.is_none() || c.verdict == Verdict::Worse)
            .map(|c| (*c).clone())
            .collect();
        let outcome = match missing {
            Some(_) => Outcome::NotEnoughData,
            None if worse.iter().any(|c| c.verdict == Verdict::Worse) => Outcome::Failed,
            None => Outcome::Passed,
        };
        let (rate, handoffs) = (Some(all.b).filter(|r| r.value().is_some()), comparison.handoffs[1]);
        Some(Answer {
            question: Question::NotWorse(measure),
            outcome,
            rate,
            handoffs,
            unknown: 0,
            changes: worse,
            missing,
        })
    };
    let mut out: Vec<Answer> = baseline.measures.iter().filter_map(|m| answer(m)).collect();
    if out.is_empty() {
        // Without any data the first measure says so for all.
        let first = baseline.measures.first().copied();
        let named = Baseline { named: true, measures: first.into_iter().collect(), ..baseline.clone() };
        out = not_worse(&named, comparison, min_handoffs);
    }
    out
}
