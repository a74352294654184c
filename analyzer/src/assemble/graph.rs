//! The spans of one group of traces as a tree: each span once, log records joined to their span, parents
//! before children, broken parents marked.

use foldhash::HashMap;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use baton_record::schema::{Contents, ItemRef, PayloadRef, SpanRef};
use baton_record::span::{Args, ItemKind, Role, Source, Status, View};

/// Name, score and label of a judgement.
pub(super) type Judged<'a> = (&'a str, Option<f64>, Option<&'a str>);

/// A span in the tree.
#[derive(Debug)]
pub(super) struct Node<'a> {
    pub s: &'a SpanRef<'a>,
    pub parent: Option<usize>,
    /// Of spans that miss the same parent, the one that stands for all.
    pub beside: Option<usize>,
    /// The last end of a child.
    children_end: Option<i64>,
    pub depth: u32,
    /// Start for ordering: never before the parent's. The raw one stays in `s`.
    pub start: i64,
    pub end: Option<i64>,
    pub input: Option<Vec<ItemRef<'a>>>,
    pub output: Option<Vec<ItemRef<'a>>>,
    pub payloads: Vec<PayloadRef<'a>>,
    /// Judgements about it: of the span and of log records, each once.
    pub evaluations: Vec<Judged<'a>>,
    pub view: View,
    pub error: bool,
    /// A recording of something that another node records: not looked at again.
    pub duplicate: bool,
}

/// The tree.
#[derive(Debug, Default)]
pub(super) struct Graph<'a> {
    pub nodes: Vec<Node<'a>>,
    /// All nodes by start, parents before children.
    pub order: Vec<usize>,
    /// Why data lacks; empty where it does not.
    pub partial: Option<&'static str>,
    /// Spans with the ids of another one and other content.
    pub conflicts: usize,
    /// Recordings of spans that count once.
    pub doubled: usize,
}

/// The ids of a span. Those of its own differ nearly always, so they alone are hashed.
#[derive(PartialEq, Eq)]
struct SpanId<'a> {
    trace: &'a str,
    span: &'a str,
}

impl Hash for SpanId<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.span.hash(state);
    }
}

type ById<'a> = HashMap<SpanId<'a>, usize>;

/// What a row holds.
#[derive(Debug, Default)]
struct Held<'a> {
    input: Option<Vec<ItemRef<'a>>>,
    output: Option<Vec<ItemRef<'a>>>,
    payloads: Vec<PayloadRef<'a>>,
}

impl<'a> Held<'a> {
    fn of(row: &SpanRef<'a>, contents: &'a Contents<'a>) -> Self {
        Self { input: row.input(contents), output: row.output(contents), payloads: row.payloads() }
    }

    fn hashes(&self) -> Vec<Option<i64>> {
        self.input.iter().chain(&self.output).flatten().map(|i| i.hash).collect()
    }
}

/// How much a recording says; of two recordings of one span the fuller one is kept.
fn fullness(s: &SpanRef<'_>, h: &Held<'_>) -> (bool, usize, usize, Option<i64>) {
    let items = |i: &Option<Vec<ItemRef<'_>>>| i.as_ref().map_or(0, |v| v.len() + 1);
    let hashed = h.input.iter().chain(&h.output).flatten().filter(|i| i.hash.is_some()).count();
    (s.end.is_some(), items(&h.input) + items(&h.output) + h.payloads.len(), hashed, s.end)
}

/// A fixed order between two recordings of one span, whatever order they arrived in.
fn prefer((a, x): (&SpanRef<'_>, &Held<'_>), (b, y): (&SpanRef<'_>, &Held<'_>)) -> Ordering {
    fullness(a, x)
        .cmp(&fullness(b, y))
        .then_with(|| b.start.cmp(&a.start))
        .then_with(|| b.name().cmp(a.name()))
        .then_with(|| b.agent().cmp(&a.agent()))
        .then_with(|| y.hashes().cmp(&x.hashes()))
}

