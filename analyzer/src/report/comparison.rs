//! A comparison: as a document, and as JSON (`baton.comparison/1`).

use serde_json::{Value, json};

use super::document::{Document, Section, Table};
use super::json::number;
use super::summary::{figure, plural, value};
use super::text;
use crate::compare::resample::RESAMPLES;
use crate::compare::{Change, Comparison, Rate, Verdict};
use crate::measures::Measure;

/// Builds the report of a comparison. `names` are what the user called the two sides.
pub fn document(c: &Comparison, names: [&str; 2]) -> Document {
    let sections = vec![overview(c, names), changed(c), measures(c)];
    let sections = sections.into_iter().chain(moved(c)).collect();
    Document { title: "Comparison".to_owned(), sections }
}

fn says_something(c: &Change) -> bool {
    matches!(c.verdict, Verdict::Better | Verdict::Worse)
}

fn overview(c: &Comparison, names: [&str; 2]) -> Section {
    let mut lines: Vec<String> = ["A", "B"]
        .iter()
        .enumerate()
        .map(|(i, side)| {
            let alone = match c.alone[i] {
                0 => String::new(),
                n => format!(" ({} more, left out: the other side does not have them)", n),
            };
            format!(
                "{side}: {}: {}{alone}, {}",
                text::short(names[i], 80),
                plural(c.tasks[i] as i64, "task"),
                plural(c.handoffs[i], "handoff")
            )
        })
        .collect();
    lines.push(
        if c.paired {
            "both sides hold these tasks: each is compared with itself"
        } else {
            "the sides hold different tasks; agent pairs are compared with themselves"
        }
        .to_owned(),
    );
    lines.push(format!(
        "{} tested together; the chance of even one false alarm among them is at most {} %",
        plural(c.tested as i64, "difference"),
        figure(c.level * 100.0)
    ));
    if c.pairs_left_out > 0 {
        lines.push(format!(
            "{} with the fewest handoffs are not tested by themselves",
            plural(c.pairs_left_out as i64, "agent pair")
        ));
    }
    Section { title: String::new(), lines, table: None }
}

/// What a change is about: a pair of agents, or everything.
pub(super) fn pair(c: &Change) -> String {
    let name = |n: &Option<String>| text::short(n.as_deref().unwrap_or("(unnamed)"), 40);
    c.pair.as_ref().map_or("all".to_owned(), |(from, to)| format!("{} -> {}", name(from), name(to)))
}

/// A difference in its unit: of shares in percentage points.
fn signed(m: &Measure, v: Option<f64>) -> String {
    match v {
        None => "unknown".to_owned(),
        Some(v) if m.unit == "share" => format!("{:+.1} pp", v * 100.0),
        Some(v) if v > 0.0 => format!("+{}", figure(v)),
        Some(v) => figure(v),
    }
}

fn interval(c: &Change) -> String {
    let end = |v| signed(c.measure, Some(v));
    c.interval.map_or("-".to_owned(), |[low, high]| format!("{} to {}", end(low), end(high)))
}

/// A change in one line.
pub(super) fn change(c: &Change) -> String {
    format!(
        "{} to {}, {} (95 % interval {})",
        value(c.measure, c.a.value()),
        value(c.measure, c.b.value()),
        signed(c.measure, c.difference),
        interval(c)
    )
}

const HEAD: [&str; 6] = [">A", ">B", ">difference", ">95 % interval", ">tasks A", ">tasks B"];

fn figures(c: &Change) -> Vec<String> {
    vec![
        value(c.measure, c.a.value()),
        value(c.measure, c.b.value()),
        signed(c.measure, c.difference),
        interval(c),
        c.a.tasks.to_string(),
        c.b.tasks.to_string(),
    ]
}

