//! The story of one task: who ran, what was called, what was handed over, what the receiver saw, what was lost, repeated
//! or leaked, and which contract field would have prevented it.

use std::collections::BTreeSet;

use baton_record::contract::REQUIRED;
use baton_record::schema::{Contents, ItemRef, SpanColumns, SpanRef};
use baton_record::span::{ItemKind, Speaker};

use super::document::{Document, Section, Table};
use super::{rfc3339, text, violations};
use crate::evaluate::{Row, Rows};
use crate::session::{Result, Session};

/// Characters of a text that are shown.
const TEXT: usize = 300;
/// Items of a view that are listed.
const ITEMS: usize = 12;

/// What an id stands for.
#[derive(Debug)]
pub enum Found {
    /// The story.
    Story(Box<Document>),
    /// Nothing has this id.
    Nothing,
    /// The start of an id that several have.
    Several(Vec<String>),
}

/// Tells the story of a task, by the id of the task, of one of its traces or of one of its transfers, or by the start of
/// such an id.
///
/// # Errors
/// The engine's.
pub async fn explain(session: &Session, id: &str) -> Result<Found> {
    let sql = "SELECT task_id AS id, task_id FROM tasks UNION SELECT handoff_id AS id, task_id FROM handoffs \
               UNION SELECT unnest(trace_ids) AS id, task_id FROM tasks";
    let exact = Rows::new(
        &session
            .ask(&format!("SELECT DISTINCT task_id FROM ({sql}) x WHERE id = $1 ORDER BY 1"), &[id])
            .await?,
    )?;
    let mut tasks: Vec<String> = exact.all().filter_map(|r| r.text("task_id").map(str::to_owned)).collect();
    if tasks.is_empty() && !id.is_empty() {
        let sql =
            format!("SELECT DISTINCT task_id FROM ({sql}) x WHERE starts_with(id, $1) ORDER BY 1 LIMIT 11");
        tasks = Rows::new(&session.ask(&sql, &[id]).await?)?
            .all()
            .filter_map(|r| r.text("task_id").map(str::to_owned))
            .collect();
    }
    match tasks.as_slice() {
        [] => Ok(Found::Nothing),
        [task] => Ok(Found::Story(Box::new(story(session, task).await?))),
        _ => Ok(Found::Several(tasks)),
    }
}

/// One line of the timeline.
struct Event {
    time: Option<i64>,
    /// Of events at one moment: an agent starts, then its model, then its calls, then transfers.
    rank: u8,
    agent: String,
    lines: Vec<String>,
}

