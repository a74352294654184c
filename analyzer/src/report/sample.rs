//! Transfers for people to review: which ones, and all that a reviewer needs of each.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use baton_record::canonical::sha256_hex;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::explain::{Seen, said};
use super::{rfc3339, summary, text};
use crate::evaluate::{Row, Rows, Stream};
use crate::labels::{Automatic, JUDGED, Verdicts};
use crate::session::{Result, Session};

/// Characters of a text that a sample holds.
const LONGEST: usize = 4000;
/// Items of a view that a sample holds.
const ITEMS: usize = 200;

/// Which transfers are drawn.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    /// How many.
    pub n: usize,
    /// Another seed draws others.
    pub seed: u64,
    /// Evenly from all pairs of sender and receiver.
    pub by_pair: bool,
    /// The ones with the most that went wrong; without it chance alone decides.
    pub worst: bool,
}

/// Place in the order in which transfers are drawn: by what went wrong, then by a hash of id and seed. So the same store
/// gives the same sample, and data that comes in changes it only where it comes first.
type Order = (Reverse<i64>, String, String);

/// The ids of the transfers drawn, in that order. Only accepted ones are.
async fn draw(session: &Session, c: Choice) -> Result<Vec<String>> {
    let accepted = "FROM handoffs h WHERE h.outcome = 'accepted'";
    let sql = match c.worst {
        false => format!("SELECT h.handoff_id, h.from_agent, h.to_agent, 0 AS score {accepted}"),
        true => format!(
            "SELECT h.handoff_id, h.from_agent, h.to_agent, COALESCE(w.score, 0) AS score \
             FROM handoffs h LEFT JOIN ({}) w ON w.id = h.handoff_id WHERE h.outcome = 'accepted'",
            summary::BADNESS
        ),
    };
    let mut groups: HashMap<Option<(String, String)>, BinaryHeap<Order>> = HashMap::new();
    let mut rows = Stream::new(session, &sql).await?;
    while rows.advance().await? {
        let r = rows.row();
        let own = |k: &str| r.text(k).unwrap_or_default().to_owned();
        let id = own("handoff_id");
        let hash = sha256_hex(format!("{}\n{id}", c.seed).as_bytes());
        let group = groups.entry(c.by_pair.then(|| (own("from_agent"), own("to_agent")))).or_default();
        group.push((Reverse(r.int("score").unwrap_or(0)), hash, id));
        // What comes last of more than are wanted is not drawn.
        if group.len() > c.n {
            group.pop();
        }
    }
    // The first of each group, then the second of each.
    let mut all: Vec<(usize, Order)> =
        groups.into_values().flat_map(|g| g.into_sorted_vec().into_iter().enumerate()).collect();
    all.sort_unstable();
    all.truncate(c.n);
    Ok(all.into_iter().map(|(_, (_, _, id))| id).collect())
}

/// A transfer to review. Its JSON is a line of the sample; `labels` is for the reviewer to fill in.
#[derive(Debug, Serialize)]
pub struct Sampled {
    handoff_id: String,
    task_id: String,
    time: Option<String>,
    from_agent: Option<String>,
    to_agent: Option<String>,
    mode: String,
    detection: String,
    confidence: String,
    reason: Option<String>,
    payload: Payload,
    constraints: Vec<Constraint>,
    receiver_saw: View,
    filtered_out: View,
    repeats: Vec<String>,
    leaks: Vec<String>,
    verdicts: Map<String, Value>,
    /// Why a verdict is not known.
    unknown: Map<String, Value>,
    labels: Map<String, Value>,
    reviewer: Option<String>,
    note: Option<String>,
}

#[derive(Debug, Serialize)]
struct Payload {
    text: Option<String>,
    tokens: Option<i64>,
    fields: Vec<String>,
    unknown: Option<String>,
}

#[derive(Debug, Serialize)]
struct Constraint {
    id: String,
    text: Option<String>,
    in_payload: Option<bool>,
    in_view: Option<bool>,
    cause: Option<String>,
}

/// Items of a context, and why they are not known.
#[derive(Debug, Serialize)]
struct View {
    items: Vec<Item>,
    /// Items beyond those listed.
    more: usize,
    unknown: Option<String>,
}

#[derive(Debug, Serialize)]
struct Item {
    who: &'static str,
    name: Option<String>,
    text: Option<String>,
    tokens: Option<i32>,
}

