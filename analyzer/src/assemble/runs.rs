//! Which agent ran each thing: activations of agents, from whatever the spans say.

use foldhash::HashMap;

use baton_record::names::{is_placeholder_agent, is_slug_of, same_name, slug, slug_of, transfer_name};
use baton_record::schema::ItemRef;
use baton_record::span::Role;

use super::graph::Graph;
use super::inference::Inference;

/// By scope and instructions: the runs made so far, each with its last call.
type Groups = HashMap<(usize, Option<i64>), Vec<(usize, usize)>>;

/// One activation of an agent.
#[derive(Debug, Default)]
pub(super) struct Run<'a> {
    pub agent: Option<&'a str>,
    pub slug: Option<String>,
    /// Slugs of the graph nodes it stands in: transfers may name these.
    pub aliases: Vec<String>,
    /// Its first span.
    pub root: usize,
    /// What stands around it: runs with the same one are siblings.
    pub scope: Option<usize>,
    pub parent_run: Option<usize>,
    /// The tool or handoff span between the parent run and this one.
    pub via: Option<usize>,
    pub start: i64,
    pub end: i64,
    pub inferences: Vec<usize>,
    /// Tool nodes that ran in it.
    pub tools: Vec<usize>,
    /// The agent that ran before, by a span's own word.
    pub parent_agent: Option<&'a str>,
    /// No span names or delimits it: it is made of model calls that belong together.
    pub anonymous: bool,
    /// It goes on as part of an earlier run.
    pub merged: Option<usize>,
}

/// The runs, and the run of each node.
pub(super) struct Runs<'a> {
    pub runs: Vec<Run<'a>>,
    pub of_node: Vec<Option<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Context {
    /// Nothing around; the value is the outermost span.
    None(usize),
    /// A workflow.
    Workflow(usize),
    /// A run.
    Run(usize),
    /// Inside a delegation tool that shows no agent of its own.
    Inner(usize),
}

/// Node names that agent graphs use inside: never an agent's name while an outer one is there.
fn is_generic_node(name: &str) -> bool {
    matches!(
        slug_of(name).as_ref(),
        "agent"
            | "model"
            | "llm"
            | "call_model"
            | "tools"
            | "tool_node"
            | "call_llm"
            | "llm_call"
            | "chatbot"
            | "assistant"
    )
}

struct Builder<'g, 'a> {
    g: &'g Graph<'a>,
    declared: Vec<Option<&'a str>>,
    context: Vec<Context>,
    runs: Vec<Run<'a>>,
    of_node: Vec<Option<usize>>,
    inner: HashMap<usize, usize>,
    /// Activities whose own attributes name an agent that no span delimits.
    flat: Vec<(Context, usize)>,
    /// Activities without any agent.
    unowned: Vec<(Context, usize)>,
}

