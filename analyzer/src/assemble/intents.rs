//! What asks for a transfer: transfer tool calls, handoff spans, commands. Several signals of one transfer become
//! one intent (METRICS.md section 1, detection).

use baton_record::names::{TransferName, is_human, slug, transfer_name};
use baton_record::schema::{HandoffRef, PayloadRef};
use baton_record::span::{Control, Role, Signal, Source};

use super::calls::Call;
use super::graph::Graph;
use super::inference::Inference;
use super::runs::Runs;

/// One asked-for transfer to one receiver (or to one that is not named).
#[derive(Debug, Clone)]
pub(super) struct Intent<'a> {
    pub run: Option<usize>,
    pub from_name: Option<&'a str>,
    /// Name as given and its slug.
    pub target: Option<(String, String)>,
    pub time: i64,
    /// Index of its call.
    pub call: Option<usize>,
    /// Spans that speak of it.
    pub nodes: Vec<usize>,
    /// A handoff span or transfer attributes.
    pub explicit: Option<HandoffRef<'a>>,
    /// The name or the attributes make it a transfer whatever follows.
    pub sure: bool,
    /// The sender waits.
    pub returns: bool,
    /// Says that it hands back.
    pub back: bool,
    pub mode: Option<&'a str>,
    /// The transfer itself errored.
    pub failed: bool,
    /// The model call that asked.
    pub turn: Option<usize>,
    pub payloads: Vec<PayloadRef<'a>>,
    /// A call or command is seen with its arguments, so that an empty payload is known to be empty.
    pub captured: bool,
    /// Only a `goto`: a transfer where the target is an agent.
    pub weak: bool,
    /// The run that took it.
    pub taken_by: Option<usize>,
}

/// Collects the intents by time.
pub(super) fn collect<'a>(
    g: &Graph<'a>,
    infs: &[Inference<'a>],
    runs: &Runs<'a>,
    calls: &[Call<'a>],
) -> Vec<Intent<'a>> {
    let mut out: Vec<Intent<'a>> = Vec::new();
    for (i, c) in calls.iter().enumerate() {
        from_call(g, infs, i, c, &mut out);
    }
    from_spans(g, infs, runs, calls, &mut out);
    out.sort_by_key(|x| x.time);
    out
}

fn from_call<'a>(g: &Graph<'a>, infs: &[Inference<'a>], i: usize, c: &Call<'a>, out: &mut Vec<Intent<'a>>) {
    let node = c.node.map(|n| &g.nodes[n]);
    let said = node.and_then(|n| n.s.handoff());
    let named = transfer_name(c.name);
    let routed = c.payloads.iter().any(|p| p.source != Source::Update && !p.targets().is_empty());
    let commanded =
        said.is_some_and(|h| !h.to().is_empty() && matches!(h.signal, Signal::Command | Signal::Goto));
    let explicit = said.filter(|h| h.signal == Signal::Explicit);
    let is_task = matches!(named, Some(TransferName::Task | TransferName::Delegate(_)));
    let sure = named.as_ref().is_some_and(TransferName::is_sure);
    let asks = sure || commanded || (is_task && routed);
    if !asks && explicit.is_none() {
        return;
    }
    // Where it goes: the span's own word, the arguments, the tool's name.
    let mut targets: Vec<String> = Vec::new();
    if let Some(h) = said.filter(|h| !h.to().is_empty()) {
        targets.extend(h.to().iter().map(str::to_owned));
    }
    if targets.is_empty() {
        targets.extend(
            c.payloads
                .iter()
                .filter(|p| p.source != Source::Update)
                .flat_map(|p| p.targets().iter().map(str::to_owned)),
        );
    }
    if targets.is_empty() {
        targets.extend(named.as_ref().and_then(|n| n.target().map(str::to_owned)));
    }
    let mut seen: Vec<String> = Vec::new();
    targets.retain(|t| {
        let s = slug(t);
        let new = !seen.contains(&s);
        seen.push(s);
        new
    });
    let args_known = c
        .item
        .is_some_and(|x| matches!(x.args, baton_record::span::Args::Whole | baton_record::span::Args::Bare));
    let base = Intent {
        run: c.run,
        from_name: said.and_then(|h| h.from()),
        target: None,
        time: c.order,
        call: Some(i),
        nodes: c.node.into_iter().collect(),
        explicit,
        sure: named.as_ref().is_some_and(TransferName::is_sure)
            || explicit.is_some()
            || commanded
            || (is_task && routed),
        returns: named.as_ref().is_some_and(TransferName::returns),
        back: matches!(named, Some(TransferName::Back(_))),
        mode: said.and_then(|h| h.mode()),
        failed: c.error && node.is_none_or(|n| n.s.control() == Control::None),
        turn: c.inference.or_else(|| last_before(infs, c.run, c.order)),
        payloads: c.payloads.clone(),
        captured: args_known,
        weak: false,
        taken_by: None,
    };
    if targets.is_empty() {
        out.push(base);
    } else {
        for t in targets {
            let s = slug(&t);
            out.push(Intent { target: Some((t, s)), ..base.clone() });
        }
    }
}

