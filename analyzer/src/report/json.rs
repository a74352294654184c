//! The machine-readable report, `baton.report/1`.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::spool::Spool;
use super::{gates, rfc3339, violations};
use crate::evaluate::{Names, PerHandoff, Row, Rows, Stream, Total, Value as Measured, totals};
use crate::gates::Answer;
use crate::session::{Error, Result, Session};

/// Writes the report as one JSON document and a line end. What is written of each row waits in a file until its place is
/// known, so that a report may be larger than memory. How gates came out stands in it where some were asked.
///
/// # Errors
/// The engine's, and where `out` or the temporary folder cannot be written to.
pub async fn write(session: &Session, answers: Option<&[Answer]>, out: &mut impl Write) -> Result<()> {
    let totals = totals(session).await?;
    let per_handoff = PerHandoff::new(session).await?;
    let window = session.query("SELECT MIN(start) AS since, MAX(\"end\") AS until FROM tasks").await?;
    let window = Rows::new(&window)?;
    // What was asked for, else what there is.
    let asked = session.window();
    let at = |asked: Option<i64>, column: &str| {
        asked.or_else(|| window.all().next().and_then(|r| r.time(column))).map(rfc3339)
    };
    let window = json!({"since": at(asked.since, "since"), "until": at(asked.until, "until")});
    part(out, "{\"schema\":", &"baton.report/1")?;
    part(out, ",\"window\":", &window)?;

    let mut spool = Spool::new().map_err(stdout)?;
    let mut rows = Stream::new(session, "SELECT * FROM tasks").await?;
    while rows.advance().await? {
        let r = rows.row();
        let key = (r.time("start").unwrap_or(i64::MAX), r.text("task_id").unwrap_or_default().to_owned());
        spool.push(key, &task(&r)).map_err(stdout)?;
    }
    head(out, "tasks")?;
    let keys = spool.write(out).map_err(stdout)?;
    let order: HashMap<String, usize> = keys.into_iter().enumerate().map(|(i, (_, id))| (id, i)).collect();
    let place = |r: &Row<'_>| r.text("task_id").and_then(|t| order.get(t)).copied().unwrap_or(usize::MAX);

    let constraints = Constraints::new(session, &per_handoff).await?;
    let leaks = leaks(session).await?;
    let mut spool = Spool::new().map_err(stdout)?;
    let mut rows = Stream::new(session, "SELECT * FROM handoffs").await?;
    while rows.advance().await? {
        let r = rows.row();
        let key = (place(&r), r.int("seq").unwrap_or(0), r.text("handoff_id").unwrap_or_default().to_owned());
        spool.push(key, &handoff(&r, &per_handoff, &constraints, &leaks)).map_err(stdout)?;
    }
    head(out, "handoffs")?;
    spool.write(out).map_err(stdout)?;
    drop((per_handoff, constraints, leaks));

    let mut spool = Spool::new().map_err(stdout)?;
    let mut rows = Stream::new(session, "SELECT * FROM tool_calls").await?;
    while rows.advance().await? {
        let r = rows.row();
        let start = r.time("start").unwrap_or(i64::MAX);
        spool
            .push((place(&r), start, r.text("id").unwrap_or_default().to_owned()), &tool_call(&r))
            .map_err(stdout)?;
    }
    head(out, "tool_calls")?;
    spool.write(out).map_err(stdout)?;

    for (list, form) in [
        ("violations", violations::violation as fn(&Row<'_>) -> Value),
        ("evaluations", violations::evaluation),
    ] {
        let mut spool = Spool::new().map_err(stdout)?;
        let mut rows = Stream::new(session, &format!("SELECT * FROM {list}")).await?;
        while rows.advance().await? {
            let r = rows.row();
            let text = ["constraint_id", "name", "span_id", "label", "call"]
                .map(|k| r.text(k).unwrap_or_default().to_owned());
            spool.push((place(&r), r.time("time"), text), &form(&r)).map_err(stdout)?;
        }
        head(out, list)?;
        spool.write(out).map_err(stdout)?;
    }
    part(out, ",\"violation_counts\":", &violations::counts(session).await?)?;

    part(out, ",\"measures\":", &totals.iter().map(measure).collect::<Vec<_>>())?;

    let mut spool = Spool::new().map_err(stdout)?;
    let mut rows = Stream::new(session, "SELECT * FROM findings").await?;
    while rows.advance().await? {
        let r = rows.row();
        // Those of the whole task come last.
        let of = r.text("handoff_id").map_or((true, String::new()), |h| (false, h.to_owned()));
        let text = [r.text("kind"), r.text("text")].map(|t| t.unwrap_or_default().to_owned());
        spool.push((place(&r), of, text), &finding(&r)).map_err(stdout)?;
    }
    head(out, "findings")?;
    spool.write(out).map_err(stdout)?;
    if let Some(answers) = answers {
        part(out, ",\"gate\":", &gates::total(answers))?;
        part(out, ",\"gates\":", &gates::list(answers))?;
    }
    out.write_all(b"}\n").map_err(stdout)
}

fn stdout(source: io::Error) -> Error {
    Error::Io { path: "the report".into(), source }
}

fn head(out: &mut impl Write, name: &str) -> Result<()> {
    write!(out, ",\"{name}\":").map_err(stdout)
}

/// Writes a value after what leads to it.
fn part(out: &mut impl Write, before: &str, value: &impl Serialize) -> Result<()> {
    out.write_all(before.as_bytes()).map_err(stdout)?;
    serde_json::to_writer(out, value).map_err(|e| stdout(e.into()))
}

/// One constraint of a transfer.
struct Constraint {
    /// Places in [`Constraints::names`].
    id: usize,
    hash: usize,
    cause: Option<usize>,
    hard: bool,
    active: bool,
    in_payload: bool,
    in_view: bool,
}

/// The constraints of all transfers, by the transfer's place.
struct Constraints {
    names: Names,
    all: Vec<Vec<Constraint>>,
}

impl Constraints {
    async fn new(session: &Session, handoffs: &PerHandoff) -> Result<Self> {
        let mut out = Self { names: Names::default(), all: Vec::new() };
        out.all.resize_with(handoffs.len(), Vec::new);
        let mut rows = Stream::new(session, "SELECT * FROM handoff_constraints").await?;
        while rows.advance().await? {
            let r = rows.row();
            let Some(place) = r.text("handoff_id").and_then(|h| handoffs.place(h)) else { continue };
            let flag = |name: &str, value: bool| r.flag(name) == Some(value);
            let c = Constraint {
                id: out.names.place(r.text("id").unwrap_or_default()),
                hash: out.names.place(r.text("hash").unwrap_or_default()),
                cause: r.text("cause").map(|c| out.names.place(c)),
                hard: flag("soft", false),
                active: flag("active", true),
                in_payload: flag("in_payload", true),
                in_view: flag("in_view", true),
            };
            out.all[place].push(c);
        }
        let names = &out.names;
        for list in &mut out.all {
            list.sort_by(|a, b| {
                (names.name(a.id), names.name(a.hash)).cmp(&(names.name(b.id), names.name(b.hash)))
            });
        }
        Ok(out)
    }

    /// In the form of the report.
    fn json(&self, place: Option<usize>, hash: Option<&str>) -> Value {
        let own = place.and_then(|p| self.all.get(p)).map(Vec::as_slice).unwrap_or_default();
        let ids = |test: fn(&Constraint) -> bool| {
            own.iter().filter(|c| test(c)).map(|c| self.names.name(c.id)).collect::<Vec<_>>()
        };
        let lost: Vec<Value> = own
            .iter()
            .filter_map(|c| {
                c.cause.map(|w| json!({"id": self.names.name(c.id), "cause": self.names.name(w)}))
            })
            .collect();
        json!({
            "active": ids(|c| c.active && c.hard),
            "in_payload": ids(|c| c.in_payload),
            "in_view": ids(|c| c.in_view),
            "lost": lost,
            "hash": hash,
        })
    }
}

/// The leaks of each transfer that has some.
async fn leaks(session: &Session) -> Result<HashMap<String, Vec<Value>>> {
    let mut all: HashMap<String, Vec<(String, i64, Value)>> = HashMap::new();
    let mut rows = Stream::new(session, "SELECT * FROM leaks").await?;
    while rows.advance().await? {
        let r = rows.row();
        let leak = json!({"call": r.text("call"), "tool": r.text("tool"), "item": r.int("item"), "overlap": r.texts("overlap")});
        all.entry(r.text("handoff_id").unwrap_or_default().to_owned()).or_default().push((
            r.text("call").unwrap_or_default().to_owned(),
            r.int("item").unwrap_or(0),
            leak,
        ));
    }
    let sorted = |mut v: Vec<(String, i64, Value)>| {
        v.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        v.into_iter().map(|(.., leak)| leak).collect()
    };
    Ok(all.into_iter().map(|(id, v)| (id, sorted(v))).collect())
}

fn finding(r: &Row<'_>) -> Value {
    json!({
        "kind": r.text("kind"), "severity": r.text("severity"), "task_id": r.text("task_id"),
        "handoff_id": r.text("handoff_id"), "text": r.text("text"),
    })
}

fn measure(t: &Total) -> Value {
    json!({"name": t.measure.name, "value": t.value(), "numerator": t.numerator.map(number), "denominator": (t.denominator > 0).then_some(t.denominator), "unknown": t.unknown})
}

/// A whole number as one.
pub(super) fn number(v: f64) -> Value {
    if v.fract() == 0.0 && v.abs() < 9e15 { json!(v as i64) } else { json!(v) }
}

fn task(r: &Row<'_>) -> Value {
    json!({
        "task_id": r.text("task_id"),
        "trace_ids": r.texts("trace_ids"),
        "service": r.text("service"),
        "agents": r.texts("agents"),
        "start": r.time("start").map(rfc3339),
        "end": r.time("end").map(rfc3339),
        "completed": r.flag("completed"),
        "partial": r.flag("partial"),
        "partial_reason": r.text("partial_reason"),
        "bounces": r.int("bounces"),
        "redone_steps": r.int("redone_steps"),
        "rework_free": r.flag("rework_free"),
        "input_tokens": r.int("input_tokens"),
        "output_tokens": r.int("output_tokens"),
        "inferences": r.int("inferences"),
        "duplicate_inferences": r.int("duplicate_inferences"),
        "wasted": {"tool_calls": r.int("wasted_calls"), "tokens": r.int("wasted_tokens"), "ms": r.int("wasted_ns").map(|n| n as f64 / 1e6)},
    })
}

fn tool_call(r: &Row<'_>) -> Value {
    json!({
        "id": r.text("id"),
        "task_id": r.text("task_id"),
        "agent": r.text("agent"),
        "tool": r.text("tool"),
        "outcome": r.text("outcome"),
        "args_digest": r.text("args_digest"),
        "start": r.time("start").map(rfc3339),
        "handoff_id": r.text("handoff_id"),
        "repeats": r.text("repeats"),
        "repeat_kind": r.text("repeat_kind"),
        "prevented_by": r.texts("prevented_by"),
        "cause": r.text("cause"),
    })
}

fn handoff(
    r: &Row<'_>,
    measured: &PerHandoff,
    constraints: &Constraints,
    leaks: &HashMap<String, Vec<Value>>,
) -> Value {
    let id = r.text("handoff_id").unwrap_or_default();
    let at = measured.place(id);
    let mut unknown = Map::new();
    let mut get = |measure: &str, key: &str, ratio: bool| -> Value {
        match at.and_then(|place| measured.get(measure, place)) {
            Some(Measured::Known(n, d)) if ratio && d > 0 => json!(n / d as f64),
            Some(Measured::Known(n, _)) if !ratio => number(n),
            Some(Measured::Unknown(why)) => {
                unknown.insert(key.to_owned(), json!(why));
                Value::Null
            }
            _ => {
                unknown.insert(key.to_owned(), json!("nothing to count"));
                Value::Null
            }
        }
    };
    let completeness = get("completeness", "completeness", true);
    let retention = get("constraint_retention", "constraint_retention", true);
    let retention_payload = get("constraint_retention_payload", "constraint_retention_payload", true);
    let payload_tokens = get("payload_tokens", "payload.tokens", false);
    let context = json!({
        "items_before": get("context_items_before", "context.items_before", false),
        "items_after": get("context_items_after", "context.items_after", false),
        "filtered_items": get("filtered_items", "context.filtered_items", false),
        "added_items": get("added_items", "context.added_items", false),
        "duplicate_items": get("duplicate_items", "context.duplicate_items", false),
        "tokens_before": get("context_tokens_before", "context.tokens_before", false),
        "tokens_after": get("context_tokens_after", "context.tokens_after", false),
        "retold_items": r.int("retold_items"),
    });
    let calls_after = get("tool_calls_after", "tool_calls_after", false);
    let redundant = get("redundant_tool_calls", "redundant_tool_calls", false);
    let retries = get("known_failure_retries", "known_failure_retries", false);
    let own = get("self_repeats", "self_repeats", false);
    let lost = get("lost_tool_results", "lost_tool_results", false);
    let reuse = get("artifact_reuse", "artifact_reuse", true);
    let first = get("time_to_first_correct_action_ms", "time_to_first_correct_action_ms", false);
    let leak_count = get("leaks", "leaks", false);
    let retriage = match get("retriage", "retriage", false) {
        Value::Null => Value::Null,
        v => json!(v == json!(1)),
    };
    json!({
        "handoff_id": id,
        "task_id": r.text("task_id"),
        "trace_id": r.text("trace_id"),
        "seq": r.int("seq"),
        "time": r.time("time").map(rfc3339),
        "from_agent": r.text("from_agent"),
        "to_agent": r.text("to_agent"),
        "mode": r.text("mode"),
        "outcome": r.text("outcome"),
        "detection": r.text("detection"),
        "confidence": r.text("confidence"),
        "candidates": r.texts("candidates"),
        "reason": r.text("reason"),
        "payload": {"tokens": payload_tokens, "fields": r.texts("payload_fields"), "aliases": r.texts("payload_aliases"), "narrative": r.flag("payload_narrative")},
        "completeness": completeness,
        "constraints": constraints.json(at, r.text("constraints_hash")),
        "constraint_retention": retention,
        "constraint_retention_payload": retention_payload,
        "context": context,
        "tool_calls_after": calls_after,
        "redundant_tool_calls": redundant,
        "known_failure_retries": retries,
        "self_repeats": own,
        "lost_tool_results": lost,
        "artifacts": {"refs": r.texts("artifact_refs"), "reused": r.texts("artifacts_reused")},
        "artifact_reuse": reuse,
        "time_to_first_correct_action_ms": first,
        "leaks": if leak_count.is_null() { Value::Null } else { json!(leaks.get(id).map(Vec::as_slice).unwrap_or_default()) },
        "retriage": retriage,
        "unknown": unknown,
    })
}