/// Finds the runs.
pub(super) fn build<'a>(g: &Graph<'a>, infs: &mut [Inference<'a>]) -> Runs<'a> {
    let n = g.nodes.len();
    let mut b = Builder {
        g,
        declared: names(g),
        context: vec![Context::None(0); n],
        runs: Vec::new(),
        of_node: vec![None; n],
        inner: HashMap::default(),
        flat: Vec::new(),
        unowned: Vec::new(),
    };
    // Parents first.
    let mut top_down: Vec<usize> = (0..n).collect();
    top_down.sort_by_key(|i| (g.nodes[*i].depth, g.nodes[*i].start));
    for i in top_down {
        b.place(i);
    }
    b.place_flat();
    b.place_unowned(infs);
    b.finish(infs)
}

/// The agent each span declares, after the names of wrappers, nodes and delegation tools are settled.
fn names<'a>(g: &Graph<'a>) -> Vec<Option<&'a str>> {
    let mut declared: Vec<Option<&'a str>> = g
        .nodes
        .iter()
        .map(|n| match n.s.role {
            Role::Handoff | Role::Definition | Role::Workflow | Role::Other => None,
            _ if n.duplicate => None,
            _ => n.s.agent().filter(|a| !is_placeholder_agent(a)),
        })
        .collect();
    #[allow(clippy::needless_range_loop)] // changes what it reads
    for i in 0..g.nodes.len() {
        // An agent span that bears the name of the tool it runs under: the tool knows the agent.
        if g.nodes[i].s.role == Role::Agent
            && let (Some(own), Some(t)) =
                (declared[i], g.ancestors(i).find(|a| g.nodes[*a].s.role == Role::Tool))
            && g.nodes[t].s.tool().is_some_and(|tool| same_name(tool, own))
            && let Some(target) = target_of(g, t)
        {
            declared[i] = Some(target);
        }
    }
    // A graph node that wraps an agent of its name is that agent. Children come after parents, so go backwards.
    let mut bottom_up: Vec<usize> = (0..g.nodes.len()).collect();
    bottom_up.sort_by_key(|i| std::cmp::Reverse(g.nodes[*i].depth));
    for &i in &bottom_up {
        if let (Some(agent), Some(p)) = (declared[i], g.nodes[i].parent)
            && g.nodes[p].s.role == Role::Step
            && declared[p].is_none()
            && g.nodes[p].s.node().is_some_and(|n| same_name(n, agent))
        {
            declared[p] = Some(agent);
        }
    }
    // A graph node that calls a model itself, outside any agent, is the agent.
    for i in 0..g.nodes.len() {
        if g.nodes[i].s.role != Role::Inference || g.nodes[i].duplicate || declared[i].is_some() {
            continue;
        }
        let mut best: Option<usize> = None;
        for a in g.ancestors(i) {
            if declared[a].is_some() || (g.nodes[a].s.role == Role::Tool && delegates(g, a)) {
                best = None;
                break;
            }
            if g.nodes[a].s.role == Role::Step
                && let Some(name) = g.nodes[a].s.node()
                && !is_generic_node(name)
                && best.is_none()
            {
                best = Some(a);
            }
        }
        if let Some(a) = best {
            declared[a] = g.nodes[a].s.node();
        }
    }
    declared
}

/// The receiver that a tool span names: by attribute, by its arguments, by its own name.
pub(super) fn target_of<'a>(g: &Graph<'a>, tool: usize) -> Option<&'a str> {
    let n = &g.nodes[tool];
    n.s.handoff()
        .and_then(|h| h.to().iter().next())
        .or_else(|| n.payloads.iter().find_map(|p| p.targets().iter().next()))
}

/// True for a tool span that hands work to another agent by its name or arguments.
pub(super) fn delegates(g: &Graph<'_>, tool: usize) -> bool {
    let n = &g.nodes[tool];
    n.s.tool().is_some_and(|t| transfer_name(t).is_some())
        || (target_of(g, tool).is_some() && n.s.handoff().is_some())
}