impl<'a> Graph<'a> {
    /// Builds the tree of the given rows.
    pub(super) fn new(rows: &'a [SpanRef<'a>], contents: &'a Contents<'a>) -> Self {
        let mut by_id: ById<'_> = HashMap::with_capacity_and_hasher(rows.len(), Default::default());
        let mut winners: Vec<usize> = Vec::with_capacity(rows.len());
        let mut logs: Vec<usize> = Vec::new();
        let mut conflicts = 0;
        for (i, r) in rows.iter().enumerate() {
            if r.log {
                logs.push(i);
                continue;
            }
            match by_id.entry(SpanId { trace: r.trace_id, span: r.span_id }) {
                std::collections::hash_map::Entry::Vacant(e) => {
                    e.insert(winners.len());
                    winners.push(i);
                }
                std::collections::hash_map::Entry::Occupied(e) => {
                    let w = &mut winners[*e.get()];
                    let old = &rows[*w];
                    conflicts +=
                        usize::from(old.name() != r.name() || old.start != r.start || old.end != r.end);
                    let held = |r| Held::of(r, contents);
                    if prefer((r, &held(r)), (old, &held(old))).is_gt() {
                        *w = i;
                    }
                }
            }
        }
        let doubled = rows.len() - logs.len() - winners.len();
        let mut g = Self { conflicts, doubled, ..Self::default() };
        g.nodes = winners
            .into_iter()
            .map(|i| {
                let s = &rows[i];
                Node {
                    s,
                    parent: None,
                    beside: None,
                    children_end: None,
                    depth: 0,
                    start: s.start.unwrap_or(i64::MIN),
                    end: s.end,
                    input: s.input(contents),
                    output: s.output(contents),
                    payloads: s.payloads(),
                    evaluations: s.evaluations(),
                    view: s.view,
                    error: s.status == Status::Error,
                    duplicate: false,
                }
            })
            .collect();
        g.link(&by_id);
        let logs = logs.into_iter().map(|i| (&rows[i], Held::of(&rows[i], contents))).collect();
        g.join_logs(logs, &by_id);
        g
    }

    fn link(&mut self, by_id: &ById<'_>) {
        let n = self.nodes.len();
        let mut orphans: Vec<usize> = Vec::new();
        for i in 0..n {
            let s = self.nodes[i].s;
            if let Some(p) = s.parent_id {
                match by_id.get(&SpanId { trace: s.trace_id, span: p }) {
                    Some(&p) if p != i => self.nodes[i].parent = Some(p),
                    Some(_) => self.partial = Some("a span is its own parent"),
                    None if s.remote_parent() => {}
                    None => {
                        self.partial = Some("a parent span is missing");
                        orphans.push(i);
                    }
                }
            }
            if s.end.is_none()
                && matches!(s.role, Role::Agent | Role::Inference | Role::Workflow | Role::Tool)
            {
                self.partial = self.partial.or(Some("a span has no end"));
            }
        }
        // Every walk up the parents must end: the member of a cycle that starts first becomes a root.
        let mut state = vec![0u8; n]; // 1: on the path, 2: known to end
        let mut path = Vec::new();
        for i in 0..n {
            let mut at = Some(i);
            while let Some(x) = at {
                if state[x] != 0 {
                    break;
                }
                state[x] = 1;
                path.push(x);
                at = self.nodes[x].parent;
            }
            if let Some(x) = at.filter(|x| state[*x] == 1) {
                let from = path.iter().position(|p| *p == x).unwrap_or(0);
                if let Some(first) = path[from..]
                    .iter()
                    .copied()
                    .min_by_key(|p| (self.nodes[*p].s.start, self.nodes[*p].s.span_id))
                {
                    self.nodes[first].parent = None;
                    self.partial = Some("parents form a circle");
                }
            }
            path.drain(..).for_each(|p| state[p] = 2);
        }
        self.adopt(&orphans);
        // The children of each node as a chain.
        let (mut first, mut next): (Vec<Option<usize>>, Vec<Option<usize>>) = (vec![None; n], vec![None; n]);
        for (i, next) in next.iter_mut().enumerate() {
            if let Some(p) = self.nodes[i].parent {
                *next = first[p].replace(i);
                self.nodes[p].children_end = self.nodes[p].children_end.max(self.nodes[i].end);
            }
        }
        // Depth and order: parents first, and no child before its parent.
        let mut stack: Vec<usize> = (0..n).filter(|i| self.nodes[*i].parent.is_none()).collect();
        while let Some(i) = stack.pop() {
            let (start, depth) = (self.nodes[i].start, self.nodes[i].depth);
            let mut child = first[i];
            while let Some(c) = child {
                let node = &mut self.nodes[c];
                node.depth = depth + 1;
                node.start = node.start.max(start);
                stack.push(c);
                child = next[c];
            }
        }
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|a, b| self.key(*a).cmp(&self.key(*b)));
        self.order = order;
    }

    /// A span whose parent is missing hangs on the root of its trace, where there is one; else it stands beside those that
    /// miss the same parent.
    fn adopt(&mut self, orphans: &[usize]) {
        if orphans.is_empty() {
            return;
        }
        let mut roots: HashMap<&str, Option<usize>> = HashMap::default();
        for (i, n) in self.nodes.iter().enumerate().filter(|(_, n)| n.s.parent_id.is_none()) {
            // Of several roots none is known to be the one.
            roots.entry(n.s.trace_id).and_modify(|r| *r = None).or_insert(Some(i));
        }
        let mut first: HashMap<(&str, Option<&str>), usize> = HashMap::default();
        for &i in orphans {
            let s = self.nodes[i].s;
            match roots.get(s.trace_id) {
                Some(&Some(r)) => self.nodes[i].parent = Some(r),
                _ => {
                    let e = first.entry((s.trace_id, s.parent_id)).or_insert(i);
                    if s.span_id < self.nodes[*e].s.span_id {
                        *e = i;
                    }
                }
            }
        }
        for &i in orphans {
            let s = self.nodes[i].s;
            self.nodes[i].beside = first.get(&(s.trace_id, s.parent_id)).copied();
        }
    }

    /// The outermost span above a node; spans that miss the same parent have one in common.
    pub(super) fn outermost(&self, i: usize) -> usize {
        let root = self.ancestors(i).last().unwrap_or(i);
        self.nodes[root].beside.unwrap_or(root)
    }

    /// The place of a node in any list: by start, parents first, then by ids.
    fn key(&self, i: usize) -> (i64, u32, Option<i64>, &'a str, &'a str) {
        let n = &self.nodes[i];
        (n.start, n.depth, n.s.start, n.s.trace_id, n.s.span_id)
    }

    /// Log records carry messages, arguments and judgements that the span lacks.
    fn join_logs(&mut self, mut logs: Vec<(&'a SpanRef<'a>, Held<'a>)>, by_id: &ById<'_>) {
        if logs.is_empty() {
            return;
        }
        let place = |l: &SpanRef<'a>| (l.trace_id, l.span_id, l.start, l.name());
        let judged = |l: &SpanRef<'a>| {
            let all = l.evaluations().into_iter();
            all.map(|(name, score, label)| (name, score.map(f64::to_bits), label)).collect::<Vec<_>>()
        };
        let holds = |l: &SpanRef<'a>, h: &Held<'a>| (h.hashes(), judged(l));
        logs.sort_by(|(a, x), (b, y)| place(a).cmp(&place(b)).then_with(|| holds(a, x).cmp(&holds(b, y))));
        // The same record twice is once.
        logs.dedup_by(|(a, x), (b, y)| place(a) == place(b) && holds(a, x) == holds(b, y));
        let mut by_call: HashMap<(&str, &str), usize> = HashMap::default();
        for (i, n) in self.nodes.iter().enumerate() {
            if let (Role::Tool, Some(c), true) = (n.s.role, n.s.call_id(), n.s.tool().is_some()) {
                by_call.entry((n.s.trace_id, c)).or_insert(i);
            }
        }
        let had: Vec<(bool, bool)> =
            self.nodes.iter().map(|n| (n.input.is_some(), n.output.is_some())).collect();
        for (l, h) in logs {
            let target = match (l.role, l.call_id()) {
                (Role::Tool, Some(c)) => by_call.get(&(l.trace_id, c)).copied(),
                _ => by_id.get(&SpanId { trace: l.trace_id, span: l.span_id }).copied(),
            };
            let Some(t) = target else { continue };
            let n = &mut self.nodes[t];
            for e in l.evaluations() {
                // A judge may say it on the span and beside it.
                if !n.evaluations.contains(&e) {
                    n.evaluations.push(e);
                }
            }
            if l.role == Role::Tool {
                let lacks = n.input.as_ref().is_none_or(|i| i.first().is_none_or(|c| c.args == Args::Absent));
                if lacks {
                    n.input = h.input;
                    n.payloads.extend(h.payloads);
                }
                n.error |= l.status == Status::Error;
                continue;
            }
            // Per-message events add up; where the span has the messages itself, they only repeat it.
            let messages =
                n.input.as_ref().map_or(0, |i| i.iter().filter(|x| x.kind != ItemKind::Instructions).count());
            let before = [messages, n.output.as_ref().map_or(0, Vec::len)];
            if let Some(items) = h.input.filter(|_| !had[t].0) {
                n.input.get_or_insert_default().extend(items);
            }
            if let Some(items) = h.output.filter(|_| !had[t].1) {
                n.output.get_or_insert_default().extend(items);
            }
            for mut p in h.payloads {
                let (base, repeated) = match p.source {
                    Source::Input => (before[0], had[t].0),
                    Source::Output => (before[1], had[t].1),
                    _ => continue,
                };
                if !repeated {
                    p.pos += i32::try_from(base).unwrap_or(0);
                    n.payloads.push(p);
                }
            }
            n.view.cut |= l.view.cut;
            n.view.masked |= l.view.masked;
            if had[t] == (false, false) {
                n.view.lossy = false;
            }
        }
        // Instructions go first, as on spans.
        for n in &mut self.nodes {
            if let Some(i) = n.input.as_mut() {
                i.sort_by_key(|x| x.kind != ItemKind::Instructions);
            }
        }
    }

    /// Each trace with its first start.
    pub(super) fn traces(&self) -> Vec<(&'a str, i64)> {
        let mut out: Vec<(&'a str, i64)> = Vec::new();
        let mut places: HashMap<&'a str, usize> = HashMap::default();
        for n in &self.nodes {
            // Nodes of one trace stand together.
            let known = match out.last() {
                Some((t, _)) if *t == n.s.trace_id => Some(out.len() - 1),
                _ if out.is_empty() => None,
                _ => places.get(n.s.trace_id).copied(),
            };
            match known {
                Some(k) => out[k].1 = out[k].1.min(n.start),
                None => {
                    places.insert(n.s.trace_id, out.len());
                    out.push((n.s.trace_id, n.start));
                }
            }
        }
        out
    }

    /// Ancestors of a node, nearest first.
    pub(super) fn ancestors(&self, i: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.nodes[i].parent, |p| self.nodes[*p].parent)
    }

    /// True where `inner` lies below `outer`.
    pub(super) fn is_below(&self, inner: usize, outer: usize) -> bool {
        self.ancestors(inner).any(|a| a == outer)
    }

    /// For each place of a list of nodes: the least start, by the span's own clock, from there on. What ended before it lies
    /// around none of them. Clocks disagree, so no order of the nodes says that.
    pub(super) fn least_starts(&self, nodes: &[usize]) -> Vec<i64> {
        let mut least = i64::MAX;
        let mut out: Vec<i64> = nodes
            .iter()
            .rev()
            .map(|i| {
                least = least.min(self.nodes[*i].s.start.unwrap_or(i64::MIN));
                least
            })
            .collect();
        out.reverse();
        out
    }

    /// End of a node for ordering: its own, else that of its last child, else its start.
    pub(super) fn end(&self, i: usize) -> i64 {
        let n = &self.nodes[i];
        n.end.or(n.children_end).unwrap_or(n.start).max(n.start)
    }
}