/// The last model call of a run that started before a moment.
pub(super) fn last_before(infs: &[Inference<'_>], run: Option<usize>, time: i64) -> Option<usize> {
    infs.iter().enumerate().filter(|(_, f)| Some(f.run) == run && f.start <= time).map(|(k, _)| k).next_back()
}

/// Handoff spans, gotos, commands of nodes, and control-flow exceptions: merged into the call that they speak of, or an
/// intent of their own.
fn from_spans<'a>(
    g: &Graph<'a>,
    infs: &[Inference<'a>],
    runs: &Runs<'a>,
    calls: &[Call<'a>],
    out: &mut Vec<Intent<'a>>,
) {
    let of_calls: Vec<usize> = calls.iter().filter_map(|c| c.node).collect();
    for &i in &g.order {
        let n = &g.nodes[i];
        if n.duplicate || of_calls.contains(&i) {
            continue;
        }
        let said = n.s.handoff();
        if said.is_some_and(|h| h.signal == Signal::Received) || (said.is_none() && n.s.role != Role::Handoff)
        {
            continue;
        }
        let signal = said.map_or(Signal::Explicit, |h| h.signal);
        let from = said.and_then(|h| h.from());
        let time = n.start;
        let own_run = runs.of_node[i];
        let by_name = from.map(slug).and_then(|f| {
            runs.runs
                .iter()
                .enumerate()
                .filter(|(_, r)| {
                    r.slug.as_deref() == Some(f.as_str()) && r.start <= time && r.merged.is_none()
                })
                .map(|(k, _)| k)
                .next_back()
        });
        // The name decides where the span hangs elsewhere.
        let run = match (by_name, own_run) {
            (Some(b), Some(o)) if runs.runs[o].slug == runs.runs[b].slug => Some(o),
            (b, o) => b.or(o),
        };
        let run = run.or_else(|| before_node(g, runs, i));
        let targets: Vec<Option<(String, String)>> = match said {
            Some(h) if !h.to().is_empty() => h.to().iter().map(|t| Some((t.to_owned(), slug(t)))).collect(),
            _ => vec![None],
        };
        let weak = matches!(signal, Signal::Goto) || (signal == Signal::Command && n.s.role != Role::Tool);
        let end = g.end(i);
        let explicit = said.filter(|h| h.signal == Signal::Explicit);
        for target in targets {
            if merge(out, infs, calls, i, run, target.as_ref(), time, end, explicit, n, weak) {
                continue;
            }
            // An agent that jumps inside its own graph, or to the agent it is, transfers nothing.
            if weak && (target.is_none() || run.is_some_and(|r| is_self(runs, r, target.as_ref()))) {
                continue;
            }
            let payloads: Vec<PayloadRef<'a>> = n.payloads.clone();
            out.push(Intent {
                run,
                from_name: from,
                target,
                time,
                call: None,
                nodes: vec![i],
                explicit,
                sure: !weak,
                returns: false,
                back: false,
                mode: said.and_then(|h| h.mode()),
                failed: n.error && n.s.control() == Control::None && !weak,
                turn: last_before(infs, run, time.max(end)),
                captured: !payloads.is_empty(),
                payloads,
                weak,
                taken_by: None,
            });
        }
    }
}

fn is_self(runs: &Runs<'_>, r: usize, target: Option<&(String, String)>) -> bool {
    target.is_some_and(|(_, s)| runs.runs[r].slug.as_ref() == Some(s) || runs.runs[r].aliases.contains(s))
}

/// A node outside every run (a filter, a router) speaks for the agent that ran before it.
fn before_node(g: &Graph<'_>, runs: &Runs<'_>, i: usize) -> Option<usize> {
    let t = g.nodes[i].start;
    let scope = g.nodes[i].parent;
    let up = |r: usize| runs.runs[r].scope == scope || g.ancestors(i).any(|a| Some(a) == runs.runs[r].scope);
    (0..runs.runs.len())
        .filter(|r| {
            runs.runs[*r].merged.is_none() && runs.runs[*r].end <= t.saturating_add(1_000_000) && up(*r)
        })
        .max_by_key(|r| (runs.runs[*r].end, runs.runs[*r].start))
}

/// Adds a signal to the intent it belongs to: the same sender, a fitting target, the same turn.
#[allow(clippy::too_many_arguments)]
fn merge<'a>(
    out: &mut [Intent<'a>],
    infs: &[Inference<'a>],
    calls: &[Call<'a>],
    i: usize,
    run: Option<usize>,
    target: Option<&(String, String)>,
    time: i64,
    end: i64,
    explicit: Option<HandoffRef<'a>>,
    node: &super::graph::Node<'a>,
    weak: bool,
) -> bool {
    let turn = last_before(infs, run, time.max(end));
    let fits = |x: &Intent<'a>| {
        let same_run = x.run == run || x.run.is_none() || run.is_none();
        // An exception on the agent's own span, which began before the call, speaks of it too.
        let same_turn =
            x.turn.is_none() || turn.is_none() || x.turn == turn || (x.time >= time && x.time <= end);
        let same_target = match (&x.target, target) {
            (Some((_, a)), Some((_, b))) => {
                a == b || a.ends_with(&format!("_{b}")) || b.ends_with(&format!("_{a}"))
            }
            _ => true,
        };
        same_run && same_turn && same_target && (x.time <= end.saturating_add(1_000_000_000))
    };
    let same_call = |x: &Intent<'a>| {
        node.s.call_id().is_some_and(|id| x.call.is_some_and(|c| calls[c].call_id == Some(id)))
    };
    // The call that the span names first, then a named target; of several calls of a turn the one that is not spoken for yet.
    let pick = out.iter().enumerate().filter(|(_, x)| fits(x)).max_by_key(|(_, x)| {
        (same_call(x), x.target.is_some() && target.is_some(), x.explicit.is_none(), x.time <= end, x.time)
    });
    let Some(k) = pick.map(|(k, _)| k) else { return false };
    let x = &mut out[k];
    x.nodes.push(i);
    if explicit.is_some() {
        // The one that says more counts, whichever came first: another instrumentation's handoff span has names only.
        let says_more = |h: HandoffRef<'_>| {
            h.fields().is_some()
                || h.items_before().is_some()
                || h.items_after().is_some()
                || !h.state_constraint_ids().is_empty()
        };
        if !x.explicit.is_some_and(says_more) && (x.explicit.is_none() || explicit.is_some_and(says_more)) {
            x.explicit = explicit;
        }
        x.sure = true;
        x.mode = x.mode.or(explicit.and_then(|h| h.mode()));
        x.from_name = x.from_name.or(explicit.and_then(|h| h.from()));
    }
    if node.s.role == Role::Handoff {
        x.sure = true;
        x.weak &= weak;
    }
    if x.target.is_none() {
        x.target = target.cloned();
    }
    if node.s.role == Role::Handoff && node.error && node.s.control() == Control::None {
        x.failed = true;
    }
    if !node.payloads.is_empty() && node.s.role != Role::Inference {
        x.payloads.extend(node.payloads.iter().copied());
        x.captured = true;
    }
    true
}

/// Whether the target is a person.
pub(super) fn to_human(x: &Intent<'_>) -> bool {
    x.target.as_ref().is_some_and(|(t, _)| is_human(t))
}