async fn story(session: &Session, task: &str) -> Result<Document> {
    let mut doc = Document { title: format!("Task {}", text::short(task, 80)), sections: Vec::new() };
    let mut events: Vec<Event> = Vec::new();
    let mut start = None;
    for r in Rows::new(&session.ask("SELECT * FROM tasks WHERE task_id = $1", &[task]).await?)?.all() {
        start = r.time("start");
        doc.sections.push(head(&r));
    }
    for r in Rows::new(&session.ask("SELECT * FROM agent_runs WHERE task_id = $1", &[task]).await?)?.all() {
        let calls = |k: &str, what: &str| format!("{} {what}", r.int(k).unwrap_or(0));
        let line =
            format!("starts: {}, {}", calls("inferences", "model calls"), calls("tool_calls", "tool calls"));
        events.push(Event { time: r.time("start"), rank: 0, agent: agent(&r), lines: vec![line] });
    }
    for r in Rows::new(&session.ask("SELECT * FROM inferences WHERE task_id = $1", &[task]).await?)?.all() {
        events.push(Event { time: r.time("start"), rank: 1, agent: agent(&r), lines: vec![inference(&r)] });
    }
    let mut prevented: BTreeSet<String> = BTreeSet::new();
    let calls = session.ask("SELECT c.*, e.agent AS earlier_agent, e.start AS earlier_start FROM tool_calls c LEFT JOIN tool_calls e ON e.id = c.repeats AND e.task_id = c.task_id WHERE c.task_id = $1", &[task]).await?;
    for r in Rows::new(&calls)?.all() {
        prevented.extend(r.texts("prevented_by"));
        events.push(Event { time: r.time("start"), rank: 2, agent: agent(&r), lines: call(&r, start) });
    }
    let transfers = session.ask("SELECT h.*, i.trace_id AS view_trace, i.span_id AS view_span FROM handoffs h LEFT JOIN inferences i ON i.inference_id = h.receiver_inference_id AND i.task_id = h.task_id WHERE h.task_id = $1 ORDER BY seq", &[task]).await?;
    for r in Rows::new(&transfers)?.all() {
        let id = r.text("handoff_id").unwrap_or_default().to_owned();
        let mut lines = transfer(session, &r, &id).await?;
        if r.text("outcome") == Some("accepted") {
            lines.extend(view(session, &r).await?);
            if Rows::new(&session.ask("SELECT id FROM handoff_constraints WHERE handoff_id = $1 AND cause IN ('dropped_from_payload', 'not_in_state')", &[&id]).await?)?.all().next().is_some() {
                prevented.insert("constraints".to_owned());
            }
        }
        let from = r.text("from_agent").unwrap_or("(unnamed)").to_owned();
        events.push(Event { time: r.time("time"), rank: 3, agent: from, lines });
    }
    events.sort_by_key(|a| (a.time, a.rank));
    let rows = events
        .into_iter()
        .map(|e| vec![offset(e.time, start), text::short(&e.agent, 40), e.lines.join("\n")])
        .collect();
    let head = vec![">time", "agent", "what happened"];
    doc.sections.push(Section {
        title: "Timeline".to_owned(),
        lines: Vec::new(),
        table: Some(Table { head, rows }),
    });
    let mut lines: Vec<String> = Vec::new();
    for r in Rows::new(
        &session
            .ask(
                "SELECT severity, text FROM findings WHERE task_id = $1 ORDER BY severity, kind, text",
                &[task],
            )
            .await?,
    )?
    .all()
    {
        lines.push(format!(
            "{}: {}",
            r.text("severity").unwrap_or_default(),
            r.text("text").unwrap_or_default()
        ));
    }
    if !prevented.is_empty() {
        let fields: Vec<&str> =
            prevented.iter().map(String::as_str).filter(|f| *f != "noisy_context").collect();
        if !fields.is_empty() {
            lines.push(format!("contract fields that would have prevented it: {}", fields.join(", ")));
        }
        if prevented.contains("noisy_context") {
            lines.push(
                "the fields were delivered, in a view so large that they were not followed (noisy context)"
                    .to_owned(),
            );
        }
    }
    if !lines.is_empty() {
        doc.sections.push(Section { title: "What stands out".to_owned(), lines, table: None });
    }
    doc.sections.extend(broken(session, task, start).await?);
    doc.sections.extend(judged(session, task).await?);
    Ok(doc)
}

/// Broken constraints, each with who lost it.
async fn broken(session: &Session, task: &str, start: Option<i64>) -> Result<Option<Section>> {
    let sql = "SELECT * FROM violations WHERE task_id = $1 ORDER BY time, constraint_id, name, call";
    let mut lines = Vec::new();
    for r in Rows::new(&session.ask(sql, &[task]).await?)?.all() {
        let short = |k: &str, n: usize| r.text(k).map(|t| text::short(t, n));
        let what = short("tool", 60).map(|t| format!(" with {t} at {}", offset(r.time("time"), start)));
        let said = short("text", 80).map(|t| format!(" ({t})"));
        lines.push(format!(
            "{} breaks {}{}{}, says {} {}: {}",
            text::short(&agent(&r), 40),
            short("constraint_id", 60).unwrap_or_default(),
            said.unwrap_or_default(),
            what.unwrap_or_default(),
            short("source", 20).unwrap_or_default(),
            short("name", 60).unwrap_or_default(),
            violations::verdict(&r)
        ));
    }
    let title = "Broken rules".to_owned();
    Ok((!lines.is_empty()).then_some(Section { title, lines, table: None }))
}

/// What others judged.
async fn judged(session: &Session, task: &str) -> Result<Option<Section>> {
    let sql = "SELECT * FROM evaluations WHERE task_id = $1 ORDER BY time, name, span_id, label";
    let mut lines = Vec::new();
    for r in Rows::new(&session.ask(sql, &[task]).await?)?.all() {
        let score = r.float("score").map(|s| format!(" {s}")).unwrap_or_default();
        let label = r.text("label").map(|l| format!(" {}", text::short(l, 60))).unwrap_or_default();
        let of = r.text("agent").map(|a| format!(" of {}", text::short(a, 40))).unwrap_or_default();
        let through = r.text("handoff_id").map(|h| format!(", handoff {h}")).unwrap_or_default();
        lines.push(format!(
            "{}{of}:{score}{label}{through}",
            text::short(r.text("name").unwrap_or_default(), 60)
        ));
    }
    let title = "Evaluations by others".to_owned();
    Ok((!lines.is_empty()).then_some(Section { title, lines, table: None }))
}

