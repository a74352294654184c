//! How gates came out: a section of the report, JSON, JUnit.

use serde_json::{Value, json};

use super::comparison::{change, pair};
use super::document::{Section, Table};
use super::summary::{figure, plural, value};
use super::text;
use crate::compare::Verdict;
use crate::gates::{Answer, Outcome, Question, outcome};

fn counts(answers: &[Answer]) -> [usize; 3] {
    [Outcome::Failed, Outcome::NotEnoughData, Outcome::Passed]
        .map(|o| answers.iter().filter(|a| a.outcome == o).count())
}

/// As part of the report.
pub fn section(answers: &[Answer]) -> Section {
    let [failed, missing, passed] = counts(answers);
    let rows = answers
        .iter()
        .map(|a| {
            vec![
                a.outcome.name().to_owned(),
                rule(a),
                scope(a),
                value(a.measure(), a.rate.and_then(|r| r.value())),
                a.rate.map_or("-".to_owned(), |r| format!("{} / {}", figure(r.numerator), r.denominator)),
                a.unknown.to_string(),
                a.handoffs.to_string(),
                why(a),
            ]
        })
        .collect();
    let head = vec!["outcome", "gate", "of", ">value", ">sum / of", ">unknown", ">handoffs", "why"];
    Section {
        title: format!("Gates: {}", outcome(answers).name()),
        lines: vec![format!("{failed} failed, {missing} without enough data, {passed} passed")],
        table: Some(Table { head, rows }),
    }
}

/// What is asked.
fn rule(a: &Answer) -> String {
    match &a.question {
        Question::Limit(l) => l.rule(),
        Question::NotWorse(m) => format!("{} not worse than the baseline", m.name),
    }
}

/// Of what it is asked.
fn scope(a: &Answer) -> String {
    let Question::Limit(l) = &a.question else { return String::new() };
    let any = |n: &Option<String>| text::short(n.as_deref().unwrap_or("(any)"), 40);
    let mut out = Vec::new();
    if l.from.is_some() || l.to.is_some() {
        out.push(format!("{} -> {}", any(&l.from), any(&l.to)));
    }
    out.extend(l.service.as_ref().map(|s| format!("service {}", text::short(s, 40))));
    out.join(", ")
}

/// Why it failed or could not be told, a line for each reason.
fn why(a: &Answer) -> String {
    match &a.question {
        _ if a.missing.is_some() => a.missing.clone().unwrap_or_default(),
        Question::NotWorse(_) => {
            let worse = a.changes.iter().filter(|c| c.verdict == Verdict::Worse);
            let lines: Vec<String> = worse.map(|c| format!("{}: {}", pair(c), change(c))).collect();
            lines.join("\n")
        }
        Question::Limit(_) => String::new(),
    }
}

/// All together, in the report's JSON.
pub(super) fn total(answers: &[Answer]) -> Value {
    let [failed, missing, passed] = counts(answers);
    json!({"outcome": key(outcome(answers)), "failed": failed, "not_enough_data": missing, "passed": passed})
}

/// One by one, in the report's JSON.
pub(super) fn list(answers: &[Answer]) -> Vec<Value> {
    answers
        .iter()
        .map(|a| {
            let limit = match &a.question {
                Question::Limit(l) => Some(l),
                Question::NotWorse(_) => None,
            };
            json!({
                "kind": if limit.is_some() { "limit" } else { "baseline" },
                "rule": rule(a),
                "measure": a.measure().name,
                "comparator": limit.map(|l| l.comparator.sign()),
                "limit": limit.map(|l| l.limit),
                "from": limit.and_then(|l| l.from.as_deref()),
                "to": limit.and_then(|l| l.to.as_deref()),
                "service": limit.and_then(|l| l.service.as_deref()),
                "outcome": key(a.outcome),
                "value": a.rate.and_then(|r| r.value()),
                "numerator": a.rate.map(|r| super::json::number(r.numerator)),
                "denominator": a.rate.map(|r| r.denominator),
                "unknown": a.unknown,
                "handoffs": a.handoffs,
                "missing": a.missing,
                "changes": a.changes.iter().map(super::comparison::json).collect::<Vec<_>>(),
            })
        })
        .collect()
}

fn key(o: Outcome) -> String {
    o.name().replace(' ', "_")
}

/// As a JUnit document. A gate without enough data is skipped there: neither passed nor failed.
pub fn junit(answers: &[Answer]) -> String {
    let [failed, missing, _] = counts(answers);
    let counts =
        format!("tests=\"{}\" failures=\"{failed}\" errors=\"0\" skipped=\"{missing}\"", answers.len());
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"baton\" {counts}>\n  <testsuite name=\"gates\" {counts}>\n"
    );
    for a in answers {
        let of = scope(a);
        let name = if of.is_empty() { rule(a) } else { format!("{} ({of})", rule(a)) };
        let measured = format!(
            "{}, {}",
            value(a.measure(), a.rate.and_then(|r| r.value())),
            plural(a.handoffs, "handoff")
        );
        out.push_str(&format!("    <testcase classname=\"gates\" name=\"{}\">", text::xml(&name)));
        let inner = match a.outcome {
            Outcome::Passed => format!("<system-out>{}</system-out>", text::xml(&measured)),
            Outcome::Failed => {
                let lines: Vec<String> = why(a).split('\n').map(text::xml).collect();
                format!("<failure message=\"{}\">{}</failure>", text::xml(&measured), lines.join("\n"))
            }
            Outcome::NotEnoughData => {
                format!("<skipped message=\"not enough data: {}\"/>", text::xml(&why(a)))
            }
        };
        out.push_str(&format!("{inner}</testcase>\n"));
    }
    out.push_str("  </testsuite>\n</testsuites>\n");
    out
}
