//! Broken rules in reports: how often, by whom, and who lost each.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::document::{Section, Table};
use super::{rfc3339, text};
use crate::evaluate::{Row, Rows};
use crate::session::{Result, Session};
use crate::violations::VERDICTS;

/// How many violations there are of each verdict, in the order of [`VERDICTS`].
fn verdicts(r: &Row<'_>) -> Vec<i64> {
    VERDICTS.iter().map(|v| r.int(v).unwrap_or(0)).collect()
}

fn sums() -> String {
    VERDICTS.map(|v| format!("COUNT(*) FILTER (WHERE verdict = '{v}') AS {v}")).join(", ")
}

/// Violations by what found them.
struct ByRule {
    source: String,
    name: String,
    constraint: String,
    counts: Vec<i64>,
    /// Calls of which the rule cannot tell.
    undecided: i64,
}

async fn by_rule(session: &Session) -> Result<Vec<ByRule>> {
    let mut all: BTreeMap<(String, String, String), (Vec<i64>, i64)> = BTreeMap::new();
    let key = |r: &Row<'_>| {
        let get = |k: &str| r.text(k).unwrap_or_default().to_owned();
        (get("constraint_id"), get("source"), get("name"))
    };
    let sql = format!(
        "SELECT source, name, constraint_id, {} FROM violations GROUP BY source, name, constraint_id",
        sums()
    );
    for r in Rows::new(&session.query(&sql).await?)?.all() {
        all.insert(key(&r), (verdicts(&r), 0));
    }
    let sql = "SELECT 'rule' AS source, rule AS name, constraint_id, COUNT(*) AS n FROM rule_checks \
               WHERE matched IS NULL GROUP BY rule, constraint_id";
    for r in Rows::new(&session.query(sql).await?)?.all() {
        all.entry(key(&r)).or_insert_with(|| (vec![0; VERDICTS.len()], 0)).1 = r.int("n").unwrap_or(0);
    }
    Ok(all
        .into_iter()
        .map(|((constraint, source, name), (counts, undecided))| ByRule {
            source,
            name,
            constraint,
            counts,
            undecided,
        })
        .collect())
}

/// Violations by the transfer that its agent was reached by: sender and receiver; no sender where none reached it.
async fn by_pair(session: &Session) -> Result<Vec<(Option<String>, Option<String>, Vec<i64>)>> {
    let sql = format!(
        "SELECT h.from_agent AS from_agent, coalesce(v.agent, h.to_agent) AS to_agent, {}, COUNT(*) AS n FROM violations v \
         LEFT JOIN handoffs h ON h.task_id = v.task_id AND h.handoff_id = v.handoff_id \
         GROUP BY h.from_agent, coalesce(v.agent, h.to_agent) ORDER BY n DESC, from_agent, to_agent",
        sums()
    );
    let rows = Rows::new(&session.query(&sql).await?)?;
    let name = |r: &Row<'_>, k: &str| r.text(k).map(str::to_owned);
    Ok(rows.all().map(|r| (name(&r, "from_agent"), name(&r, "to_agent"), verdicts(&r))).collect())
}

/// The sections of the report: broken rules, the same between agents, and all judgements.
pub(super) async fn sections(session: &Session) -> Result<Vec<Section>> {
    let mut out = Vec::new();
    let numbers = |counts: &[i64]| {
        let total: i64 = counts.iter().sum();
        std::iter::once(total).chain(counts.iter().copied()).map(|n| n.to_string()).collect::<Vec<_>>()
    };
    let rules = by_rule(session).await?;
    if !rules.is_empty() {
        let rows = rules
            .iter()
            .map(|r| {
                let mut row = vec![
                    text::short(&r.constraint, 60),
                    format!("{} {}", r.source, text::short(&r.name, 60)),
                ];
                row.extend(numbers(&r.counts));
                row.push(r.undecided.to_string());
                row
            })
            .collect();
        let head = vec![
            "constraint",
            "found by",
            ">times",
            ">state",
            ">payload",
            ">filter",
            ">model",
            ">unknown",
            ">undecided",
        ];
        let lines = vec![
            "Who lost the rule: state never held it, the payload dropped it, the filter dropped it, the model saw it and did not follow it.".to_owned(),
        ];
        out.push(Section { title: "Broken rules".to_owned(), lines, table: Some(Table { head, rows }) });
        let mut rows: Vec<Vec<String>> = by_pair(session)
            .await?
            .iter()
            .map(|(from, to, counts)| {
                let name = |n: &Option<String>, none: &str| text::short(n.as_deref().unwrap_or(none), 40);
                let mut row = vec![format!("{} -> {}", name(from, "(no transfer)"), name(to, "(unnamed)"))];
                row.extend(numbers(counts));
                row
            })
            .collect();
        let cut = rows.len() > super::summary::SHOWN;
        rows.truncate(super::summary::SHOWN);
        let title =
            if cut { "Broken rules between agents (the first 10)" } else { "Broken rules between agents" };
        let head = vec!["from -> to", ">times", ">state", ">payload", ">filter", ">model", ">unknown"];
        if !rows.is_empty() {
            out.push(Section {
                title: title.to_owned(),
                lines: Vec::new(),
                table: Some(Table { head, rows }),
            });
        }
    }
    out.extend(judgements(session).await?);
    Ok(out)
}