pub(super) fn agent(r: &Row<'_>) -> String {
    r.text("agent").unwrap_or("(unnamed)").to_owned()
}

/// Time since the start of the task.
pub(super) fn offset(time: Option<i64>, start: Option<i64>) -> String {
    match (time, start) {
        (Some(t), Some(s)) => format!("{:+.3} s", (t.saturating_sub(s)) as f64 / 1e9),
        _ => "?".to_owned(),
    }
}

pub(super) fn head(r: &Row<'_>) -> Section {
    let int = |k: &str| r.int(k).map_or("unknown".to_owned(), |n| n.to_string());
    let mut lines = Vec::new();
    if let Some(t) = r.time("start") {
        lines.push(format!("started {}", rfc3339(t)));
    }
    let agents: Vec<String> = r.texts("agents").iter().map(|a| text::short(a, 40)).collect();
    lines.push(format!(
        "agents: {}",
        if agents.is_empty() { "none is named".to_owned() } else { agents.join(", ") }
    ));
    let known = |f: Option<bool>, yes: &str, no: &str| {
        f.map_or("unknown", |b| if b { "yes" } else { "no" }).replace("yes", yes).replace("no", no)
    };
    lines.push(format!(
        "completed: {}; free of rework: {}",
        known(r.flag("completed"), "yes", "no"),
        known(r.flag("rework_free"), "yes", "no")
    ));
    lines.push(format!(
        "tokens: {} in, {} out; handoffs: {}; bounces: {}; steps done again: {}",
        int("input_tokens"),
        int("output_tokens"),
        int("handoffs"),
        int("bounces"),
        int("redone_steps")
    ));
    if let Some(ns) = r.int("wasted_ns") {
        lines.push(format!(
            "spent on repeats and bounces: {} tool calls, {} tokens, {:.3} s",
            int("wasted_calls"),
            int("wasted_tokens"),
            ns as f64 / 1e9
        ));
    }
    if let Some(why) = r.text("partial_reason") {
        lines.push(format!("only part of the task is recorded: {why}"));
    }
    Section { title: String::new(), lines, table: None }
}

fn inference(r: &Row<'_>) -> String {
    let mut line = format!("model {}", text::short(r.text("model").unwrap_or("(unnamed)"), 60));
    if let (Some(i), Some(o)) = (r.int("input_tokens"), r.int("output_tokens")) {
        line.push_str(&format!(": {i} tokens in, {o} out"));
    }
    if let Some(f) = r.text("finish") {
        line.push_str(&format!(", ends with {f}"));
    }
    if r.int("recordings").is_some_and(|n| n > 1) {
        line.push_str(&format!(" (recorded {} times, counted once)", r.int("recordings").unwrap_or(0)));
    }
    line
}

pub(super) fn call(r: &Row<'_>, start: Option<i64>) -> Vec<String> {
    let args = match (r.text("args"), r.text("args_digest")) {
        (Some(a), _) => text::short(a, TEXT),
        (None, Some(d)) => format!("arguments {}", text::short(d, 13)),
        (None, None) => "arguments not captured".to_owned(),
    };
    let mut lines = vec![format!(
        "calls {} {args}: {}",
        text::short(r.text("tool").unwrap_or_default(), 60),
        r.text("outcome").unwrap_or_default()
    )];
    let kind = match r.text("repeat_kind") {
        Some("redundant") => "REPEATS the call",
        Some("known_failure") => "RETRIES the failed call",
        Some(_) => "repeats its own call",
        None => return lines,
    };
    let mut line = format!(
        "{kind} of {} at {}",
        text::short(r.text("earlier_agent").unwrap_or("(unnamed)"), 40),
        offset(r.time("earlier_start"), start)
    );
    match r.text("cause") {
        Some("model") => line.push_str("; it saw the result and did not use it"),
        Some("payload") => line.push_str("; the payload did not carry the result"),
        Some("filter") => line.push_str("; the payload carried the result and the view did not hold it"),
        Some("state") => line.push_str("; nothing recorded the result"),
        _ => {}
    }
    lines.push(line);
    let fields = r.texts("prevented_by");
    if !fields.is_empty() {
        lines.push(format!("prevented by: {}", fields.join(", ")));
    }
    lines
}

