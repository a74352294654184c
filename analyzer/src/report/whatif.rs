//! What another history filter would have passed, beside what was passed (`baton whatif`).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::document::{Document, Section, Table};
use super::text;
use crate::evaluate::{PerHandoff, Stream, Value as Measured};
use crate::session::{Result, Session};

/// Transfers that a page lists.
const SHOWN: usize = 20;

/// A value on one side, or why it is not known: numerator, and denominator where it is a share.
type Side = Result<(i64, i64), String>;

/// What is compared: name, whether it is a share, in words for the page.
const COMPARED: [(&str, bool, &str); 5] = [
    ("items_after", false, ">items"),
    ("tokens_after", false, ">tokens"),
    ("constraint_retention", true, ">constraints kept"),
    ("leaks", false, ">leaks"),
    ("filtered_results", false, ">results lost"),
];

/// One transfer on both sides.
#[derive(Debug)]
struct Transfer {
    handoff: String,
    task: String,
    from: Option<String>,
    to: Option<String>,
    /// In the order of [`COMPARED`]: as recorded, and under the filter.
    sides: [(Side, Side); COMPARED.len()],
}

/// Accepted transfers as recorded and under a filter, in the order of time.
#[derive(Debug)]
pub struct WhatIf {
    filter: String,
    transfers: Vec<Transfer>,
}

impl WhatIf {
    /// Compares the recorded tables with those [under a filter](Session::under_filter), which is named as in `filter`.
    ///
    /// # Errors
    /// The engine's.
    pub async fn new(recorded: &Session, filtered: &Session, filter: &str) -> Result<Self> {
        let sides = [Columns::new(recorded).await?, Columns::new(filtered).await?];
        let mut transfers = Vec::new();
        let sql = "SELECT handoff_id, task_id, from_agent, to_agent FROM handoffs WHERE outcome = 'accepted' \
                   ORDER BY time, task_id, seq";
        let mut rows = Stream::new(recorded, sql).await?;
        while rows.advance().await? {
            let r = rows.row();
            let own = |k: &str| r.text(k).map(str::to_owned);
            let handoff = own("handoff_id").unwrap_or_default();
            let [a, b] = [sides[0].of(&handoff), sides[1].of(&handoff)];
            let mut b = b.into_iter();
            transfers.push(Transfer {
                task: own("task_id").unwrap_or_default(),
                from: own("from_agent"),
                to: own("to_agent"),
                sides: a.map(|a| (a, b.next().unwrap_or_else(|| Err("not known".to_owned())))),
                handoff,
            });
        }
        Ok(Self { filter: filter.to_owned(), transfers })
    }

