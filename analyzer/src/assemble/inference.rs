//! Model calls, each once (METRICS.md section 5).

use foldhash::{HashMap, HashSet};

use baton_record::schema::{ItemRef, Names, PayloadRef};
use baton_record::span::{ItemKind, Role, View};

use super::graph::Graph;

/// A model call.
#[derive(Debug)]
pub(super) struct Inference<'a> {
    pub node: usize,
    pub response_id: Option<&'a str>,
    pub previous_response_id: Option<&'a str>,
    pub model: Option<&'a str>,
    pub input_tokens: Option<i64>,
    pub output_tokens: Option<i64>,
    pub finish: Option<&'a str>,
    /// Items in, without instructions. `None`: not captured.
    pub input: Option<Vec<ItemRef<'a>>>,
    /// Instructions, where captured.
    pub instructions: Vec<ItemRef<'a>>,
    pub output: Option<Vec<ItemRef<'a>>>,
    pub payloads: Vec<PayloadRef<'a>>,
    pub view: View,
    pub policies: Names<'a>,
    pub start: i64,
    pub end: i64,
    /// Which run it belongs to.
    pub run: usize,
    pub recordings: i64,
}

/// Two ends closer than this, under one parent, are one call.
const NEAR: i64 = 50_000_000;

fn same_model(a: Option<&str>, b: Option<&str>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a == b || a.starts_with(b) || b.starts_with(a),
        _ => true,
    }
}

/// Recordings of one call; there is rarely more than one.
struct Group {
    first: usize,
    others: Vec<usize>,
}

impl Group {
    fn iter(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }
}

/// The model calls of the graph by start, and how many recordings were left out. Nodes that only repeat a
/// call are marked as duplicates.
pub(super) fn collect<'a>(g: &mut Graph<'a>) -> (Vec<Inference<'a>>, i64) {
    let all: Vec<usize> = g
        .order
        .iter()
        .copied()
        .filter(|i| g.nodes[*i].s.role == Role::Inference && !g.nodes[*i].duplicate)
        .collect();
    let mut duplicates = 0;
    let mut groups: Vec<Group> = Vec::new();
    let mut by_response: HashMap<&str, usize> = HashMap::default();
    let mut of_node: HashMap<usize, usize> = HashMap::with_capacity_and_hasher(all.len(), Default::default());
    // Groups that can still share time with a recording to come.
    let mut open: Vec<usize> = Vec::new();
    let least = g.least_starts(&all);
    for (&i, least) in all.iter().zip(least) {
        let s = g.nodes[i].s;
        let least = least.saturating_sub(NEAR);
        open.retain(|k| {
            groups[*k].iter().any(|j| {
                let s = g.nodes[j].s;
                s.end.max(s.start).is_none_or(|e| e >= least)
            })
        });
        let repeats_one = |k: &usize| groups[*k].iter().any(|j| repeats(g, i, j));
        let found = s
            .response_id()
            .and_then(|r| by_response.get(r).copied())
            .or_else(|| g.ancestors(i).filter_map(|a| of_node.get(&a).copied()).find(|k| repeats_one(k)))
            .or_else(|| open.iter().rev().copied().find(|k| repeats_one(k)));
        let k = match found {
            Some(k) => {
                groups[k].others.push(i);
                k
            }
            None => {
                groups.push(Group { first: i, others: Vec::new() });
                groups.len() - 1
            }
        };
        if !open.contains(&k) {
            open.push(k);
        }
        of_node.insert(i, k);
        if let Some(r) = s.response_id() {
            by_response.entry(r).or_insert(k);
        }
    }
    let mut out = Vec::with_capacity(groups.len());
    for grp in groups {
        // The fullest recording stands for the call; of equals the outermost, then the first.
        let richness = |i: &usize| {
            let n = &g.nodes[*i];
            let messages = usize::from(
                n.input.as_ref().is_some_and(|v| v.iter().any(|x| x.kind != ItemKind::Instructions)),
            ) + usize::from(n.output.is_some());
            (messages, std::cmp::Reverse(n.depth))
        };
        let Some(primary) = grp.iter().rev().max_by_key(richness) else { continue };
        let mut inf = from_node(g, primary);
        for i in grp.iter().filter(|i| *i != primary) {
            duplicates += 1;
            inf.recordings += 1;
            g.nodes[i].duplicate = true;
            let o = from_node(g, i);
            inf.response_id = inf.response_id.or(o.response_id);
            inf.previous_response_id = inf.previous_response_id.or(o.previous_response_id);
            inf.model = inf.model.or(o.model);
            inf.input_tokens = inf.input_tokens.or(o.input_tokens);
            inf.output_tokens = inf.output_tokens.or(o.output_tokens);
            inf.finish = inf.finish.or(o.finish);
            if inf.output.is_none() && o.output.is_some() {
                inf.output = o.output;
                inf.payloads.extend(o.payloads);
            }
            if inf.input.is_none() && o.input.is_some() {
                inf.input = o.input;
                inf.view = o.view;
            }
            if inf.instructions.is_empty() {
                inf.instructions = o.instructions;
            }
        }
        out.push(inf);
    }
    order_by_growth(&mut out);
    (out, duplicates)
}

