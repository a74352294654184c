//! Tool calls, each once: the model's request, the tool's span and the result, joined.

use foldhash::{HashMap, HashSet};

use baton_record::names::{bare_tool_name, same_name, slug, transfer_name};
use baton_record::schema::{ItemRef, PayloadRef};
use baton_record::span::{Args, ItemKind, Role, Source};

use super::graph::Graph;
use super::inference::Inference;
use super::runs::Runs;

/// A call of a tool, or of something that turns out to be a transfer.
#[derive(Debug, Clone)]
pub(super) struct Call<'a> {
    pub name: &'a str,
    pub call_id: Option<&'a str>,
    /// The call as an item: from the tool span where it knows the arguments, else from the message.
    pub item: Option<ItemRef<'a>>,
    pub digest: Option<&'a str>,
    /// Arguments are known well enough to compare.
    pub comparable: bool,
    pub run: Option<usize>,
    /// The model call that asked for it.
    pub inference: Option<usize>,
    pub node: Option<usize>,
    /// Where it stands in time, for ordering.
    pub order: i64,
    pub start: Option<i64>,
    pub end: Option<i64>,
    pub error: bool,
    /// Results: of the span, of the messages.
    pub results: Vec<ItemRef<'a>>,
    /// A later message holds its result.
    pub answered: bool,
    pub payloads: Vec<PayloadRef<'a>>,
}

/// True where two names mean one tool, whatever server offers it.
pub(super) fn same_tool(a: &str, b: &str) -> bool {
    a == b || same_name(bare_tool_name(a), bare_tool_name(b))
}

/// A tool span with the spans that record it again.
struct ToolSpan<'a> {
    node: usize,
    item: Option<ItemRef<'a>>,
    result: Option<ItemRef<'a>>,
    error: bool,
    payloads: Vec<PayloadRef<'a>>,
    used: bool,
}

/// Collects the calls in the order in which they were made.
pub(super) fn collect<'a>(g: &mut Graph<'a>, infs: &[Inference<'a>], runs: &mut Runs<'a>) -> Vec<Call<'a>> {
    let mut spans = tool_spans(g, runs);
    let mut calls = requested(infs);
    harvest(infs, runs, &mut calls);
    join(g, infs, runs, &mut spans, &mut calls);
    for t in spans.iter().filter(|t| !t.used) {
        calls.push(from_span(g, runs, t));
    }
    answers(infs, &mut calls);
    calls.sort_by_key(|c| c.order);
    calls
}

fn tool_spans<'a>(g: &mut Graph<'a>, runs: &mut Runs<'a>) -> Vec<ToolSpan<'a>> {
    let nodes: Vec<usize> = g
        .order
        .iter()
        .copied()
        .filter(|i| g.nodes[*i].s.role == Role::Tool && !g.nodes[*i].duplicate)
        .collect();
    let mut out: Vec<ToolSpan<'a>> = Vec::with_capacity(nodes.len());
    let mut by_id: HashMap<(&str, &str), usize> = HashMap::default();
    let mut unnamed: Vec<usize> = Vec::new();
    // Those that can still share time with one to come.
    let mut open: Vec<usize> = Vec::new();
    let least = g.least_starts(&nodes);
    for (i, least) in nodes.into_iter().zip(least) {
        let n = &g.nodes[i];
        open.retain(|k| {
            let s = g.nodes[out[*k].node].s;
            s.end.max(s.start).is_none_or(|e| e >= least)
        });
        let Some(name) = n.s.tool() else {
            unnamed.push(i);
            continue;
        };
        let t = ToolSpan {
            node: i,
            item: n.input.as_ref().and_then(|v| v.first().copied()),
            result: n.output.as_ref().and_then(|v| v.first().copied()),
            error: n.error,
            payloads: n.payloads.clone(),
            used: false,
        };
        let again =
            n.s.call_id()
                .and_then(|c| by_id.get(&(n.s.trace_id, c)).copied())
                .filter(|k| same_tool(name, g.nodes[out[*k].node].s.tool().unwrap_or_default()));
        let again = again.or_else(|| same_call(g, &out, &open, i, name));
        match again {
            Some(k) => absorb(g, &mut out[k], t),
            None => {
                if let Some(c) = n.s.call_id() {
                    by_id.insert((n.s.trace_id, c), out.len());
                }
                open.push(out.len());
                out.push(t);
            }
        }
    }
    for i in unnamed {
        // The same call once more, by its id alone: its outcome counts.
        if let Some(k) = g.nodes[i].s.call_id().and_then(|c| by_id.get(&(g.nodes[i].s.trace_id, c)).copied())
        {
            out[k].error |= g.nodes[i].error;
        }
    }
    let kept: HashSet<usize> = out.iter().map(|t| t.node).collect();
    for r in &mut runs.runs {
        r.tools.retain(|t| kept.contains(t));
    }
    out
}