/// All judgements by their name.
async fn judgements(session: &Session) -> Result<Option<Section>> {
    let sql = "SELECT name, COUNT(*) AS n, COUNT(*) FILTER (WHERE failed) AS failed, \
               COUNT(*) FILTER (WHERE failed IS NULL) AS untold, COUNT(score) AS scores, SUM(score) AS score \
               FROM evaluations GROUP BY name ORDER BY failed DESC, n DESC, name LIMIT 10";
    let rows: Vec<Vec<String>> = Rows::new(&session.query(sql).await?)?
        .all()
        .map(|r| {
            let int = |k: &str| r.int(k).unwrap_or(0);
            let mean = r.float("score").filter(|_| int("scores") > 0).map(|s| s / int("scores") as f64);
            vec![
                text::short(r.text("name").unwrap_or_default(), 60),
                int("n").to_string(),
                int("failed").to_string(),
                int("untold").to_string(),
                mean.map_or("-".to_owned(), |m| format!("{m:.3}")),
            ]
        })
        .collect();
    let head = vec!["evaluation", ">times", ">failed", ">not told", ">mean score"];
    Ok((!rows.is_empty()).then(|| Section {
        title: "Evaluations by others".to_owned(),
        lines: Vec::new(),
        table: Some(Table { head, rows }),
    }))
}

/// The counts of the JSON report: `by_rule` and `by_pair`.
pub(super) async fn counts(session: &Session) -> Result<Value> {
    let numbers = |counts: &[i64]| {
        let mut m = Map::new();
        m.insert("total".to_owned(), json!(counts.iter().sum::<i64>()));
        m.extend(VERDICTS.iter().zip(counts).map(|(v, n)| ((*v).to_owned(), json!(n))));
        m
    };
    let by_rule: Vec<Value> = by_rule(session)
        .await?
        .iter()
        .map(|r| {
            let mut m = numbers(&r.counts);
            m.insert("source".to_owned(), json!(r.source));
            m.insert("name".to_owned(), json!(r.name));
            m.insert("constraint".to_owned(), json!(r.constraint));
            m.insert("undecided".to_owned(), json!(r.undecided));
            Value::Object(m)
        })
        .collect();
    let by_pair: Vec<Value> = by_pair(session)
        .await?
        .iter()
        .map(|(from, to, counts)| {
            let mut m = numbers(counts);
            m.insert("from_agent".to_owned(), json!(from));
            m.insert("to_agent".to_owned(), json!(to));
            Value::Object(m)
        })
        .collect();
    Ok(json!({"by_rule": by_rule, "by_pair": by_pair}))
}

/// A violation in the JSON report.
pub(super) fn violation(r: &Row<'_>) -> Value {
    json!({
        "source": r.text("source"),
        "name": r.text("name"),
        "constraint": r.text("constraint_id"),
        "text": r.text("text"),
        "task_id": r.text("task_id"),
        "handoff_id": r.text("handoff_id"),
        "call": r.text("call"),
        "tool": r.text("tool"),
        "agent": r.text("agent"),
        "time": r.time("time").map(rfc3339),
        "verdict": r.text("verdict"),
        "missing": r.text("missing"),
    })
}

/// A judgement in the JSON report.
pub(super) fn evaluation(r: &Row<'_>) -> Value {
    json!({
        "name": r.text("name"),
        "score": r.float("score"),
        "label": r.text("label"),
        "failed": r.flag("failed"),
        "constraint": r.text("constraint_id"),
        "task_id": r.text("task_id"),
        "handoff_id": r.text("handoff_id"),
        "trace_id": r.text("trace_id"),
        "span_id": r.text("span_id"),
        "call": r.text("call"),
        "agent": r.text("agent"),
    })
}

/// The verdict on a violation, in words.
pub(super) fn verdict(r: &Row<'_>) -> String {
    match r.text("verdict").unwrap_or_default() {
        "state" if r.text("handoff_id").is_none() => {
            "no transfer reached the agent, and its own view did not hold it (state)".to_owned()
        }
        "state" => "no durable state or contract ever held it (state)".to_owned(),
        "payload" => "it was held, and the transfer did not carry it (payload)".to_owned(),
        "filter" => "the payload carried it, and the agent's view did not hold it (filter)".to_owned(),
        "model" => "the agent saw it and did not follow it (model)".to_owned(),
        _ => format!(
            "who lost it is unknown, missing: {}",
            text::short(r.text("missing").unwrap_or_default(), 120)
        ),
    }
}