/// Draws transfers and collects what a reviewer needs of each.
///
/// # Errors
/// The engine's.
pub async fn sample(session: &Session, choice: Choice) -> Result<Vec<Sampled>> {
    let automatic = Automatic::new(session).await?;
    let mut out = Vec::new();
    for id in draw(session, choice).await? {
        let sql = "SELECT h.*, i.trace_id AS view_trace, i.span_id AS view_span, s.trace_id AS sent_trace, s.span_id AS sent_span \
                   FROM handoffs h LEFT JOIN inferences i ON i.inference_id = h.receiver_inference_id AND i.task_id = h.task_id \
                   LEFT JOIN inferences s ON s.inference_id = h.sender_inference_id AND s.task_id = h.task_id \
                   WHERE h.handoff_id = $1";
        let rows = Rows::new(&session.ask(sql, &[&id]).await?)?;
        if let (Some(r), Some(verdicts)) = (rows.all().next(), automatic.of(&id)) {
            out.push(one(session, &r, id, &verdicts).await?);
        }
    }
    Ok(out)
}

async fn one(session: &Session, r: &Row<'_>, id: String, verdicts: &Verdicts) -> Result<Sampled> {
    let own = |k: &str| r.text(k).map(str::to_owned);
    let must = |k: &str| r.text(k).unwrap_or_default().to_owned();
    let sql = "SELECT * FROM handoff_constraints WHERE handoff_id = $1 AND NOT soft ORDER BY id, hash";
    let constraints = Rows::new(&session.ask(sql, &[&id]).await?)?
        .all()
        .map(|c| Constraint {
            id: c.text("id").unwrap_or_default().to_owned(),
            text: c.text("text").map(cut),
            in_payload: c.flag("in_payload"),
            in_view: c.flag("in_view"),
            cause: c.text("cause").map(str::to_owned),
        })
        .collect();
    let sql = "SELECT c.tool, c.args, c.repeat_kind, e.agent AS earlier FROM tool_calls c LEFT JOIN tool_calls e ON e.id = c.repeats \
               AND e.task_id = c.task_id WHERE c.handoff_id = $1 AND c.repeats IS NOT NULL ORDER BY c.start, c.id";
    let repeats = Rows::new(&session.ask(sql, &[&id]).await?)?
        .all()
        .map(|c| {
            let get = |k: &str| c.text(k).unwrap_or_default();
            let args = c.text("args").map_or("arguments not kept".to_owned(), cut);
            format!(
                "{} {args}: {} of {}",
                get("tool"),
                get("repeat_kind"),
                c.text("earlier").unwrap_or("(unnamed)")
            )
        })
        .collect();
    let leaks = Rows::new(
        &session.ask("SELECT * FROM leaks WHERE handoff_id = $1 ORDER BY call, item", &[&id]).await?,
    )?
    .all()
    .map(|l| {
        let (tool, item) = (l.text("tool").unwrap_or_default(), l.int("item").unwrap_or(0));
        format!("{tool}, in item {item} of the view: {}", cut(&l.texts("overlap").join(", ")))
    })
    .collect();
    let span = |a: &str, b: &str| Some((r.text(a)?.to_owned(), r.text(b)?.to_owned()));
    let mut seen = match span("view_trace", "view_span") {
        Some((trace, span)) => said(session, &trace, &span).await?.0,
        None => Vec::new(),
    };
    let mut gone = match span("sent_trace", "sent_span") {
        Some((trace, span)) => said(session, &trace, &span).await?.into(),
        None => [Vec::new(), Vec::new()],
    }
    .concat();
    gone.retain(|g| g.who != "instructions");
    // Each item of the view stands for one of the sender's.
    let mut left: HashMap<Option<i64>, usize> = HashMap::new();
    for s in &seen {
        *left.entry(s.hash).or_default() += 1;
    }
    gone.retain(|g| match left.get_mut(&g.hash).filter(|n| **n > 0) {
        Some(n) => {
            *n -= 1;
            false
        }
        None => true,
    });
    let (after, before) = (own("after_unknown"), own("before_unknown"));
    if after.is_some() {
        seen.clear();
    }
    if after.is_some() || before.is_some() {
        gone.clear();
    }
    let each = |f: &dyn Fn(&Result<bool, String>) -> Option<Value>| -> Map<String, Value> {
        JUDGED.iter().zip(verdicts).filter_map(|(j, v)| Some((j.name.to_owned(), f(v)?))).collect()
    };
    Ok(Sampled {
        task_id: must("task_id"),
        time: r.time("time").map(rfc3339),
        from_agent: own("from_agent"),
        to_agent: own("to_agent"),
        mode: must("mode"),
        detection: must("detection"),
        confidence: must("confidence"),
        reason: own("reason"),
        payload: Payload {
            text: r.text("payload_text").map(cut),
            tokens: r.int("payload_tokens"),
            fields: r.texts("payload_fields"),
            unknown: own("payload_unknown"),
        },
        constraints,
        receiver_saw: View::new(&seen, after.clone()),
        filtered_out: View::new(&gone, after.or(before)),
        repeats,
        leaks,
        verdicts: each(&|v| Some(v.as_ref().map_or(Value::Null, |b| json!(b)))),
        unknown: each(&|v| v.as_ref().err().map(|why| json!(why))),
        labels: each(&|_| Some(Value::Null)),
        reviewer: None,
        note: None,
        handoff_id: id,
    })
}