pub(super) async fn transfer(session: &Session, r: &Row<'_>, id: &str) -> Result<Vec<String>> {
    let get = |k: &str| r.text(k).unwrap_or_default();
    let to = text::short(r.text("to_agent").unwrap_or("(unknown)"), 40);
    let mut lines = vec![format!(
        "HANDS OVER to {to}: {} ({}, seen by {}, {})",
        get("outcome"),
        get("mode"),
        get("detection"),
        get("confidence")
    )];
    lines.push(format!("handoff {id}"));
    if !r.texts("candidates").is_empty() {
        lines.push(format!("may have gone to: {}", r.texts("candidates").join(", ")));
    }
    if let Some(why) = r.text("reason") {
        lines.push(format!("reason: {}", text::short(why, TEXT)));
    }
    match r.text("payload_unknown") {
        Some(why) => lines.push(format!("payload: unknown, {why}")),
        None => {
            let fields = r.texts("payload_fields");
            let missing: Vec<&str> =
                REQUIRED.iter().map(|f| f.name()).filter(|n| !fields.iter().any(|f| f == n)).collect();
            let tokens = r.int("payload_tokens").map_or("unknown".to_owned(), |n| n.to_string());
            lines.push(format!(
                "payload: {tokens} tokens; fields: {}; missing: {}",
                or_none(&fields),
                or_none(&missing)
            ));
        }
    }
    if let Some(t) = r.text("payload_text").filter(|t| !t.is_empty()) {
        lines.push(format!("says: {}", text::short(t, TEXT)));
    }
    let sql = "SELECT * FROM handoff_constraints WHERE handoff_id = $1 ORDER BY id, hash";
    for c in Rows::new(&session.ask(sql, &[id]).await?)?.all() {
        let state = match (c.flag("in_payload"), c.flag("in_view")) {
            (Some(true), Some(true)) => "in the payload and in the view",
            (Some(true), Some(false)) => "in the payload, not in the view",
            (Some(false), Some(true)) => "not in the payload, still in the view",
            (Some(false), Some(false)) => "neither in the payload nor in the view",
            (Some(true), None) => "in the payload",
            (Some(false), None) => "not in the payload",
            (None, Some(true)) => "in the view",
            (None, Some(false)) => "not in the view",
            (None, None) => "not known where",
        };
        let verdict = match c.text("cause") {
            Some("not_in_state") => "; LOST: no durable state or contract held it",
            Some("dropped_from_payload") => "; LOST: the transfer did not carry it",
            Some("dropped_by_filter") => "; LOST: the filter dropped it",
            _ => "",
        };
        let kind = if c.flag("soft") == Some(true) { "preference" } else { "constraint" };
        let said = c.text("text").map(|t| format!(" ({})", text::short(t, 80))).unwrap_or_default();
        lines.push(format!(
            "{kind} {}{said}: {state}{verdict}",
            text::short(c.text("id").unwrap_or_default(), 60)
        ));
    }
    if let Some(n) = r.int("lost_tool_results").filter(|n| *n > 0) {
        lines.push(format!("LOST: {n} results of tools called in the same turn reach no later message"));
    }
    if r.flag("retriage") == Some(true) {
        lines.push("the receiver began again".to_owned());
    }
    let sql = "SELECT * FROM leaks WHERE handoff_id = $1 ORDER BY call, item";
    for l in Rows::new(&session.ask(sql, &[id]).await?)?.all() {
        let what = l.texts("overlap");
        let what =
            if what.is_empty() { String::new() } else { format!(": {}", text::short(&what.join(", "), 120)) };
        lines.push(format!(
            "LEAK: content of {} in item {} of the view{what}",
            text::short(l.text("tool").unwrap_or_default(), 40),
            l.int("item").unwrap_or(0)
        ));
    }
    lines.extend(super::labels::of(session, id).await?);
    let refs = r.texts("artifact_refs");
    if !refs.is_empty() {
        lines.push(format!(
            "artifacts: {} ({} used)",
            text::short(&refs.join(", "), 160),
            r.texts("artifacts_reused").len()
        ));
    }
    Ok(lines)
}

