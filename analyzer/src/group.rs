//! Which traces are one task (METRICS.md section 1, task): joined by `baton.task.id`, else by the root's conversation.
//! A trace with nothing but recordings of model calls that stand in another trace goes with that one.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::TimestampNanosecondType;

/// What of `spans` the grouping reads; see [`Grouping::add`].
pub const SQL: &str = "SELECT trace_id, span_id, parent_id IS NULL AS root, role, conversation_id, task_id, response_id, start \
                       FROM spans WHERE record = 'span' AND (parent_id IS NULL OR conversation_id IS NOT NULL OR task_id IS NOT NULL \
                       OR response_id IS NOT NULL OR role IN ('agent', 'tool', 'handoff', 'workflow'))";

#[derive(Default)]
struct Trace {
    id: String,
    /// The earliest root: its start, id, whether it is of an agent or model, and its conversation.
    root: Option<(i64, String, bool, Option<String>)>,
    /// The earliest span with a conversation.
    other: Option<(i64, String, String)>,
    task_ids: Vec<String>,
    /// It shows agents, tools or workflows, not only model calls.
    shows_more: bool,
    responses: Vec<u64>,
    unknown_response: bool,
}

/// Collects traces and joins them.
#[derive(Default)]
pub struct Grouping {
    by_id: HashMap<String, usize>,
    traces: Vec<Trace>,
}

fn hash(s: &str) -> u64 {
    let mut h = DefaultHasher::new();
    s.hash(&mut h);
    h.finish()
}

impl Grouping {
    /// Takes a batch of [`SQL`].
    pub fn add(&mut self, batch: &RecordBatch) {
        let text = |name: &str| {
            batch
                .column_by_name(name)
                .map(|c| {
                    datafusion::arrow::compute::cast(c, &datafusion::arrow::datatypes::DataType::Utf8View)
                })
                .and_then(Result::ok)
        };
        let (Some(trace), Some(span), Some(role), Some(conversation), Some(task), Some(response)) = (
            text("trace_id"),
            text("span_id"),
            text("role"),
            text("conversation_id"),
            text("task_id"),
            text("response_id"),
        ) else {
            return;
        };
        let (Some(root), Some(start)) = (batch.column_by_name("root"), batch.column_by_name("start")) else {
            return;
        };
        let (trace, span, role, conversation, task, response) = (
            trace.as_string_view(),
            span.as_string_view(),
            role.as_string_view(),
            conversation.as_string_view(),
            task.as_string_view(),
            response.as_string_view(),
        );
        let (root, start) = (root.as_boolean(), start.as_primitive::<TimestampNanosecondType>());
        let opt = |a: &datafusion::arrow::array::StringViewArray, i: usize| {
            a.is_valid(i).then(|| a.value(i).to_owned())
        };
        for i in 0..batch.num_rows() {
            let id = trace.value(i);
            let k = match self.by_id.get(id) {
                Some(k) => *k,
                None => {
                    self.by_id.insert(id.to_owned(), self.traces.len());
                    self.traces.push(Trace { id: id.to_owned(), ..Trace::default() });
                    self.traces.len() - 1
                }
            };
            let t = &mut self.traces[k];
            let at = if start.is_valid(i) { start.value(i) } else { i64::MAX };
            let kind = role.value(i);
            let conv = opt(conversation, i);
            if root.value(i)
                && t.root.as_ref().is_none_or(|(s, id, ..)| (at, span.value(i)) < (*s, id.as_str()))
            {
                t.root = Some((at, span.value(i).to_owned(), kind != "other", conv.clone()));
            }
            if let Some(c) = conv
                && t.other.as_ref().is_none_or(|(s, id, _)| (at, span.value(i)) < (*s, id.as_str()))
            {
                t.other = Some((at, span.value(i).to_owned(), c));
            }
            if let Some(x) = opt(task, i)
                && !t.task_ids.contains(&x)
            {
                t.task_ids.push(x);
            }
            match kind {
                "agent" | "tool" | "handoff" | "workflow" => t.shows_more = true,
                "inference" => match opt(response, i) {
                    Some(r) => t.responses.push(hash(&r)),
                    None => t.unknown_response = true,
                },
                _ => {}
            }
        }
    }

    /// The traces whose task has another key than their own id, with that key: the smallest trace id of the task.
    pub fn finish(self) -> Vec<(String, String)> {
        let n = self.traces.len();
        let mut parent: Vec<usize> = (0..n).collect();
        let mut first: HashMap<(u8, &str), usize> = HashMap::new();
        for (k, t) in self.traces.iter().enumerate() {
            for id in &t.task_ids {
                match first.get(&(0, id.as_str())) {
                    Some(&o) => union(&mut parent, o, k),
                    None => {
                        first.insert((0, id), k);
                    }
                }
            }
            if !t.task_ids.is_empty() {
                continue;
            }
            // The conversation of the root. Where the root is no agent's (a web server's span), that of the first span that has
            // one. A nested agent's own conversation opens no task.
            let conversation = match &t.root {
                Some((_, _, true, c)) => c.as_deref(),
                Some((_, _, false, Some(c))) => Some(c.as_str()),
                _ => t.other.as_ref().map(|(_, _, c)| c.as_str()),
            };
            if let Some(c) = conversation {
                match first.get(&(1, c)) {
                    Some(&o) => union(&mut parent, o, k),
                    None => {
                        first.insert((1, c), k);
                    }
                }
            }
        }
        let mut by_response: HashMap<u64, Vec<usize>> = HashMap::new();
        for (k, t) in self.traces.iter().enumerate() {
            for r in &t.responses {
                let v = by_response.entry(*r).or_default();
                if v.last() != Some(&k) {
                    v.push(k);
                }
            }
        }
        for (k, t) in self.traces.iter().enumerate() {
            if t.shows_more || t.unknown_response || t.responses.is_empty() {
                continue;
            }
            let others: Vec<Option<usize>> = t
                .responses
                .iter()
                .map(|r| {
                    by_response.get(r).and_then(|v| {
                        v.iter().copied().filter(|o| *o != k).max_by_key(|o| self.traces[*o].shows_more)
                    })
                })
                .collect();
            if others.iter().all(Option::is_some) {
                others.into_iter().flatten().for_each(|o| union(&mut parent, o, k));
            }
        }
        let mut key: HashMap<usize, &str> = HashMap::new();
        let mut size: HashMap<usize, usize> = HashMap::new();
        for k in 0..n {
            let r = find(&mut parent, k);
            *size.entry(r).or_default() += 1;
            let e = key.entry(r).or_insert(&self.traces[k].id);
            if self.traces[k].id.as_str() < *e {
                *e = &self.traces[k].id;
            }
        }
        let mut out: Vec<(String, String)> = Vec::new();
        for k in 0..n {
            let r = find(&mut parent, k);
            if size[&r] > 1 && key[&r] != self.traces[k].id {
                out.push((self.traces[k].id.clone(), key[&r].to_owned()));
            }
        }
        out.sort();
        out
    }
}

fn find(parent: &mut [usize], mut k: usize) -> usize {
    while parent[k] != k {
        parent[k] = parent[parent[k]];
        k = parent[k];
    }
    k
}

fn union(parent: &mut [usize], a: usize, b: usize) {
    let (a, b) = (find(parent, a), find(parent, b));
    parent[a.max(b)] = a.min(b);
}