/// The same tool without its server's prefix, one inside the other in time, in another scope: one call
/// (METRICS.md section 1, tool call). Each span takes part in one such pair.
fn same_call<'a>(g: &Graph<'a>, out: &[ToolSpan<'a>], open: &[usize], i: usize, name: &str) -> Option<usize> {
    let s = g.nodes[i].s;
    let (start, end) = (s.start?, s.end?);
    let mut best: Option<(i64, usize)> = None;
    for &k in open {
        let t = &out[k];
        let o = g.nodes[t.node].s;
        if o.scope() == s.scope() || t.used || !o.tool().is_some_and(|x| same_tool(x, name)) {
            continue;
        }
        if s.call_id().is_some() && o.call_id().is_some() && s.call_id() != o.call_id() {
            continue;
        }
        let (Some(a), Some(b)) = (o.start, o.end) else { continue };
        if (start >= a && end <= b) || (a >= start && b <= end) {
            let width = b.max(end);
            if best.is_none_or(|(w, _)| width < w) {
                best = Some((width, k));
            }
        }
    }
    best.map(|(_, k)| k)
}

fn absorb<'a>(g: &mut Graph<'a>, kept: &mut ToolSpan<'a>, again: ToolSpan<'a>) {
    let known = |i: &Option<ItemRef<'_>>| i.as_ref().is_some_and(|x| x.args != Args::Absent);
    kept.error |= again.error;
    if !known(&kept.item) && known(&again.item) {
        kept.item = again.item;
        kept.payloads.extend(again.payloads);
    }
    kept.result = kept.result.or(again.result);
    // Marked as used while pairs are made, so that a second inner span finds another outer one.
    kept.used = true;
    g.nodes[again.node].duplicate = true;
}

/// What the models asked for.
fn requested<'a>(infs: &[Inference<'a>]) -> Vec<Call<'a>> {
    let mut calls = Vec::with_capacity(infs.len());
    for (k, inf) in infs.iter().enumerate() {
        for (pos, item) in inf.output.iter().flatten().enumerate() {
            if item.kind == ItemKind::Call
                && let Some(name) = item.name()
            {
                calls.push(from_item(inf, k, pos, name, *item, Source::Output));
            }
        }
    }
    calls
}

fn from_item<'a>(
    inf: &Inference<'a>,
    k: usize,
    pos: usize,
    name: &'a str,
    item: ItemRef<'a>,
    source: Source,
) -> Call<'a> {
    let at = i32::try_from(pos).unwrap_or(i32::MAX);
    Call {
        name,
        call_id: item.call_id,
        item: Some(item),
        digest: item.args_digest().filter(|_| item.args == Args::Whole),
        comparable: matches!(item.args, Args::Whole | Args::Bare),
        run: (inf.run != usize::MAX).then_some(inf.run),
        inference: Some(k),
        node: None,
        order: inf.end,
        start: Some(inf.end),
        end: None,
        error: false,
        results: Vec::new(),
        answered: false,
        payloads: inf.payloads.iter().filter(|p| p.source == source && p.pos == at).copied().collect(),
    }
}

