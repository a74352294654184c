//! What another history filter would have passed at the transfers that were recorded (`baton whatif`).
//!
//! The filter works on what the sender's context held at the transfer, item by item (METRICS.md section 1, item). Its result
//! is put in place of what the receiver saw, and judged by the code that judges what was seen. Each transfer is judged by
//! itself: what an earlier one would have passed changes nothing for a later one.

use std::fmt;
use std::sync::Arc;

use baton_record::config::Config;
use baton_record::schema::{Contents, Encoder, ItemRef, SpanColumns, SpanRef};
use baton_record::span::{Item, ItemKind, Span, Speaker, View};
use foldhash::{HashMap, HashSet};

use super::Rules;
use super::constraints::Tracker;
use super::context::{self, view_unknown};
use super::judge::{Facts, Known, Task};
use super::transfers::Transfer;

/// Changes the content of an item; `None`: it stays as it is.
pub type Change = dyn Fn(&Item) -> Option<Item> + Send + Sync;

/// One step of a filter. Instructions are no items: they are the receiver's own and always stay.
#[derive(Clone)]
pub enum Step {
    /// Tool calls and tool results go.
    RemoveTools,
    /// The newest so many items stay.
    LastItems(usize),
    /// The last so many turns stay. A turn begins with a text of the user.
    LastTurns(usize),
    /// The newest items stay that have at most so many tokens together.
    Budget(i64),
    /// Items are changed in place.
    Change(Arc<Change>),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RemoveTools => f.write_str("RemoveTools"),
            Self::LastItems(n) => write!(f, "LastItems({n})"),
            Self::LastTurns(n) => write!(f, "LastTurns({n})"),
            Self::Budget(n) => write!(f, "Budget({n})"),
            Self::Change(_) => f.write_str("Change"),
        }
    }
}

/// A history filter: steps, one after the other.
#[derive(Debug, Clone)]
pub struct HistoryFilter {
    /// The steps.
    pub steps: Vec<Step>,
    /// The configuration, whose patterns find catalogue constraints in what is passed.
    pub config: Arc<Config>,
}

/// An item by what it holds, at the step that finds it.
type Place = (usize, ItemKind, i64);

/// Items that the filter changes, as rows.
#[derive(Default)]
pub(super) struct Made {
    /// Which of the items in `columns` each becomes; `None`: it stays.
    places: HashMap<Place, Option<usize>>,
    columns: Option<SpanColumns>,
}

impl HistoryFilter {
    /// Changes all items of some rows that have content, each once.
    pub(super) fn make(&self, rows: &[SpanRef<'_>], contents: &Contents<'_>) -> Made {
        let mut made = Made::default();
        if !self.steps.iter().any(|s| matches!(s, Step::Change(_))) {
            return made;
        }
        let mut items: Vec<Item> = Vec::new();
        for r in rows {
            for i in r.input(contents).into_iter().flatten().chain(r.output(contents).into_iter().flatten()) {
                let (Some(mut item), false) = (owned(&i), i.kind == ItemKind::Instructions) else { continue };
                for (k, step) in self.steps.iter().enumerate() {
                    let (Step::Change(change), Some(hash)) = (step, item.hash) else { continue };
                    let becomes = made.places.entry((k, item.kind, hash)).or_insert_with(|| {
                        items.push(change(&item)?);
                        Some(items.len() - 1)
                    });
                    if let Some(n) = becomes {
                        item = items[*n].clone();
                    }
                }
            }
        }
        let span = Span { input: Some(items), ..Span::default() };
        // Without columns nothing is found, and what the filter would pass is unknown.
        made.columns = Encoder::default().encode(&[span]).and_then(|b| SpanColumns::new(&b)).ok();
        made
    }
}

impl Made {
    pub(super) fn rows(&self) -> Vec<SpanRef<'_>> {
        self.columns.iter().flat_map(|c| (0..c.len()).map(|i| c.span(i))).collect()
    }

    /// What each item becomes; `contents` is of `rows`.
    pub(super) fn changed<'a>(
        &self,
        rows: &[SpanRef<'a>],
        contents: &'a Contents<'a>,
    ) -> HashMap<Place, Option<ItemRef<'a>>> {
        let Some(items) = rows.first().and_then(|r| r.input(contents)) else { return HashMap::default() };
        self.places.iter().map(|(place, n)| (*place, n.and_then(|n| items.get(n)).copied())).collect()
    }
}

