//! Assembly: from the spans of one task to what happened. Pure, no I/O; the same rows in any order give
//! the same result.
//!
//! | module | step |
//! |---|---|
//! | `graph` | each span once, log records joined, the tree |
//! | `inference` | model calls, each once |
//! | `runs` | which agent ran each thing |
//! | `calls` | tool calls: request, span and result joined |
//! | `intents`, `transfers` | what asked for a transfer, who took it |
//! | `context`, `constraints`, `repeats`, `bounces` | what each transfer carried and cost |
//! | `whatif` | the same under another history filter |
//! | `judge`, `outcome` | what is known of each transfer and of the task |
//! | `verdict`, `judgement` | who lost the rule that was broken |
//! | `emit`, `findings` | rows of the tables |

mod bounces;
mod calls;
mod constraints;
mod context;
mod emit;
mod findings;
mod graph;
mod inference;
mod intents;
mod judge;
mod judgement;
mod outcome;
mod repeats;
mod runs;
mod transfers;
mod verdict;
mod whatif;

use foldhash::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use baton_record::config::{Config, Mutating};
use baton_record::constraint::ConstraintKind;
use baton_record::prints::{PrintKey, phrase_shingles};
use baton_record::schema::{Contents, SpanRef};

use crate::tables::Tables;

pub use whatif::{Change, HistoryFilter, Step};

/// A rule of the policy catalogue, ready for matching.
#[derive(Debug, Clone)]
pub struct PolicyRule {
    /// Id.
    pub id: String,
    /// Hash.
    pub hash: String,
    /// Text, where given.
    pub text: Option<String>,
    /// A wish.
    pub soft: bool,
    /// What a text must hold.
    pub shingles: Vec<u32>,
    /// Slugs of the agents it binds; empty: everyone.
    pub agents: Vec<String>,
    /// A rule says when a tool call breaks it.
    pub has_rule: bool,
}

/// What assembly needs of the configuration.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The key under which the rows were fingerprinted.
    pub key: PrintKey,
    /// Tools that change something.
    pub mutating: Vec<Mutating>,
    /// Slugs of tools whose repeats mean nothing.
    pub volatile: Vec<String>,
    /// The policy catalogue.
    pub policies: Vec<PolicyRule>,
    /// The history filter under which transfers are judged; `None`: as they are recorded.
    pub filter: Option<Arc<HistoryFilter>>,
    /// Counted by assembly: recordings of spans beyond the first of each.
    pub doubled: Arc<AtomicU64>,
}

impl Rules {
    /// From a configuration and the key of the rows.
    pub fn new(config: &Config, key: PrintKey) -> Self {
        let policies = config
            .policies
            .iter()
            .map(|p| PolicyRule {
                id: p.constraint.id.clone(),
                hash: p.constraint.hash.clone(),
                text: p.constraint.text.clone(),
                soft: p.constraint.kind == ConstraintKind::Soft,
                shingles: p.constraint.text.as_deref().map(|t| phrase_shingles(key, t)).unwrap_or_default(),
                agents: p.agents.clone(),
                has_rule: config.rules.iter().any(|r| r.constraint == p.constraint.id),
            })
            .collect();
        Self {
            key,
            mutating: config.mutating.clone(),
            volatile: config.volatile.clone(),
            policies,
            ..Self::default()
        }
    }
}

/// Assembles one group of traces, of whose rows `contents` is: usually one task, more where a trace carries several `baton.task.id`s.
pub fn assemble(rules: &Rules, rows: &[SpanRef<'_>], contents: &Contents<'_>, out: &mut Tables) {
    let first = rows.iter().find_map(SpanRef::task_id);
    if first.is_none() || rows.iter().all(|r| r.task_id().is_none_or(|t| Some(t) == first)) {
        judge::task(rules, rows, contents, first, out);
        return;
    }
    for (id, part) in parts(rows) {
        judge::task(rules, &part, contents, Some(&id), out);
    }
}

/// Each span belongs to the task it names, else to its nearest ancestor's, else to the first of its trace.
fn parts<'a>(rows: &[SpanRef<'a>]) -> BTreeMap<String, Vec<SpanRef<'a>>> {
    let by_id: HashMap<(&str, &str), usize> =
        rows.iter().enumerate().filter(|(_, r)| !r.log).map(|(i, r)| ((r.trace_id, r.span_id), i)).collect();
    let mut first: HashMap<&str, (Option<i64>, &str)> = HashMap::default();
    for r in rows {
        if let Some(t) = r.task_id() {
            let e = first.entry(r.trace_id).or_insert((r.start, t));
            *e = (*e).min((r.start, t));
        }
    }
    let task_of = |r: &SpanRef<'_>| -> Option<String> {
        let mut at = by_id.get(&(r.trace_id, r.span_id)).copied();
        for _ in 0..rows.len() {
            let Some(i) = at else { break };
            if let Some(t) = rows[i].task_id() {
                return Some(t.to_owned());
            }
            at = rows[i].parent_id.and_then(|p| by_id.get(&(rows[i].trace_id, p)).copied());
        }
        first.get(r.trace_id).map(|(_, t)| (*t).to_owned())
    };
    let tasks: Vec<Option<String>> = rows.iter().map(task_of).collect();
    let mut out: BTreeMap<String, Vec<SpanRef<'a>>> = BTreeMap::new();
    for (row, task) in rows.iter().zip(tasks) {
        if let Some(t) = task {
            out.entry(t).or_default().push(*row);
        }
    }
    out
}