/// Calls that only a later history shows: where a model call's own output was not captured, and transfers that a
/// framework writes into the history itself (`transfer_back_to_X`).
fn harvest<'a>(infs: &[Inference<'a>], runs: &Runs<'a>, calls: &mut Vec<Call<'a>>) {
    let mut known_ids: Vec<&str> = calls.iter().filter_map(|c| c.call_id).collect();
    // How often a call of this form was made or seen: ids of one call may differ between output and input.
    let mut known: HashMap<(&str, Option<i64>), usize> = HashMap::default();
    let mut made: HashMap<(&str, Option<i64>), usize> = HashMap::default();
    let mut found = Vec::new();
    let mut here: HashMap<(&str, Option<i64>), usize> = HashMap::default();
    for (k, inf) in infs.iter().enumerate() {
        let before = infs[..k].iter().rev().find(|f| f.run == inf.run || f.output.is_none());
        let lacks_output = before.is_some_and(|f| f.output.is_none());
        for (pos, item) in inf.input.iter().flatten().enumerate() {
            let (ItemKind::Call, Some(name)) = (item.kind, item.name()) else { continue };
            let form = (name, item.hash);
            let count = here.entry(form).or_default();
            *count += 1;
            let seen = *count <= *known.get(&form).unwrap_or(&0)
                || item.call_id.is_some_and(|c| known_ids.contains(&c))
                || *count <= *made.get(&form).unwrap_or(&0);
            if seen || k == 0 || !(lacks_output || transfer_name(name).is_some_and(|t| t.is_sure())) {
                continue;
            }
            // Who said it: the author of the message, else whoever spoke before.
            let author = item_author(inf, pos).map(slug);
            let by_author = author.and_then(|a| {
                runs.runs.iter().rposition(|r| r.slug.as_deref() == Some(a.as_str()) && r.start <= inf.start)
            });
            let speaker = infs[..k].iter().rev().find(|f| by_author.is_none_or(|r| f.run == r));
            if let Some(s) = speaker {
                let mut c = from_item(inf, k, pos, name, *item, Source::Input);
                c.run = by_author.or((s.run != usize::MAX).then_some(s.run));
                c.inference = infs.iter().position(|f| std::ptr::eq(f, s));
                c.order = s.end;
                c.start = Some(s.end);
                found.push(c);
            }
        }
        for (form, n) in here.drain() {
            let e = known.entry(form).or_default();
            *e = (*e).max(n);
        }
        for item in inf.input.iter().chain(&inf.output).flatten().filter(|i| i.kind == ItemKind::Call) {
            known_ids.extend(item.call_id);
        }
        for item in inf.output.iter().flatten().filter(|i| i.kind == ItemKind::Call) {
            if let Some(name) = item.name() {
                *made.entry((name, item.hash)).or_default() += 1;
            }
        }
    }
    calls.extend(found);
}

fn item_author<'a>(inf: &Inference<'a>, pos: usize) -> Option<&'a str> {
    // Calls have the tool as their name; a text of the same message, right before, has the author.
    let items = inf.input.as_ref()?;
    let text = items.get(pos.checked_sub(1)?)?;
    (text.kind == ItemKind::Text).then(|| text.name()).flatten()
}

/// Joins tool spans with what was asked for: by call id, else by run, tool, arguments and order.
fn join<'a>(
    g: &Graph<'a>,
    infs: &[Inference<'a>],
    runs: &Runs<'a>,
    spans: &mut [ToolSpan<'a>],
    calls: &mut [Call<'a>],
) {
    spans.iter_mut().for_each(|t| t.used = false);
    let mut of_id: Vec<(&str, usize)> =
        calls.iter().enumerate().filter_map(|(k, c)| Some((c.call_id?, k))).collect();
    of_id.sort_unstable();
    for by_id in [true, false] {
        let free: Vec<usize> = (0..calls.len()).filter(|k| calls[*k].node.is_none()).collect();
        for t in spans.iter_mut().filter(|t| !t.used) {
            let n = &g.nodes[t.node];
            let run = runs.of_node[t.node];
            let tool = n.s.tool().unwrap_or_default();
            let fits = |c: &Call<'a>| {
                if c.node.is_some() {
                    return false;
                }
                if by_id {
                    return c.call_id.is_some() && c.call_id == n.s.call_id();
                }
                // Both know an id, and the ids differ: two calls.
                if c.call_id.is_some() && n.s.call_id().is_some() && same_id_form(c.call_id, n.s.call_id()) {
                    return false;
                }
                let before = c.inference.is_none_or(|k| infs[k].start <= n.start);
                before
                    && same_tool(c.name, tool)
                    && (run == c.run || run.is_none() || c.run.is_none())
                    && args_fit(c.item.as_ref(), t.item.as_ref())
            };
            let first =
                |k: &usize| (calls[*k].inference.map_or(i64::MAX, |i| infs[i].start), calls[*k].order);
            let found = match n.s.call_id() {
                _ if !by_id => free.iter().copied().filter(|k| fits(&calls[*k])).min_by_key(first),
                Some(id) => of(&of_id, id).filter(|k| fits(&calls[*k])).min_by_key(first),
                None => None,
            };
            if let Some(k) = found {
                t.used = true;
                apply_span(g, &mut calls[k], t, run);
            }
        }
    }
}

/// What stands under an id in a list that is sorted by id.
fn of<'s, T: Copy + 's>(sorted: &'s [(&'s str, T)], id: &'s str) -> impl Iterator<Item = T> + 's {
    let from = sorted.partition_point(|(x, _)| *x < id);
    sorted[from..].iter().take_while(move |(x, _)| *x == id).map(|(_, t)| *t)
}