/// The model call of a node, whose messages move to it.
fn from_node<'a>(g: &mut Graph<'a>, i: usize) -> Inference<'a> {
    let end = g.end(i);
    let n = &mut g.nodes[i];
    let known = n.input.is_some();
    let mut items = n.input.take().unwrap_or_default();
    let instructions: Vec<ItemRef<'a>> = items.extract_if(.., |x| x.kind == ItemKind::Instructions).collect();
    // Instructions alone do not make a captured view.
    let captured = known && !(items.is_empty() && !instructions.is_empty() && n.view.lossy);
    Inference {
        node: i,
        response_id: n.s.response_id(),
        previous_response_id: n.s.previous_response_id(),
        model: n.s.model(),
        input_tokens: n.s.input_tokens(),
        output_tokens: n.s.output_tokens(),
        finish: n.s.finish(),
        input: captured.then_some(items),
        instructions,
        output: n.output.take(),
        payloads: std::mem::take(&mut n.payloads),
        view: n.view,
        policies: n.s.view_policies(),
        start: n.start,
        end,
        run: usize::MAX,
        recordings: 1,
    }
}

/// True where both nodes record one call: no two different response ids, the same model and usage, and one lies in
/// the other, is its ancestor, or both ends nearly coincide under one parent.
fn repeats(g: &Graph<'_>, i: usize, j: usize) -> bool {
    let (a, b) = (g.nodes[i].s, g.nodes[j].s);
    if a.response_id().is_some() && b.response_id().is_some() {
        return a.response_id() == b.response_id();
    }
    let usage_known = a.input_tokens().is_some() && b.input_tokens().is_some();
    if !same_model(a.model(), b.model())
        || (usage_known && (a.input_tokens() != b.input_tokens() || a.output_tokens() != b.output_tokens()))
    {
        return false;
    }
    if g.is_below(i, j) || g.is_below(j, i) {
        return true;
    }
    if !usage_known || a.scope() == b.scope() {
        return false;
    }
    let (Some(a0), Some(a1), Some(b0), Some(b1)) = (a.start, a.end, b.start, b.end) else { return false };
    let within = (a0 >= b0 && a1 <= b1) || (b0 >= a0 && b1 <= a1);
    let near = g.nodes[i].parent == g.nodes[j].parent && (a0 - b0).abs() < NEAR && (a1 - b1).abs() < NEAR;
    within || near
}

/// Clocks may disagree. A call whose input holds the result of a call that another one asked for comes after it.
fn order_by_growth(list: &mut [Inference<'_>]) {
    let mut asked: HashMap<&str, usize> = HashMap::default();
    for (n, inf) in list.iter().enumerate() {
        for item in inf.output.iter().flatten() {
            if let (ItemKind::Call, Some(id)) = (item.kind, item.call_id) {
                asked.entry(id).or_insert(n);
            }
        }
    }
    // Each pass repairs one link of a chain; well-ordered data needs none.
    for _ in 0..list.len().min(64) {
        let mut changed = false;
        for n in 0..list.len() {
            let after = list[n]
                .input
                .iter()
                .flatten()
                .filter(|i| i.kind == ItemKind::Result)
                .filter_map(|i| i.call_id.and_then(|id| asked.get(id)).copied())
                .filter(|m| *m != n)
                .map(|m| list[m].start)
                .max();
            if let Some(t) = after.filter(|t| list[n].start <= *t && *t < i64::MAX) {
                // After it, by the least step: the raw times stay on the spans.
                let shift = t.saturating_add(1).saturating_sub(list[n].start);
                if shift > 0 && list[n].start > i64::MIN {
                    list[n].start += shift;
                    list[n].end = list[n].end.max(list[n].start);
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    list.sort_by_key(|i| i.start);
}

/// Marks whole traces that record again what another trace of the group records: the same calls by their ids, at the
/// same time, by another instrumentation. Returns the number of model calls left out.
pub(super) fn drop_mirrors(g: &mut Graph<'_>) -> i64 {
    struct Trace<'t> {
        id: &'t str,
        calls: HashSet<&'t str>,
        scopes: HashSet<&'t str>,
        start: i64,
        end: i64,
        content: usize,
        inferences: i64,
    }
    if g.nodes.windows(2).all(|w| w[0].s.trace_id == w[1].s.trace_id) {
        return 0;
    }
    let mut traces: Vec<Trace<'_>> = Vec::new();
    for n in &g.nodes {
        let s = n.s;
        let k = traces.iter().position(|t| t.id == s.trace_id).unwrap_or_else(|| {
            traces.push(Trace {
                id: s.trace_id,
                calls: HashSet::default(),
                scopes: HashSet::default(),
                start: i64::MAX,
                end: i64::MIN,
                content: 0,
                inferences: 0,
            });
            traces.len() - 1
        });
        let t = &mut traces[k];
        t.scopes.insert(s.scope());
        t.start = t.start.min(n.start);
        t.end = t.end.max(n.end.unwrap_or(n.start));
        t.content += n.input.iter().chain(&n.output).map(Vec::len).sum::<usize>();
        t.inferences += i64::from(s.role == Role::Inference);
        if s.role == Role::Tool {
            t.calls.extend(s.call_id());
        }
        t.calls
            .extend(n.output.iter().flatten().filter(|i| i.kind == ItemKind::Call).filter_map(|i| i.call_id));
    }
    traces.sort_by(|a, b| {
        b.calls.len().cmp(&a.calls.len()).then(b.content.cmp(&a.content)).then(a.id.cmp(b.id))
    });
    let mut gone: Vec<&str> = Vec::new();
    let mut left_out = 0;
    for i in 1..traces.len() {
        let t = &traces[i];
        let mirrored = !t.calls.is_empty()
            && traces[..i].iter().any(|o| {
                !gone.contains(&o.id)
                    && t.calls.is_subset(&o.calls)
                    && t.scopes.is_disjoint(&o.scopes)
                    && t.start < o.end
                    && o.start < t.end
            });
        if mirrored {
            gone.push(t.id);
            left_out += t.inferences;
        }
    }
    let gone: Vec<String> = gone.into_iter().map(str::to_owned).collect();
    for n in &mut g.nodes {
        n.duplicate |= gone.iter().any(|t| t == n.s.trace_id);
    }
    left_out
}
