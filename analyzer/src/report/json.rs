//! The machine-readable report, `baton.report/1`.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::rfc3339;
use crate::evaluate::{PerRow, Row, Rows, Total, Value as Measured, all_rows, totals};
use crate::measures::Subject;
use crate::session::{Result, Session};

/// The report as one JSON document.
///
/// # Errors
/// The engine's.
pub async fn report(session: &Session) -> Result<Value> {
    let per_handoff = all_rows(session, Subject::Handoff).await?;
    let totals = totals(session).await?;
    let task_rows = session.query("SELECT * FROM tasks ORDER BY start NULLS LAST, task_id").await?;
    let task_rows = Rows::new(&task_rows)?;
    let mut order: HashMap<String, usize> = HashMap::new();
    let mut tasks = Vec::new();
    let (mut since, mut until): (Option<i64>, Option<i64>) = (None, None);
    for r in task_rows.all() {
        order.insert(r.text("task_id").unwrap_or_default().to_owned(), order.len());
        since = since.into_iter().chain(r.time("start")).min();
        until = until.into_iter().chain(r.time("end")).max();
        tasks.push(task(&r));
    }
    let by_task =
        |r: &Row<'_>| order.get(r.text("task_id").unwrap_or_default()).copied().unwrap_or(usize::MAX);

    let mut constraints: HashMap<String, Vec<Value>> = HashMap::new();
    for r in
        Rows::new(&session.query("SELECT * FROM handoff_constraints ORDER BY handoff_id, id, hash").await?)?
            .all()
    {
        constraints.entry(r.text("handoff_id").unwrap_or_default().to_owned()).or_default().push(json!({
            "id": r.text("id"), "soft": r.flag("soft"), "active": r.flag("active"), "in_payload": r.flag("in_payload"), "in_view": r.flag("in_view"), "cause": r.text("cause"),
        }));
    }
    let mut leaks: HashMap<String, Vec<Value>> = HashMap::new();
    for r in Rows::new(&session.query("SELECT * FROM leaks ORDER BY handoff_id, call, item").await?)?.all() {
        leaks.entry(r.text("handoff_id").unwrap_or_default().to_owned()).or_default().push(json!({
            "call": r.text("call"), "tool": r.text("tool"), "item": r.int("item"), "overlap": r.texts("overlap"),
        }));
    }
    let mut handoffs: Vec<(usize, i64, Value)> = Vec::new();
    for r in Rows::new(&session.query("SELECT * FROM handoffs").await?)?.all() {
        handoffs.push((
            by_task(&r),
            r.int("seq").unwrap_or(0),
            handoff(&r, &per_handoff, &constraints, &leaks),
        ));
    }
    handoffs.sort_by_key(|(t, s, _)| (*t, *s));
    let mut calls: Vec<(usize, i64, String, Value)> = Vec::new();
    for r in Rows::new(&session.query("SELECT * FROM tool_calls").await?)?.all() {
        calls.push((
            by_task(&r),
            r.time("start").unwrap_or(i64::MAX),
            r.text("id").unwrap_or_default().to_owned(),
            tool_call(&r),
        ));
    }
    calls.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
    let mut findings: Vec<(usize, usize, Value)> = Vec::new();
    for (n, r) in
        Rows::new(&session.query("SELECT * FROM findings ORDER BY task_id, handoff_id, kind, text").await?)?
            .all()
            .enumerate()
    {
        findings.push((by_task(&r), n, json!({"kind": r.text("kind"), "severity": r.text("severity"), "task_id": r.text("task_id"), "handoff_id": r.text("handoff_id"), "text": r.text("text")})));
    }
    findings.sort_by_key(|(t, n, _)| (*t, *n));
    Ok(json!({
        "schema": "baton.report/1",
        "window": {"since": since.map(rfc3339), "until": until.map(rfc3339)},
        "tasks": tasks,
        "handoffs": handoffs.into_iter().map(|(.., v)| v).collect::<Vec<_>>(),
        "tool_calls": calls.into_iter().map(|(.., v)| v).collect::<Vec<_>>(),
        "measures": totals.iter().map(measure).collect::<Vec<_>>(),
        "findings": findings.into_iter().map(|(.., v)| v).collect::<Vec<_>>(),
    }))
}

fn measure(t: &Total) -> Value {
    json!({"name": t.measure.name, "value": t.value(), "numerator": t.numerator.map(number), "denominator": (t.denominator > 0).then_some(t.denominator), "unknown": t.unknown})
}

/// A whole number as one.
fn number(v: f64) -> Value {
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
    measured: &PerRow,
    constraints: &HashMap<String, Vec<Value>>,
    leaks: &HashMap<String, Vec<Value>>,
) -> Value {
    let id = r.text("handoff_id").unwrap_or_default();
    let mut unknown = Map::new();
    let mut get = |measure: &str, key: &str, ratio: bool| -> Value {
        match measured.get(measure).and_then(|m| m.get(id)) {
            Some(Measured::Known(n, d)) if ratio && *d > 0 => json!(n / *d as f64),
            Some(Measured::Known(n, _)) if !ratio => number(*n),
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
    let own_constraints: &[Value] = constraints.get(id).map(Vec::as_slice).unwrap_or_default();
    let ids = |test: &dyn Fn(&Value) -> bool| {
        own_constraints.iter().filter(|c| test(c)).map(|c| c["id"].clone()).collect::<Vec<_>>()
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
        "constraints": {
            "active": ids(&|c| c["active"] == json!(true) && c["soft"] == json!(false)),
            "in_payload": ids(&|c| c["in_payload"] == json!(true)),
            "in_view": ids(&|c| c["in_view"] == json!(true)),
            "lost": own_constraints.iter().filter(|c| !c["cause"].is_null()).map(|c| json!({"id": c["id"], "cause": c["cause"]})).collect::<Vec<_>>(),
            "hash": r.text("constraints_hash"),
        },
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
        "leaks": if leak_count.is_null() { Value::Null } else { json!(leaks.get(id).cloned().unwrap_or_default()) },
        "retriage": retriage,
        "unknown": unknown,
    })
}