impl<'a> Builder<'_, 'a> {
    fn parent_context(&self, i: usize) -> Context {
        match self.g.nodes[i].parent {
            None => Context::None(i),
            Some(p) => {
                let c = self.context[p];
                if self.g.nodes[p].s.role == Role::Tool && delegates(self.g, p) {
                    Context::Inner(p)
                } else {
                    c
                }
            }
        }
    }

    /// The run that a context is in.
    fn run_of(&self, c: Context) -> Option<usize> {
        match c {
            Context::Run(r) => Some(r),
            Context::Inner(t) => self.inner.get(&t).copied().or_else(|| self.run_of(self.context[t])),
            _ => None,
        }
    }

    fn place(&mut self, i: usize) {
        let node = &self.g.nodes[i];
        let around = self.parent_context(i);
        self.context[i] = around;
        if node.duplicate || node.s.role == Role::Definition {
            return;
        }
        if node.s.role == Role::Workflow {
            if !matches!(around, Context::Run(_) | Context::Inner(_)) {
                self.context[i] = Context::Workflow(i);
            }
            return;
        }
        let activity =
            matches!(node.s.role, Role::Inference) || (node.s.role == Role::Tool && node.s.tool().is_some());
        if let Some(agent) = self.declared[i] {
            let outer = match around {
                Context::Run(r) => Some(r),
                Context::Inner(t) => self.inner.get(&t).copied(),
                _ => None,
            };
            if let Some(r) = outer
                && self.runs[r].slug.as_deref().is_some_and(|s| is_slug_of(s, agent))
                && !(node.s.role == Role::Agent && self.tool_between(i, self.runs[r].root))
            {
                self.join(i, r, activity);
                return;
            }
            if matches!(node.s.role, Role::Agent | Role::Step) {
                let via = match around {
                    Context::Inner(t) => Some(t),
                    _ => self.via(i, self.run_of(around)),
                };
                let parent_run = match around {
                    Context::Inner(t) => self.run_of(self.context[t]),
                    other => self.run_of(other),
                };
                let r = self.open(agent, i, parent_run, via);
                self.join(i, r, activity);
                return;
            }
            if activity {
                self.flat.push((around, i));
            }
            return;
        }
        if !activity {
            if let Some(r) = self.run_of(around) {
                self.of_node[i] = Some(r);
            }
            return;
        }
        match around {
            Context::Run(r) => self.join(i, r, true),
            Context::Inner(t) => {
                let r = self.inner_run(t, i);
                self.join(i, r, true);
            }
            other => self.unowned.push((other, i)),
        }
    }

    fn tool_between(&self, i: usize, root: usize) -> bool {
        self.g.ancestors(i).take_while(|a| *a != root).any(|a| self.g.nodes[a].s.role == Role::Tool)
    }

    /// The nearest tool or handoff span above, inside the given run.
    fn via(&self, i: usize, run: Option<usize>) -> Option<usize> {
        self.g
            .ancestors(i)
            .take_while(|a| run.is_none_or(|r| self.of_node[*a] == Some(r) || self.of_node[*a].is_none()))
            .find(|a| matches!(self.g.nodes[*a].s.role, Role::Tool | Role::Handoff))
    }

    fn open(&mut self, agent: &'a str, root: usize, parent_run: Option<usize>, via: Option<usize>) -> usize {
        self.runs.push(Run {
            agent: Some(agent),
            slug: Some(slug(agent)),
            root,
            scope: self.g.nodes[root].parent,
            parent_run,
            via,
            start: self.g.nodes[root].start,
            end: self.g.end(root),
            ..Run::default()
        });
        self.runs.len() - 1
    }

    fn inner_run(&mut self, tool: usize, first: usize) -> usize {
        if let Some(r) = self.inner.get(&tool) {
            return *r;
        }
        let target = target_of(self.g, tool).filter(|t| !is_placeholder_agent(t));
        let parent_run = self.run_of(self.context[tool]);
        self.runs.push(Run {
            agent: target,
            slug: target.map(slug),
            root: first,
            scope: Some(tool),
            parent_run,
            via: Some(tool),
            start: self.g.nodes[first].start,
            end: self.g.end(tool),
            ..Run::default()
        });
        let r = self.runs.len() - 1;
        self.inner.insert(tool, r);
        r
    }

    fn join(&mut self, i: usize, r: usize, activity: bool) {
        let node = &self.g.nodes[i];
        self.of_node[i] = Some(r);
        self.context[i] = Context::Run(r);
        let run = &mut self.runs[r];
        if run.parent_agent.is_none() {
            run.parent_agent = node.s.parent_agent();
        }
        if matches!(node.s.role, Role::Agent | Role::Step)
            && let Some(alias) = node.s.node().map(slug)
            && !run.aliases.contains(&alias)
        {
            run.aliases.push(alias);
        }
        if activity && node.s.role == Role::Tool {
            run.tools.push(i);
        }
        // Model calls are added from their own list, which knows duplicates and order.
    }

    /// Activities that name their agent themselves: one run for each stretch of the same agent.
    fn place_flat(&mut self) {
        let mut flat = std::mem::take(&mut self.flat);
        flat.sort_by_key(|(_, i)| self.g.nodes[*i].start);
        let mut current: HashMap<Context, (usize, String)> = HashMap::default();
        for (around, i) in flat {
            let Some(agent) = self.declared[i] else { continue };
            let s = slug(agent);
            let scope =
                if let Context::None(_) = around { Context::None(self.g.outermost(i)) } else { around };
            let r = match current.get(&scope) {
                Some((r, cs)) if *cs == s => *r,
                _ => {
                    let parent_run = self.run_of(around);
                    let via = match around {
                        Context::Inner(t) => Some(t),
                        _ => self.via(i, parent_run),
                    };
                    let r = self.open(agent, i, parent_run, via);
                    self.runs[r].end = self.g.end(i);
                    current.insert(scope, (r, s));
                    r
                }
            };
            self.runs[r].end = self.runs[r].end.max(self.g.end(i));
            self.join(i, r, true);
        }
    }

    /// Activities without any agent: model calls that belong together by instructions and history, and the tools they ask for.
    fn place_unowned(&mut self, infs: &[Inference<'a>]) {
        if self.unowned.is_empty() {
            return;
        }
        let unowned = std::mem::take(&mut self.unowned);
        let scope_of = |b: &Self, c: Context, i: usize| match c {
            Context::Workflow(w) => Some(w),
            _ => Some(b.g.outermost(i)),
        };
        let by_node: HashMap<usize, usize> = infs.iter().enumerate().map(|(k, f)| (f.node, k)).collect();
        let mut calls: Vec<(usize, usize)> = Vec::new(); // (inference, scope)
        let mut tools: Vec<(usize, usize)> = Vec::new(); // (node, scope)
        for (c, i) in unowned {
            let Some(scope) = scope_of(self, c, i) else { continue };
            match by_node.get(&i) {
                Some(k) => calls.push((*k, scope)),
                None => tools.push((i, scope)),
            }
        }
        calls.sort_by_key(|(k, _)| (infs[*k].start, *k));
        let mut groups = Groups::default();
        let mut asked: HashMap<&str, usize> = HashMap::default();
        let mut placed: Vec<(usize, usize, usize)> = Vec::new(); // (scope, start, run) as they come
        for (k, scope) in calls {
            let inf = &infs[k];
            let group = groups.entry((scope, instructions_key(&inf.instructions))).or_default();
            let found = match &inf.input {
                None => group.first().map(|(r, _)| *r),
                Some(items) => {
                    group.iter().rev().find(|(_, last)| continues(&infs[*last], items)).map(|(r, _)| *r)
                }
            };
            let r = found.unwrap_or_else(|| {
                self.runs.push(Run {
                    root: inf.node,
                    scope: Some(scope),
                    anonymous: true,
                    start: inf.start,
                    end: inf.end,
                    ..Run::default()
                });
                self.runs.len() - 1
            });
            match group.iter_mut().find(|(x, _)| *x == r) {
                Some((_, last)) => *last = k,
                None => group.push((r, k)),
            }
            self.runs[r].end = self.runs[r].end.max(inf.end);
            self.join(inf.node, r, true);
            placed.push((scope, k, r));
            for item in inf.output.iter().flatten() {
                if let Some(id) = item.call_id {
                    asked.insert(id, r);
                }
            }
        }
        self.name_by_workflow(&groups);
        for (i, scope) in tools {
            let node = &self.g.nodes[i];
            let by_call = node.s.call_id().and_then(|c| asked.get(c).copied());
            let by_time = placed
                .iter()
                .rev()
                .find(|(s, k, _)| *s == scope && infs[*k].start <= node.start)
                .map(|(_, _, r)| *r);
            let any = self.runs.iter().position(|r| r.anonymous && r.scope == Some(scope));
            let r = by_call.or(by_time).or(any).unwrap_or_else(|| {
                self.runs.push(Run {
                    root: i,
                    scope: Some(scope),
                    anonymous: true,
                    start: node.start,
                    end: self.g.end(i),
                    ..Run::default()
                });
                self.runs.len() - 1
            });
            self.runs[r].start = self.runs[r].start.min(node.start);
            self.runs[r].end = self.runs[r].end.max(self.g.end(i));
            self.join(i, r, true);
        }
    }

    /// A workflow whose model calls all have one set of instructions is one agent, and has its name.
    fn name_by_workflow(&mut self, groups: &Groups) {
        for ((scope, key), members) in groups {
            let alone = groups.keys().filter(|(s, _)| s == scope).count() == 1;
            let node = &self.g.nodes[*scope];
            if alone
                && key.is_some()
                && node.s.role == Role::Workflow
                && let Some(name) = node.s.node().filter(|n| !is_placeholder_agent(n))
            {
                for (r, _) in members {
                    self.runs[*r].agent = Some(name);
                    self.runs[*r].slug = Some(slug(name));
                }
            }
        }
    }

    fn finish(mut self, infs: &mut [Inference<'a>]) -> Runs<'a> {
        for (k, inf) in infs.iter_mut().enumerate() {
            if let Some(r) = self.of_node[inf.node] {
                inf.run = r;
                self.runs[r].inferences.push(k);
            }
        }
        // An agent span that only contains other agents is a wrapper and no run.
        let n = self.runs.len();
        let nested: Vec<bool> = (0..n).map(|r| self.runs.iter().any(|x| x.parent_run == Some(r))).collect();
        for (r, nested) in nested.into_iter().enumerate() {
            if !(nested && self.runs[r].inferences.is_empty() && self.runs[r].tools.is_empty()) {
                continue;
            }
            let (outer, via) = (self.runs[r].parent_run, self.runs[r].via);
            for x in 0..n {
                if self.runs[x].parent_run == Some(r) {
                    self.runs[x].parent_run = outer;
                    self.runs[x].via = self.runs[x].via.or(via);
                }
            }
            self.runs[r].merged = Some(usize::MAX);
        }
        // An agent's span beside the span that holds its work (two layers of one instrumentation, a caller's client span and
        // the agent's own): one run.
        for r in 0..n {
            let bare = |x: &Run<'_>| {
                x.inferences.is_empty() && x.tools.is_empty() && x.merged.is_none() && x.slug.is_some()
            };
            if !bare(&self.runs[r]) {
                continue;
            }
            let double = (0..n).find(|x| {
                let (a, b) = (&self.runs[r], &self.runs[*x]);
                *x != r
                    && b.merged.is_none()
                    && !(bare(b) && *x > r)
                    && a.slug == b.slug
                    && a.parent_run == b.parent_run
                    && a.via == b.via
                    && a.start <= b.end
                    && b.start <= a.end
            });
            if let Some(x) = double {
                self.runs[r].merged = Some(x);
                let (start, end) = (self.runs[r].start, self.runs[r].end);
                self.runs[x].start = self.runs[x].start.min(start);
                self.runs[x].end = self.runs[x].end.max(end);
            }
        }
        for run in &mut self.runs {
            run.tools.sort_by_key(|t| self.g.nodes[*t].start);
            if let Some(k) = run.inferences.first() {
                run.start = if run.anonymous { infs[*k].start.min(run.start) } else { run.start };
            }
        }
        Runs { runs: self.runs, of_node: self.of_node }
    }
}

fn instructions_key(items: &[ItemRef<'_>]) -> Option<i64> {
    items
        .iter()
        .map(|i| i.hash)
        .try_fold(0i64, |a, h| h.map(|h| a.wrapping_mul(31).wrapping_add(h)))
        .filter(|_| !items.is_empty())
}

/// True where a later input goes on from an earlier call: it begins with the same items and holds more.
pub(super) fn continues(earlier: &Inference<'_>, items: &[ItemRef<'_>]) -> bool {
    let Some(before) = &earlier.input else { return earlier.input.is_none() };
    if before.is_empty() {
        return items.len() > before.len();
    }
    let n = before.len().min(items.len());
    let same = before.iter().zip(items).take_while(|(a, b)| a.hash == b.hash && a.hash.is_some()).count();
    same == n && items.len() >= before.len() && (items.len() > before.len() || same == before.len())
}