/// The item with its text; `None` where the text is not kept or cannot be compared.
fn owned(i: &ItemRef<'_>) -> Option<Item> {
    Some(Item {
        kind: i.kind,
        speaker: i.speaker,
        name: i.name().map(str::to_owned),
        call_id: i.call_id.map(str::to_owned),
        hash: Some(i.hash?),
        error: i.error(),
        args: i.args,
        text: Some(i.text()?.into()),
        ..Item::default()
    })
}

/// Judges the transfers of a task as if the filter had been in force.
pub(super) struct WhatIf<'a> {
    filter: Arc<HistoryFilter>,
    changed: HashMap<Place, Option<ItemRef<'a>>>,
    tracker: Tracker,
}

impl<'a> WhatIf<'a> {
    pub(super) fn new(filter: Arc<HistoryFilter>, changed: HashMap<Place, Option<ItemRef<'a>>>) -> Self {
        Self { filter, changed, tracker: Tracker::untold() }
    }

    /// Puts what the filter passes in place of what the receiver saw, in what is known of a transfer.
    pub(super) fn judge(
        &mut self,
        task: &mut Task<'a>,
        rules: &Rules,
        i: usize,
        receiver: Option<usize>,
        f: &mut Facts,
    ) {
        let passed = match receiver {
            Some(k) => self.passed(task, i, k),
            None => Err("no model call is recorded"),
        };
        let unknown = passed.as_ref().err().copied();
        let not_kept =
            self.look_for_policies(passed.as_ref().ok(), receiver.map(|k| &task.infs[k].instructions));
        let view = task.transfers[i].sender.map(|k| task.infs[k].view).unwrap_or_default();
        let new = match passed {
            Ok(items) => (Some(items), view),
            Err(_) => (None, View::default()),
        };
        let recorded = receiver.map(|k| {
            let old = &mut task.infs[k];
            let view = View { masked: new.1.masked || old.view.masked, ..new.1 };
            (k, std::mem::replace(&mut old.input, new.0), std::mem::replace(&mut old.view, view))
        });
        // What the spans themselves say of both sides is said of the recorded filter.
        let t = &task.transfers[i];
        let untold = Transfer { explicit: None, ..t.clone() };
        let mut context = context::compare(&task.infs, &untold, receiver);
        context.items_before = f.context.items_before;
        context.tokens_before = f.context.tokens_before;
        context.before_unknown = f.context.before_unknown;
        let mut constraints =
            self.tracker.step(rules, &task.g, &task.runs, &task.infs, t, receiver, f.payload.unknown);
        let mut leaks = match t.to_run {
            Some(_) => context::leaks(&task.infs, &task.calls, t, receiver, &context),
            None => Err("no receiver ran"),
        };
        if let Some((k, input, view)) = recorded {
            task.infs[k].input = input;
            task.infs[k].view = view;
        }
        if let Some(why) = unknown {
            context.after_unknown = Some(why);
            constraints.retention_unknown.get_or_insert(why.to_owned());
            leaks = Err(why);
        }
        if not_kept {
            let patterns = |id: &str| {
                self.filter.config.policies.iter().any(|p| p.constraint.id == id && !p.patterns.is_empty())
            };
            for x in constraints.list.iter_mut().filter(|x| x.in_view == Some(false) && patterns(&x.id)) {
                (x.in_view, x.got, x.cause) = (None, None, None);
                if x.counted {
                    constraints.retention_unknown.get_or_insert(NOT_KEPT.to_owned());
                }
            }
        }
        (f.context, f.constraints, f.leaks) = (context, constraints, leaks);
    }

    /// Looks for catalogue constraints by their patterns in what is passed and in the receiver's instructions. True where a
    /// text that may hold one is not kept.
    fn look_for_policies(
        &mut self,
        passed: Option<&Vec<ItemRef<'a>>>,
        own: Option<&Vec<ItemRef<'a>>>,
    ) -> bool {
        let mut not_kept = false;
        let mut found: Vec<String> = Vec::new();
        if self.filter.config.policies.iter().any(|p| !p.patterns.is_empty()) {
            for i in passed.into_iter().chain(own).flatten().filter(|i| !i.blanked) {
                match i.text() {
                    Some(t) => found.extend(self.filter.config.policies_in(t).map(str::to_owned)),
                    None => not_kept |= i.tokens() != Some(0),
                }
            }
        }
        self.tracker.seen = Some(found);
        not_kept
    }