fn same_id_form(a: Option<&str>, b: Option<&str>) -> bool {
    let form = |s: &'_ str| s.split('_').next().map_or(0, str::len);
    match (a, b) {
        (Some(a), Some(b)) => a[..form(a)] == b[..form(b)],
        (a, b) => a == b,
    }
}

fn args_fit(a: Option<&ItemRef<'_>>, b: Option<&ItemRef<'_>>) -> bool {
    let (Some(a), Some(b)) = (a, b) else { return true };
    if a.args_digest().is_some() && a.args_digest() == b.args_digest() {
        return true;
    }
    match (a.args, b.args) {
        (Args::Whole, Args::Whole) => false,
        (Args::Whole | Args::Bare, Args::Whole | Args::Bare) => a.sole().is_some() && a.sole() == b.sole(),
        _ => true,
    }
}

fn apply_span<'a>(g: &Graph<'a>, c: &mut Call<'a>, t: &ToolSpan<'a>, run: Option<usize>) {
    let n = &g.nodes[t.node];
    c.node = Some(t.node);
    c.name = n.s.tool().unwrap_or(c.name);
    c.run = run.or(c.run);
    c.call_id = n.s.call_id().or(c.call_id);
    c.order = n.start;
    c.start = n.s.start;
    c.end = n.s.end;
    c.error |= t.error || t.result.and_then(|r| r.error()) == Some(true);
    c.results.extend(t.result);
    if let Some(item) = t.item {
        match item.args {
            Args::Whole => {
                c.digest = item.args_digest();
                c.item = Some(item);
                c.comparable = true;
            }
            // The model's call gives a lone argument its key back.
            Args::Bare if c.item.is_none_or(|i| i.args != Args::Whole) => {
                c.digest = item.args_digest();
                c.item = Some(item);
                c.comparable = true;
            }
            _ if c.item.is_none() => c.item = Some(item),
            _ => {}
        }
    }
    for p in &t.payloads {
        // What the model's call says is there already; a state update is not.
        if p.source == Source::Update
            || p.source == Source::Contract
            || c.payloads.iter().all(|x| x.source == Source::Update)
            || (p.complete && c.payloads.iter().all(|x| !x.complete))
        {
            c.payloads.push(*p);
        }
    }
}

fn from_span<'a>(g: &Graph<'a>, runs: &Runs<'a>, t: &ToolSpan<'a>) -> Call<'a> {
    let n = &g.nodes[t.node];
    let mut c = Call {
        name: n.s.tool().unwrap_or_default(),
        call_id: None,
        item: None,
        digest: None,
        comparable: false,
        run: None,
        inference: None,
        node: None,
        order: 0,
        start: None,
        end: None,
        error: false,
        results: Vec::new(),
        answered: false,
        payloads: Vec::new(),
    };
    apply_span(g, &mut c, t, runs.of_node[t.node]);
    c
}

/// Finds each call's result in later messages.
fn answers<'a>(infs: &[Inference<'a>], calls: &mut [Call<'a>]) {
    let mut by_id: Vec<(&str, &ItemRef<'a>)> = Vec::new();
    // Equal results answer a call whose id no message knows, unless they bear the id of another call.
    let mut ids: Vec<&str> = calls.iter().filter_map(|c| c.call_id).collect();
    ids.sort_unstable();
    let mut by_hash: Vec<(i64, usize)> = Vec::new();
    for (k, inf) in infs.iter().enumerate() {
        for item in inf.input.iter().chain(&inf.output).flatten().filter(|i| i.kind == ItemKind::Result) {
            if let Some(id) = item.call_id {
                by_id.push((id, item));
            }
            if let Some(h) =
                item.hash.filter(|_| item.call_id.is_none_or(|id| ids.binary_search(&id).is_err()))
            {
                by_hash.push((h, k));
            }
        }
    }
    // Those of one id stay in the order of their messages.
    by_id.sort_by_key(|(id, _)| *id);
    by_hash.sort_unstable();
    for c in calls.iter_mut() {
        let asked = c.inference;
        let known = c.call_id.filter(|id| of(&by_id, id).next().is_some());
        if let Some(id) = known {
            for item in of(&by_id, id) {
                c.answered = true;
                c.error |= item.error() == Some(true);
                if c.results.iter().all(|r| r.hash != item.hash) {
                    c.results.push(*item);
                }
            }
        } else if let Some(h) = c.results.first().and_then(|r| r.hash) {
            // The last of the messages that hold it.
            let last = by_hash.partition_point(|(x, _)| *x <= h).checked_sub(1).map(|i| by_hash[i]);
            c.answered = last.is_some_and(|(x, k)| x == h && asked.is_none_or(|a| k > a));
        }
    }
}