fn cut(t: &str) -> String {
    if t.chars().nth(LONGEST).is_some() { text::short(t, LONGEST) } else { t.to_owned() }
}

impl View {
    fn new(seen: &[Seen], unknown: Option<String>) -> Self {
        let item = |s: &Seen| Item {
            who: s.who,
            name: s.name.clone(),
            text: s.text.as_deref().map(cut),
            tokens: s.tokens,
        };
        let items: Vec<Item> = seen.iter().take(ITEMS).map(item).collect();
        Self { more: seen.len() - items.len(), items, unknown }
    }

    fn markdown(&self, title: &str, out: &mut String) {
        out.push_str(&format!("\n{title}:"));
        match &self.unknown {
            Some(why) => out.push_str(&format!(" unknown, {}\n", text::markdown(why))),
            None if self.items.is_empty() => out.push_str(" nothing\n"),
            None => out.push_str("\n\n"),
        }
        for i in &self.items {
            let name = i.name.as_deref().map(|n| format!(" {}", text::markdown(n))).unwrap_or_default();
            let said = match (&i.text, i.tokens) {
                (Some(t), _) => text::markdown(t),
                (None, Some(n)) => format!("{n} tokens, not kept"),
                (None, None) => "not kept".to_owned(),
            };
            out.push_str(&format!("- **{}{name}**: {said}\n", i.who));
        }
        if self.more > 0 {
            out.push_str(&format!("- and {} more\n", self.more));
        }
    }
}

/// The sample to read.
pub fn markdown(sample: &[Sampled]) -> String {
    let mut out = format!("# Transfers to review\n\n{} transfers. What is asked of each:\n\n", sample.len());
    for j in JUDGED {
        out.push_str(&format!("- `{}`: {}\n", j.name, j.question));
    }
    for (i, s) in sample.iter().enumerate() {
        s.markdown(i + 1, &mut out);
    }
    out
}

impl Sampled {
    fn markdown(&self, n: usize, out: &mut String) {
        let md = |t: &Option<String>, none: &str| text::markdown(t.as_deref().unwrap_or(none));
        let (from, to) = (md(&self.from_agent, "(unnamed)"), md(&self.to_agent, "(unnamed)"));
        out.push_str(&format!("\n## {n}. {from} to {to}\n\n"));
        out.push_str(&format!(
            "- handoff `{}` of task {}\n",
            text::plain(&self.handoff_id),
            text::markdown(&self.task_id)
        ));
        out.push_str(&format!(
            "- {}: {}, seen by {}, {}\n",
            md(&self.time, "time unknown"),
            self.mode,
            self.detection,
            self.confidence
        ));
        if let Some(why) = &self.reason {
            out.push_str(&format!("- reason: {}\n", text::markdown(why)));
        }
        let p = &self.payload;
        let fields =
            if p.fields.is_empty() { "none".to_owned() } else { text::markdown(&p.fields.join(", ")) };
        let said = match (&p.unknown, &p.text) {
            (Some(why), _) => format!("unknown, {}", text::markdown(why)),
            (None, Some(t)) => text::markdown(t),
            (None, None) => "not kept, or empty".to_owned(),
        };
        out.push_str(&format!("\nPayload (fields: {fields}): {said}\n"));
        if !self.constraints.is_empty() {
            out.push_str("\nConstraints:\n\n");
        }
        for c in &self.constraints {
            let place = |f: Option<bool>| match f {
                Some(true) => "yes",
                Some(false) => "no",
                None => "unknown",
            };
            let said = c.text.as_deref().map(|t| format!(" ({})", text::markdown(t))).unwrap_or_default();
            out.push_str(&format!(
                "- {}{said}: in the payload {}, in the view {}\n",
                text::markdown(&c.id),
                place(c.in_payload),
                place(c.in_view)
            ));
        }
        self.receiver_saw.markdown("The receiver saw", out);
        self.filtered_out.markdown("The receiver did not get", out);
        for (title, list) in [("Repeated calls", &self.repeats), ("Leaks", &self.leaks)] {
            if !list.is_empty() {
                out.push_str(&format!("\n{title}:\n\n"));
            }
            list.iter().for_each(|l| out.push_str(&format!("- {}\n", text::markdown(l))));
        }
        out.push_str("\n| asked | Baton says | why unknown |\n| --- | --- | --- |\n");
        for j in JUDGED {
            let says = match self.verdicts.get(j.name) {
                Some(Value::Bool(true)) => "yes",
                Some(Value::Bool(false)) => "no",
                _ => "unknown",
            };
            let why = self.unknown.get(j.name).and_then(Value::as_str).unwrap_or_default();
            out.push_str(&format!("| `{}` | {says} | {} |\n", j.name, text::markdown(why)));
        }
    }
}