    /// The items that the filter passes to a receiver.
    fn passed(&self, task: &Task<'a>, i: usize, receiver: usize) -> Known<Vec<ItemRef<'a>>> {
        let t = &task.transfers[i];
        let sender = t.sender.map(|k| &task.infs[k]);
        let seen = &task.infs[receiver];
        if let Some(why) = view_unknown(sender).or_else(|| view_unknown(Some(seen))) {
            return Err(why);
        }
        let not_captured = "content not captured";
        let Some((input, output)) = sender.and_then(|f| Some((f.input.as_ref()?, f.output.as_ref()))) else {
            return Err(not_captured);
        };
        let view = seen.input.as_ref().ok_or(not_captured)?;
        let said = output.into_iter().flatten().filter(|i| i.kind != ItemKind::Instructions);
        let before: Vec<&ItemRef<'a>> = input.iter().chain(said.clone()).collect();
        // Written at the transfer: a note, a summary, the work of a delegation. What tells the history again in other words
        // or blanks it is the work of the recorded filter.
        let mut added = context::added(&before, &view.iter().collect::<Vec<_>>());
        added.retain(|i| i.kind == ItemKind::Text && !i.blanked && !i.retold());
        let mut items = input.clone();
        if t.mode == "return_to_caller" {
            // The turn that delegates is not passed on, and no filter takes the work away.
            self.apply(&mut items)?;
            items.extend(added);
            return Ok(items);
        }
        if output.is_none() {
            return Err("the sender's output is not captured");
        }
        items.extend(said);
        // A history is filtered when the calls of the turn have their answers, that of the transfer itself included.
        for c in t.sender.into_iter().flat_map(|k| task.asked_by(k)) {
            let call = &task.calls[c];
            if Some(c) != t.call && !call.answered {
                continue;
            }
            let answers = |r: &&ItemRef<'_>| {
                r.kind == ItemKind::Result && r.call_id.is_some() && r.call_id == call.call_id
            };
            let held = view.iter().find(answers);
            items.extend(held.or(call.results.iter().find(|r| r.hash.is_some())));
        }
        items.extend(added);
        self.apply(&mut items)?;
        Ok(items)
    }

    fn apply(&self, items: &mut Vec<ItemRef<'a>>) -> Known<()> {
        for (k, step) in self.filter.steps.iter().enumerate() {
            match step {
                Step::RemoveTools => items.retain(|i| i.kind == ItemKind::Text),
                Step::LastItems(n) => keep_newest(items, items.len().saturating_sub(*n)),
                Step::LastTurns(n) => {
                    let starts: Vec<usize> = (0..items.len())
                        .filter(|i| items[*i].kind == ItemKind::Text && items[*i].speaker == Speaker::User)
                        .collect();
                    // With fewer turns than that, all stay.
                    let from = match n {
                        0 => items.len(),
                        n => starts.len().checked_sub(*n).map_or(0, |i| starts[i]),
                    };
                    keep_newest(items, from);
                }
                Step::Budget(tokens) => {
                    let from = within(items, *tokens)?;
                    keep_newest(items, from);
                }
                Step::Change(_) => {
                    for i in items.iter_mut() {
                        let hash = i.hash.ok_or("masked by the instrumentation")?;
                        if let Some(new) = self.changed.get(&(k, i.kind, hash)).ok_or(NOT_KEPT)? {
                            let (speaker, call_id) = (i.speaker, i.call_id);
                            *i = *new;
                            // Two items may hold the same.
                            (i.speaker, i.call_id) = (speaker, call_id);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

const NOT_KEPT: &str = "content not kept";

/// The place of the first of the newest items that fit.
fn within(items: &[ItemRef<'_>], budget: i64) -> Known<usize> {
    let mut used = 0i64;
    for (at, i) in items.iter().enumerate().rev() {
        used = used.saturating_add(i64::from(i.tokens().ok_or("tokens of an item are not known")?));
        if used > budget {
            return Ok(at + 1);
        }
    }
    Ok(0)
}

/// Keeps what stands from a place on. A result whose call is gone goes too: providers refuse it.
fn keep_newest(items: &mut Vec<ItemRef<'_>>, from: usize) {
    let calls = |part: &[ItemRef<'_>]| -> HashSet<String> {
        let calls = part.iter().filter(|i| i.kind == ItemKind::Call);
        calls.filter_map(|i| i.call_id).map(str::to_owned).collect()
    };
    let (gone, kept) = (calls(&items[..from]), calls(&items[from..]));
    items.drain(..from);
    items.retain(|i| {
        i.kind != ItemKind::Result || i.call_id.is_none_or(|id| !gone.contains(id) || kept.contains(id))
    });
}