fn or_none<S: AsRef<str>>(list: &[S]) -> String {
    if list.is_empty() {
        "none".to_owned()
    } else {
        list.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
    }
}

/// What the receiver saw first.
pub(super) async fn view(session: &Session, r: &Row<'_>) -> Result<Vec<String>> {
    let to = text::short(r.text("to_agent").unwrap_or("the receiver"), 40);
    if let Some(why) = r.text("after_unknown") {
        return Ok(vec![format!("what {to} saw is unknown: {why}")]);
    }
    let n = |k: &str| r.int(k).map_or("?".to_owned(), |n| n.to_string());
    let mut lines = vec![format!(
        "{to} SEES {} items, {} tokens (before: {} items, {} tokens); filtered {}, added {}, doubled {}",
        n("items_after"),
        n("tokens_after"),
        n("items_before"),
        n("tokens_before"),
        n("filtered_items"),
        n("added_items"),
        n("duplicate_items")
    )];
    let (Some(trace), Some(span)) = (r.text("view_trace"), r.text("view_span")) else { return Ok(lines) };
    let seen = said(session, trace, span).await?.0;
    lines.extend(seen.iter().take(ITEMS).map(line));
    if seen.len() > ITEMS {
        lines.push(format!("- and {} more", seen.len() - ITEMS));
    }
    Ok(lines)
}

/// An item of a model call.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// Who says it, or what it is.
    pub who: &'static str,
    /// The tool, or the author.
    pub name: Option<String>,
    /// As kept.
    pub text: Option<String>,
    pub tokens: Option<i32>,
    /// What it holds, for comparing.
    pub hash: Option<i64>,
}

impl Seen {
    fn new(x: &ItemRef<'_>) -> Self {
        let who = match (x.kind, x.speaker) {
            (ItemKind::Instructions, _) => "instructions",
            (ItemKind::Call, _) => "call",
            (ItemKind::Result, _) => "result",
            (_, Speaker::User) => "user",
            (_, Speaker::Assistant) => "assistant",
            _ => "text",
        };
        let own = |t: Option<&str>| t.map(str::to_owned);
        Self { who, name: own(x.name()), text: own(x.text()), tokens: x.tokens(), hash: x.hash }
    }
}

/// What a model call read and what it answered.
pub(super) async fn said(session: &Session, trace: &str, span: &str) -> Result<(Vec<Seen>, Vec<Seen>)> {
    let batches = session.ask("SELECT * FROM spans WHERE trace_id = $1 ORDER BY start", &[trace]).await?;
    let columns = batches.iter().map(SpanColumns::new).collect::<Result<Vec<_>, _>>()?;
    let rows: Vec<SpanRef<'_>> = columns.iter().flat_map(|c| (0..c.len()).map(|i| c.span(i))).collect();
    let contents = Contents::of(&rows);
    let own: Vec<&SpanRef<'_>> = rows.iter().filter(|s| s.span_id == span).collect();
    Ok((
        fullest(own.iter().map(|s| (s.log, s.input(&contents)))),
        fullest(own.iter().map(|s| (s.log, s.output(&contents)))),
    ))
}

/// Messages stand on the span, or in log records beside it.
fn fullest<'a>(rows: impl Iterator<Item = (bool, Option<Vec<ItemRef<'a>>>)>) -> Vec<Seen> {
    let (mut best, mut logs): (Vec<Seen>, Vec<Seen>) = (Vec::new(), Vec::new());
    for (log, items) in rows {
        let items = items.unwrap_or_default();
        let seen = items.iter().map(Seen::new);
        if log {
            logs.extend(seen);
        } else if items.len() > best.len() {
            best = seen.collect();
        }
    }
    if best.is_empty() { logs } else { best }
}

/// One item of a view.
fn line(x: &Seen) -> String {
    let name = x.name.as_deref().map(|n| format!(" {}", text::short(n, 40))).unwrap_or_default();
    let said = match (&x.text, x.tokens) {
        (Some(t), _) => text::short(t, 120),
        (None, Some(n)) => format!("{n} tokens"),
        (None, None) => "not kept".to_owned(),
    };
    format!("- {}{name}: {said}", x.who)
}