/// What is beyond chance.
fn changed(c: &Comparison) -> Section {
    let rows: Vec<Vec<String>> = c
        .changes
        .iter()
        .filter(|c| says_something(c))
        .map(|c| [vec![c.verdict.name().to_owned(), c.measure.name.to_owned(), pair(c)], figures(c)].concat())
        .collect();
    let title = "Changed beyond chance".to_owned();
    if rows.is_empty() {
        return Section { title, lines: vec!["nothing".to_owned()], table: None };
    }
    let head = ["verdict", "measure", "of"].into_iter().chain(HEAD).collect();
    Section { title, lines: Vec::new(), table: Some(Table { head, rows }) }
}

fn measures(c: &Comparison) -> Section {
    let all = c.changes.iter().filter(|c| c.pair.is_none());
    let rows = all
        .map(|c| [vec![c.measure.name.to_owned()], figures(c), vec![c.verdict.name().to_owned()]].concat())
        .collect();
    let head = ["measure"].into_iter().chain(HEAD).chain(["verdict"]).collect();
    let count = |v| c.changes.iter().filter(|c| c.pair.is_some() && c.verdict == v).count() as i64;
    let line = format!(
        "of agent pairs, {} without evidence, {} without enough data",
        plural(count(Verdict::NoEvidence), "difference"),
        count(Verdict::NotEnoughData)
    );
    Section { title: "Measures".to_owned(), lines: vec![line], table: Some(Table { head, rows }) }
}

/// The tasks behind what changed.
fn moved(c: &Comparison) -> Option<Section> {
    let rows: Vec<Vec<String>> = c
        .changes
        .iter()
        .filter(|c| says_something(c))
        .flat_map(|c| {
            c.moved.iter().map(move |m| {
                vec![
                    c.measure.name.to_owned(),
                    pair(c),
                    m.task_id.clone(),
                    m.a.map_or("-".to_owned(), |v| value(c.measure, Some(v))),
                    m.b.map_or("-".to_owned(), |v| value(c.measure, Some(v))),
                    signed(c.measure, Some(m.part)),
                ]
            })
        })
        .collect();
    let head = vec!["measure", "of", "task", ">A", ">B", ">part of the difference"];
    (!rows.is_empty()).then(|| Section {
        title: "Tasks that moved most".to_owned(),
        lines: Vec::new(),
        table: Some(Table { head, rows }),
    })
}

fn rate(r: &Rate) -> Value {
    let known = r.denominator > 0;
    json!({
        "value": r.value(), "numerator": known.then(|| number(r.numerator)), "denominator": known.then_some(r.denominator),
        "tasks": r.tasks,
    })
}

/// One change as JSON.
pub(super) fn json(c: &Change) -> Value {
    let moved: Vec<Value> =
        c.moved.iter().map(|m| json!({"task_id": m.task_id, "a": m.a, "b": m.b, "part": m.part})).collect();
    json!({
        "measure": c.measure.name,
        "scope": if c.pair.is_some() { "pair" } else { "all" },
        "from_agent": c.pair.as_ref().and_then(|p| p.0.as_deref()),
        "to_agent": c.pair.as_ref().and_then(|p| p.1.as_deref()),
        "a": rate(&c.a),
        "b": rate(&c.b),
        "difference": c.difference,
        "interval": c.interval,
        "p": c.p,
        "adjusted_p": c.adjusted_p,
        "verdict": c.verdict.name().replace(' ', "_"),
        "moved": moved,
    })
}

/// The whole comparison as JSON.
pub fn document_json(c: &Comparison, names: [&str; 2]) -> Value {
    let side = |i: usize| json!({"source": names[i], "tasks": c.tasks[i], "alone": c.alone[i], "handoffs": c.handoffs[i]});
    json!({
        "schema": "baton.comparison/1",
        "a": side(0),
        "b": side(1),
        "paired": c.paired,
        "pairs_left_out": c.pairs_left_out,
        "tested": c.tested,
        "level": c.level,
        "resamples": RESAMPLES,
        "changes": c.changes.iter().map(json).collect::<Vec<_>>(),
    })
}