    /// Sums over the transfers that are known on both sides.
    fn totals(&self) -> Vec<Total> {
        let total = |(i, (name, share, _)): (usize, &(&'static str, bool, &str))| {
            let mut t = Total { measure: name, share: *share, ..Total::default() };
            for x in &self.transfers {
                match &x.sides[i] {
                    (Ok(a), Ok(b)) => {
                        t.compared += 1;
                        t.recorded = (t.recorded.0 + a.0, t.recorded.1 + a.1);
                        t.filtered = (t.filtered.0 + b.0, t.filtered.1 + b.1);
                    }
                    (Err(why), _) | (_, Err(why)) => *t.unknown.entry(why.clone()).or_default() += 1,
                }
            }
            t
        };
        COMPARED.iter().enumerate().map(total).collect()
    }

    /// For people.
    pub fn document(&self) -> Document {
        let totals = self.totals();
        let rows = totals
            .iter()
            .map(|t| {
                let why: Vec<String> = t.unknown.iter().map(|(why, n)| format!("{n}: {why}")).collect();
                let side = |v| if t.compared == 0 { "unknown".to_owned() } else { shown(v, t.share) };
                vec![
                    t.measure.to_owned(),
                    side(t.recorded),
                    side(t.filtered),
                    t.compared.to_string(),
                    t.unknown.values().sum::<u64>().to_string(),
                    why.join("; "),
                ]
            })
            .collect();
        let head = vec![
            "over transfers known on both sides",
            ">recorded",
            ">what if",
            ">transfers",
            ">unknown",
            "why unknown",
        ];
        let sum = Section {
            title: String::new(),
            lines: vec![
                format!("filter: {}", self.filter),
                format!("{} accepted transfers", self.transfers.len()),
            ],
            table: Some(Table { head, rows }),
        };
        let rows: Vec<Vec<String>> = self.transfers.iter().take(SHOWN).map(row).collect();
        let mut head = vec!["handoff", "from -> to"];
        head.extend(COMPARED.iter().map(|(_, _, h)| *h));
        head.push("why unknown");
        let mut lines = vec!["recorded -> what if".to_owned()];
        if self.transfers.len() > SHOWN {
            lines.push(format!("the first {SHOWN}; `--format json` lists all"));
        }
        let each = Section { title: "Transfers".to_owned(), lines, table: Some(Table { head, rows }) };
        Document { title: "What if".to_owned(), sections: vec![sum, each] }
    }

    /// For machines, `baton.whatif/1`.
    pub fn json(&self) -> Value {
        let handoffs: Vec<Value> = self
            .transfers
            .iter()
            .map(|t| {
                let mut unknown = serde_json::Map::new();
                let mut side = |pick: fn(&(Side, Side)) -> &Side, name: &str| {
                    let mut out = serde_json::Map::new();
                    for ((measure, share, _), v) in COMPARED.iter().zip(&t.sides) {
                        let v = match pick(v) {
                            Ok((n, d)) => value((*n, *d), *share),
                            Err(why) => {
                                unknown.insert(format!("{name}.{measure}"), json!(why));
                                Value::Null
                            }
                        };
                        out.insert((*measure).to_owned(), v);
                    }
                    out
                };
                let (recorded, filtered) = (side(|s| &s.0, "recorded"), side(|s| &s.1, "what_if"));
                json!({"handoff_id": t.handoff, "task_id": t.task, "from_agent": t.from, "to_agent": t.to,
                       "recorded": recorded, "what_if": filtered, "unknown": unknown})
            })
            .collect();
        let side = |t: &Total, v| if t.compared == 0 { Value::Null } else { value(v, t.share) };
        let total = |t: &Total| {
            json!({"measure": t.measure, "recorded": side(t, t.recorded), "what_if": side(t, t.filtered),
                   "transfers": t.compared, "unknown": t.unknown})
        };
        let totals: Vec<Value> = self.totals().iter().map(total).collect();
        json!({"schema": "baton.whatif/1", "filter": self.filter, "totals": totals, "handoffs": handoffs})
    }
}

/// One measure over all transfers.
#[derive(Debug, Default)]
struct Total {
    measure: &'static str,
    share: bool,
    /// Transfers known on both sides.
    compared: u64,
    /// Sum of numerators, and of denominators.
    recorded: (i64, i64),
    filtered: (i64, i64),
    /// Why the others are not known, with how many.
    unknown: BTreeMap<String, u64>,
}

fn value((n, d): (i64, i64), share: bool) -> Value {
    if share { json!({"kept": n, "of": d}) } else { json!(n) }
}

fn shown((n, d): (i64, i64), share: bool) -> String {
    if share { format!("{n} of {d}") } else { n.to_string() }
}

fn row(t: &Transfer) -> Vec<String> {
    let name = |n: &Option<String>| text::short(n.as_deref().unwrap_or("(unnamed)"), 40);
    let mut row = vec![t.handoff.clone(), format!("{} -> {}", name(&t.from), name(&t.to))];
    let mut unknown: Vec<String> = Vec::new();
    for ((_, share, _), (a, b)) in COMPARED.iter().zip(&t.sides) {
        let side = |s: &Side| s.as_ref().map_or("?".to_owned(), |v| shown(*v, *share));
        for why in [a, b].into_iter().filter_map(|s| s.as_ref().err()) {
            if !unknown.contains(why) {
                unknown.push(why.clone());
            }
        }
        row.push(format!("{} -> {}", side(a), side(b)));
    }
    row.push(unknown.join("\n"));
    row
}

/// One side of all transfers.
struct Columns {
    measures: PerHandoff,
    /// By the transfer's place.
    context: Vec<Context>,
}

/// What a receiver saw, counted.
#[derive(Debug, Default)]
struct Context {
    /// Items, tokens, results that did not arrive.
    counts: [Option<i64>; 3],
    /// Why what it saw is not known, and why the sender's context is not.
    after_unknown: Option<String>,
    before_unknown: Option<String>,
}

impl Columns {
    async fn new(session: &Session) -> Result<Self> {
        let measures = PerHandoff::of(session, |m| matches!(m, "constraint_retention" | "leaks")).await?;
        let mut context = Vec::new();
        context.resize_with(measures.len(), Default::default);
        let sql = "SELECT handoff_id, items_after, tokens_after, filtered_results, before_unknown, after_unknown FROM handoffs";
        let mut rows = Stream::new(session, sql).await?;
        while rows.advance().await? {
            let r = rows.row();
            let Some(place) = r.text("handoff_id").and_then(|id| measures.place(id)) else { continue };
            let own = |k: &str| r.text(k).map(str::to_owned);
            let counts = ["items_after", "tokens_after", "filtered_results"].map(|k| r.int(k));
            context[place] = Context {
                counts,
                after_unknown: own("after_unknown"),
                before_unknown: own("before_unknown"),
            };
        }
        Ok(Self { measures, context })
    }

    fn of(&self, handoff: &str) -> [Side; COMPARED.len()] {
        let absent = || Err("not known".to_owned());
        let Some(place) = self.measures.place(handoff) else { return std::array::from_fn(|_| absent()) };
        let c = &self.context[place];
        let count = |k: usize| match (c.counts[k], &c.after_unknown, &c.before_unknown) {
            (Some(n), None, _) => Ok((n, 1)),
            (_, Some(why), _) | (None, None, Some(why)) => Err(why.clone()),
            (None, None, None) if k == 1 => Err("tokens of an item are not known".to_owned()),
            (None, None, None) => Err("items cannot be compared".to_owned()),
        };
        let measure = |name: &str| match self.measures.get(name, place) {
            // A share has no scale, and a count neither.
            Some(Measured::Known(n, d)) => Ok((n as i64, d)),
            Some(Measured::Unknown(why)) => Err(why.to_owned()),
            None => absent(),
        };
        [count(0), count(1), measure("constraint_retention"), measure("leaks"), count(2)]
    }
}
