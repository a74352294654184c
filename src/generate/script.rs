//! One made-up task: what happens in it, as spans, and what is true of it.

use std::collections::BTreeSet;

use fastrand::Rng;
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::{Value, json};

use super::regression::{Fault, Regression};
use super::truth::Truth;
use super::wire::{self, int, list, text};

/// 2026-01-01T00:00:00Z.
pub(super) const DAY: u64 = 1_767_225_600_000_000_000;
/// One day in nanoseconds.
pub(super) const DAY_NS: u64 = 86_400_000_000_000;
/// About how many spans a task has.
pub(super) const SPANS_PER_TASK: u64 = 37;

pub(super) const AGENTS: [&str; 7] =
    ["Triage", "Orders", "Refunds", "Logistics", "Accounts", "Payments Ops", "Claims"];
const TOOLS: [(&str, &str); 8] = [
    ("lookup_order", "order_id"),
    ("get_customer", "customer_id"),
    ("track_parcel", "parcel_id"),
    ("check_stock", "sku"),
    ("get_invoice", "invoice_id"),
    ("list_payments", "account_id"),
    ("read_policy", "section"),
    ("get_delivery_photo", "photo_id"),
];
const RULES: [(&str, &str); 6] = [
    ("refund-window-30d", "Refund only within 30 days of delivery."),
    ("photo-before-claim", "No claim without a photo of the damage."),
    ("original-payment-method", "Pay back by the original payment method only."),
    ("no-iban-in-chat", "Never write an account number into the chat."),
    ("manager-above-500", "Ask a manager for anything above 500 EUR."),
    ("one-voucher-per-order", "At most one voucher for each order."),
];
const MODELS: [&str; 3] = ["gpt-4.1-mini", "gpt-4.1", "claude-sonnet-4-5"];

/// What stands in an agent's context.
#[derive(Clone, PartialEq)]
struct Item {
    /// What makes two items the same.
    key: String,
    /// As a message.
    json: String,
}

fn said(role: &str, content: &str) -> Item {
    let json = json!({"role": role, "parts": [{"type": "text", "content": content}]}).to_string();
    Item { key: format!("text {content}"), json }
}

fn called(id: &str, tool: &str, args: &Value) -> Item {
    let part = json!({"type": "tool_call", "id": id, "name": tool, "arguments": args});
    Item {
        key: format!("call {tool} {args}"),
        json: json!({"role": "assistant", "parts": [part]}).to_string(),
    }
}

fn answered(id: &str, result: &str) -> Item {
    let part = json!({"type": "tool_call_response", "id": id, "response": result});
    Item { key: format!("result {result}"), json: json!({"role": "tool", "parts": [part]}).to_string() }
}

/// A tool call that was made.
struct Call {
    tool: usize,
    subject: u64,
    run: usize,
    failed: bool,
    /// Its result's own reference, where it has one.
    reference: Option<String>,
}

/// One activation of an agent.
struct Run {
    agent: usize,
    span: [u8; 8],
    parent: [u8; 8],
    started: u64,
    items: Vec<Item>,
    /// The transfer that started it.
    handoff: Option<usize>,
    /// It handed off or delegated: later calls stand under no transfer.
    left: bool,
}

/// What is true of a transfer whose receiver ran.
#[derive(Default)]
struct Handoff {
    fields: usize,
    kept: usize,
    counted: usize,
    in_payload: usize,
    active: usize,
    before: usize,
    after: usize,
    filtered: usize,
    added: usize,
    calls: usize,
    redundant: usize,
    retried: usize,
    own: usize,
    lost: usize,
    leaks: usize,
    time: u64,
    first_action: Option<u64>,
    first_redundant: bool,
}

/// A task in the making.
pub(super) struct Script<'r> {
    rng: &'r mut Rng,
    n: u64,
    now: u64,
    trace: [u8; 16],
    root: [u8; 8],
    spans: Vec<Span>,
    runs: Vec<Run>,
    calls: Vec<Call>,
    handoffs: Vec<Handoff>,
    active: Vec<usize>,
    input_tokens: usize,
    output_tokens: usize,
    tool_calls: usize,
    /// What gets worse today.
    worse: Option<Regression>,
}

impl<'r> Script<'r> {
    /// Task number `n`, which starts at `start`.
    pub(super) fn new(rng: &'r mut Rng, n: u64, start: u64, worse: Option<Regression>) -> Self {
        let (trace, root) = (rng.u128(1..).to_be_bytes(), rng.u64(1..).to_be_bytes());
        Self {
            rng,
            n,
            now: start,
            trace,
            root,
            spans: Vec::with_capacity(64),
            runs: Vec::new(),
            calls: Vec::new(),
            handoffs: Vec::new(),
            active: Vec::new(),
            input_tokens: 0,
            output_tokens: 0,
            tool_calls: 0,
            worse,
        }
    }

    fn chance(&mut self, share: f64) -> bool {
        self.rng.f64() < share
    }

    fn id(&mut self) -> [u8; 8] {
        self.rng.u64(1..).to_be_bytes()
    }

    /// Plays the task and adds what is true of it.
    pub(super) fn run(mut self, truth: &mut Truth) -> Vec<Span> {
        let start = self.now;
        let user =
            said("user", &format!("My order ORD-{:07} arrived damaged and I want my money back.", self.n));
        self.start_run(0, vec![user], None);
        let bounce = self.chance(0.03);
        let hops = if bounce { 3 } else { [0, 1, 1, 1, 2, 2, 3][self.rng.usize(0..7)] };
        let mut receivers: Vec<usize> = (1..AGENTS.len()).collect();
        self.rng.shuffle(&mut receivers);
        if bounce {
            receivers = vec![receivers[0], 0, receivers[0]];
        }
        let mut at = 0;
        for to in receivers.into_iter().take(hops) {
            self.work(at);
            if self.chance(0.15) {
                self.delegate(at);
            }
            at = self.transfer(at, to);
        }
        self.work(at);
        // The user comes back in another trace of the same conversation.
        let second = !bounce && self.chance(0.03);
        if second {
            self.answer(at, "Could you send me a photo of the damage?");
            self.end_run(at);
            self.end_root(start);
            self.now += 20_000_000_000;
            self.trace = self.rng.u128(1..).to_be_bytes();
            self.root = self.id();
            let again = self.now;
            self.runs[at].items.push(said("user", &format!("Here it is, photo PH-{:07}.", self.n)));
            self.runs[at].span = self.id();
            (self.runs[at].parent, self.runs[at].started) = (self.root, again);
            self.work(at);
            self.finish(at, again, truth, bounce, true)
        } else {
            self.finish(at, start, truth, bounce, false)
        }
    }

    fn finish(mut self, at: usize, start: u64, truth: &mut Truth, bounce: bool, second: bool) -> Vec<Span> {
        let done = self.chance(0.97);
        if done {
            self.answer(at, "Your money is on its way.");
        } else {
            // Cut short: the model asks for a tool, and nothing follows.
            let items = vec![called("call_end", "lookup_order", &json!({"order_id": "ORD-0"}))];
            self.chat(at, &items, "tool_calls");
        }
        self.end_run(at);
        self.end_root(start);
        // A part of the task that never arrived.
        let partial = !second && self.chance(0.01);
        if partial {
            let lost = self.runs[0].span;
            self.spans.retain(|s| s.span_id != lost);
        }
        self.account(truth, done, bounce, partial);
        self.spans
    }

    fn account(&self, truth: &mut Truth, done: bool, bounce: bool, partial: bool) {
        truth.tasks += 1;
        truth.tool_calls += self.tool_calls as i64;
        *truth.outcomes.entry("accepted").or_default() += self.handoffs.len() as i64;
        truth.add("partial", usize::from(partial), 1);
        if partial {
            return;
        }
        let redundant: usize = self.handoffs.iter().map(|h| h.redundant).sum();
        truth.add("completed", usize::from(done), 1);
        truth.add("bounces", usize::from(bounce), 1);
        truth.add("input_tokens", self.input_tokens, 1);
        truth.add("output_tokens", self.output_tokens, 1);
        if done {
            truth.add("task_rework_free_rate", usize::from(!bounce && redundant == 0), 1);
        }
        for h in &self.handoffs {
            truth.add("completeness", h.fields, 6);
            truth.add("constraint_retention", h.kept, h.counted);
            truth.add("constraint_retention_payload", h.in_payload, h.active);
            truth.add("context_items_before", h.before, 1);
            truth.add("context_items_after", h.after, 1);
            truth.add("filtered_items", h.filtered, h.before);
            truth.add("added_items", h.added, h.after);
            truth.add("tool_calls_after", h.calls, 1);
            truth.add("redundant_tool_calls", h.redundant, h.calls);
            truth.add("known_failure_retries", h.retried, h.calls);
            truth.add("self_repeats", h.own, h.calls);
            truth.add("lost_tool_results", h.lost, 1);
            truth.add("leaks", h.leaks, 1);
            truth.add("retriage", usize::from(h.first_redundant), 1);
            if let Some(t) = h.first_action {
                truth.add("time_to_first_correct_action_ms", (t - h.time) as usize, 1);
            }
        }
    }

    fn start_run(&mut self, agent: usize, items: Vec<Item>, handoff: Option<usize>) -> usize {
        let (span, parent, started) = (self.id(), self.root, self.now);
        self.runs.push(Run { agent, span, parent, started, items, handoff, left: false });
        self.now += 1_000_000;
        self.runs.len() - 1
    }

    /// A span under `parent` that ends now.
    fn close(&mut self, id: [u8; 8], parent: Option<[u8; 8]>, name: String, kind: i32, start: u64) -> Span {
        let mut s = wire::span(self.trace, id, parent, name, kind);
        s.start_time_unix_nano = start;
        s.end_time_unix_nano = self.now;
        s
    }

    fn end_run(&mut self, run: usize) {
        self.now += 1_000_000;
        let r = &self.runs[run];
        let (id, parent, start, name) = (r.span, r.parent, r.started, AGENTS[r.agent]);
        let mut s = self.close(id, Some(parent), format!("invoke_agent {name}"), 1, start);
        s.attributes = vec![
            text("gen_ai.operation.name", "invoke_agent"),
            text("gen_ai.agent.name", name),
            text("gen_ai.conversation.id", format!("conv-{}", self.n)),
        ];
        self.spans.push(s);
    }

    fn end_root(&mut self, start: u64) {
        self.now += 1_000_000;
        let mut s = self.close(self.root, None, "POST /chat".to_owned(), 2, start);
        s.attributes = vec![
            text("http.request.method", "POST"),
            text("url.path", "/chat"),
            int("http.response.status_code", 200),
        ];
        self.spans.push(s);
    }

    /// A model call of a run, with the client's span below it.
    fn chat(&mut self, run: usize, output: &[Item], finish: &str) {
        let (id, start) = (self.id(), self.now);
        self.now += self.rng.u64(300_000_000..1_500_000_000);
        let client = self.id();
        let mut http = self.close(client, Some(id), "POST".to_owned(), 3, start + 2_000_000);
        http.end_time_unix_nano -= 1_000_000;
        http.attributes = vec![
            text("http.request.method", "POST"),
            text("server.address", "llm.example.com"),
            int("http.response.status_code", 200),
        ];
        self.spans.push(http);
        let messages = |items: &[Item]| {
            format!("[{}]", items.iter().map(|i| i.json.as_str()).collect::<Vec<_>>().join(","))
        };
        let (input, output) = (messages(&self.runs[run].items), messages(output));
        let (tokens_in, tokens_out) = (input.len() / 4 + 300, output.len() / 4);
        self.input_tokens += tokens_in;
        self.output_tokens += tokens_out;
        let model = MODELS[self.rng.usize(0..MODELS.len())];
        let name = AGENTS[self.runs[run].agent];
        let mut s = self.close(id, Some(self.runs[run].span), format!("chat {model}"), 3, start);
        s.attributes = vec![
            text("gen_ai.operation.name", "chat"),
            text("gen_ai.request.model", model),
            text("gen_ai.response.model", model),
            text("gen_ai.response.id", format!("resp_{:016x}", u64::from_be_bytes(id))),
            text("gen_ai.agent.name", name),
            text("gen_ai.conversation.id", format!("conv-{}", self.n)),
            int("gen_ai.usage.input_tokens", tokens_in as i64),
            int("gen_ai.usage.output_tokens", tokens_out as i64),
            list("gen_ai.response.finish_reasons", finish),
            text(
                "gen_ai.system_instructions",
                format!(
                    "[{{\"type\":\"text\",\"content\":\"You are the {name} agent of a returns desk. Be brief and exact.\"}}]"
                ),
            ),
            text("gen_ai.input.messages", input),
            text("gen_ai.output.messages", output),
        ];
        self.spans.push(s);
    }

    /// A tool span that ends now, with the database span below it.
    fn tool_span(
        &mut self,
        run: usize,
        id: [u8; 8],
        start: u64,
        tool: &str,
        call: &str,
        args: &Value,
        result: &str,
        failed: bool,
    ) {
        let client = self.id();
        let mut db = self.close(client, Some(id), "SELECT".to_owned(), 3, start + 1_000_000);
        db.end_time_unix_nano -= 500_000;
        db.attributes = vec![
            text("db.system.name", "postgresql"),
            text("db.query.text", "SELECT * FROM records WHERE id = $1"),
        ];
        let mut s = self.close(id, Some(self.runs[run].span), format!("execute_tool {tool}"), 1, start);
        s.attributes = vec![
            text("gen_ai.operation.name", "execute_tool"),
            text("gen_ai.tool.name", tool),
            text("gen_ai.tool.call.id", call),
            text("gen_ai.tool.call.arguments", args.to_string()),
            text("gen_ai.tool.call.result", result),
        ];
        if failed {
            wire::fail(&mut s);
        }
        self.spans.push(db);
        self.spans.push(s);
    }

    fn call_id(&mut self) -> String {
        format!("call_{:012x}", self.rng.u64(..) >> 16)
    }

    /// Picks a tool call for a run: a new one, or a repeat of an earlier one. Gives the tool, its subject, and whether it fails.
    fn pick(&mut self, run: usize) -> (usize, u64, bool) {
        let same = |c: &Call, t: usize, s: u64| c.tool == t && c.subject == s;
        let mine = |me: &Self, t: usize, s: u64| me.calls.iter().any(|c| c.run == run && same(c, t, s));
        let free = self.runs[run].handoff.is_some() && !self.runs[run].left;
        let roll = self.rng.f64();
        let mut found: Vec<(usize, u64, bool)> = Vec::new();
        if free && roll < 0.12 {
            // What another run has done.
            found = self
                .calls
                .iter()
                .filter(|c| c.run != run && !c.failed)
                .map(|c| (c.tool, c.subject, false))
                .collect();
            found.retain(|(t, s, _)| !mine(self, *t, *s));
        } else if free && roll < 0.18 {
            // What only failed so far, in another run.
            let all_failed = |t: usize, s: u64| self.calls.iter().filter(|c| same(c, t, s)).all(|c| c.failed);
            found = self
                .calls
                .iter()
                .filter(|c| c.run != run && c.failed && all_failed(c.tool, c.subject))
                .map(|c| (c.tool, c.subject, true))
                .collect();
            found.retain(|(t, s, _)| !mine(self, *t, *s));
        } else if free && roll < 0.22 {
            // What this run itself has done.
            found = self
                .calls
                .iter()
                .filter(|c| c.run == run && !c.failed)
                .map(|c| (c.tool, c.subject, false))
                .collect();
        }
        if found.is_empty() {
            let failed = self.chance(0.06);
            return (self.rng.usize(0..TOOLS.len()), self.rng.u64(1_000_000..9_999_999), failed);
        }
        let (tool, subject, was_failed) = found[self.rng.usize(0..found.len())];
        (tool, subject, was_failed && self.chance(0.5))
    }

    /// Counts a call for the transfer it stands under, before it is added to the others.
    fn count(&mut self, run: usize, tool: usize, subject: u64, failed: bool, start: u64) {
        self.tool_calls += 1;
        let Some(h) = self.runs[run].handoff.filter(|_| !self.runs[run].left) else { return };
        let earlier: Vec<&Call> =
            self.calls.iter().filter(|c| c.tool == tool && c.subject == subject).collect();
        let own = earlier.iter().any(|c| c.run == run);
        let redundant = !own && earlier.iter().any(|c| !c.failed);
        let retried = !own && !redundant && !earlier.is_empty();
        let h = &mut self.handoffs[h];
        h.first_redundant |= h.calls == 0 && redundant;
        h.calls += 1;
        h.own += usize::from(own);
        h.redundant += usize::from(redundant);
        h.retried += usize::from(retried);
        if !failed && !redundant && !retried && h.first_action.is_none() {
            h.first_action = Some(start);
        }
    }

    /// Runs a tool; gives the item of its result.
    fn use_tool(&mut self, run: usize, tool: usize, subject: u64, failed: bool, call: &str) -> Item {
        let (name, key) = TOOLS[tool];
        let args = Self::arguments(tool, subject);
        let (id, start) = (self.id(), self.now);
        self.now += self.rng.u64(20_000_000..200_000_000);
        self.count(run, tool, subject, failed, start);
        // The same question has the same answer.
        let reference = (!failed).then(|| format!("RX-{}-{tool}", subject.wrapping_mul(7_919) % 100_000_000));
        let result = match &reference {
            Some(r) => json!({"reference": r, "state": "on file", "for": args[key]}).to_string(),
            None => "Error: upstream timeout".to_owned(),
        };
        self.tool_span(run, id, start, name, call, &args, &result, failed);
        self.calls.push(Call { tool, subject, run, failed, reference });
        answered(call, &result)
    }

    fn arguments(tool: usize, subject: u64) -> Value {
        let (_, key) = TOOLS[tool];
        json!({key: format!("{}-{subject}", key.split('_').next().unwrap_or(key).to_uppercase())})
    }

    /// Some turns with one tool call each.
    fn work(&mut self, run: usize) {
        for _ in 0..self.rng.usize(1..4) {
            let (tool, subject, failed) = self.pick(run);
            let call = self.call_id();
            let asked = called(&call, TOOLS[tool].0, &Self::arguments(tool, subject));
            self.chat(run, std::slice::from_ref(&asked), "tool_calls");
            self.now += 2_000_000;
            let result = self.use_tool(run, tool, subject, failed, &call);
            self.now += 2_000_000;
            self.runs[run].items.extend([asked, result]);
        }
    }

    fn answer(&mut self, run: usize, words: &str) {
        let item = said("assistant", words);
        self.chat(run, std::slice::from_ref(&item), "stop");
        self.runs[run].items.push(item);
    }

    /// A sub-agent does one thing and comes back.
    fn delegate(&mut self, run: usize) {
        let to = (self.runs[run].agent + 1 + self.rng.usize(0..AGENTS.len() - 1)) % AGENTS.len();
        let used: Vec<usize> = self.runs.iter().map(|r| r.agent).collect();
        let Some(to) = (0..AGENTS.len()).map(|k| (to + k) % AGENTS.len()).find(|a| !used.contains(a)) else {
            return;
        };
        let task = format!("Check file {} of case {} and say what is missing.", self.rng.u32(1000..), self.n);
        let tool = format!("delegate_to_{}", AGENTS[to].to_lowercase().replace(' ', "_"));
        let (call, args) = (self.call_id(), json!({"task": task}));
        let asked = called(&call, &tool, &args);
        let view = vec![said("user", &task)];
        self.chat(run, std::slice::from_ref(&asked), "tool_calls");
        let before: Vec<Item> = self.runs[run].items.iter().chain([&asked]).cloned().collect();
        let (id, start) = (self.id(), self.now);
        let h = self.record(&before, &view, &BTreeSet::new(), 0, start);
        self.runs[run].left = true;
        let receiver = self.start_run(to, view, Some(h));
        self.runs[receiver].parent = id;
        self.work(receiver);
        self.answer(receiver, "Nothing is missing.");
        self.end_run(receiver);
        self.now += 1_000_000;
        self.tool_span(run, id, start, &tool, &call, &args, "Nothing is missing.", false);
        let result = answered(&call, "Nothing is missing.");
        self.runs[run].items.extend([asked, result]);
    }

    /// Hands over; gives the receiver's run.
    fn transfer(&mut self, run: usize, to: usize) -> usize {
        let mut stated: BTreeSet<usize> = BTreeSet::new();
        let fault = self.worse.filter(|w| w.from == self.runs[run].agent && w.to == to).map(|w| w.fault);
        let (mut payload, mut fields) = self.payload(&mut stated);
        if let (Some(Fault::Completeness), Some(m)) = (fault, payload.as_object_mut()) {
            for (_, v) in
                m.iter_mut().filter(|(k, _)| !["intent", "constraints", "summary"].contains(&k.as_str()))
            {
                *v = json!("n/a");
                fields -= 1;
            }
        }
        let tool = format!("transfer_to_{}", AGENTS[to].to_lowercase().replace(' ', "_"));
        let call = self.call_id();
        let asked = called(&call, &tool, &payload);
        let mut output = vec![asked];
        // Now and then the model asks for a tool in the same turn.
        let beside = self
            .chance(0.03)
            .then(|| (self.rng.usize(0..TOOLS.len()), self.rng.u64(1_000_000..9_999_999), self.call_id()));
        if let Some((t, s, id)) = &beside {
            output.push(called(id, TOOLS[*t].0, &Self::arguments(*t, *s)));
        }
        self.chat(run, &output, "tool_calls");
        let before: Vec<Item> = self.runs[run].items.iter().chain(&output).cloned().collect();
        self.now += 2_000_000;
        let other = beside.map(|(t, s, id)| self.use_tool(run, t, s, false, &id));
        let (id, start) = (self.id(), self.now);
        self.now += 3_000_000;
        let done = json!({"assistant": AGENTS[to]}).to_string();
        self.tool_span(run, id, start, &tool, &call, &payload, &done, false);
        self.end_run(run);
        let (view, leaks) = self.view(run, &before, &payload, other.as_ref(), answered(&call, &done), fault);
        let lost = other.as_ref().is_some_and(|o| !view.contains(o));
        let h = self.record(&before, &view, &stated, fields, start);
        self.handoffs[h].leaks = leaks;
        self.handoffs[h].lost = usize::from(lost);
        self.runs[run].left = true;
        self.start_run(to, view, Some(h))
    }

    /// A payload: a full contract, a part of one, a sentence, nothing. Adds the constraints it states.
    fn payload(&mut self, stated: &mut BTreeSet<usize>) -> (Value, usize) {
        let roll = self.rng.f64();
        if roll < 0.1 {
            return (json!({}), 0);
        }
        if roll < 0.35 {
            return (json!({"summary": "The customer needs help with a return."}), 0);
        }
        let mut m = serde_json::Map::new();
        let full = roll < 0.7;
        m.insert("intent".to_owned(), json!(format!("Settle the return of order ORD-{:07}", self.n)));
        if full || self.chance(0.5) {
            // What is in force, less what is forgotten; in the first transfer what is new.
            for k in self.active.clone() {
                if self.chance(0.7) {
                    stated.insert(k);
                }
            }
            if self.handoffs.is_empty() {
                for _ in 0..self.rng.usize(0..3) {
                    stated.insert(self.rng.usize(0..RULES.len()));
                }
            }
            let list: Vec<Value> = stated
                .iter()
                .map(|k| json!({"id": RULES[*k].0, "text": RULES[*k].1, "kind": "hard"}))
                .collect();
            m.insert("constraints".to_owned(), Value::Array(list));
        }
        for (field, words) in [
            ("status", "order checked, refund open"),
            ("evidence", "the order is on file"),
            ("next_action", "decide on the refund"),
            ("stop_condition", "the refund is paid or refused"),
        ] {
            if full || self.chance(0.5) {
                m.insert(field.to_owned(), json!(words));
            }
        }
        let fields = m.len();
        // One key alone is no structure, unless it bears a field's own name, as `intent` does.
        (Value::Object(m), fields)
    }

    /// What the receiver sees first, and how much of what was filtered leaks into it.
    fn view(
        &mut self,
        run: usize,
        before: &[Item],
        payload: &Value,
        other: Option<&Item>,
        done: Item,
        fault: Option<Fault>,
    ) -> (Vec<Item>, usize) {
        let roll = self.rng.f64();
        if roll < 0.4 {
            // Everything is handed on.
            let mut v = before.to_vec();
            v.extend(other.cloned());
            v.push(done);
            return (v, 0);
        }
        let mut told = payload.clone();
        if let (Some(Fault::ConstraintRetention), Some(m)) = (fault, told.as_object_mut()) {
            m.remove("constraints");
        }
        let mut words = if self.chance(0.6) {
            format!("You take over this case. {told}")
        } else {
            "You take over this case. Please help the customer.".to_owned()
        };
        let mut leaks = 0;
        if self.chance(0.05) || fault == Some(Fault::Leaks) {
            // A result whose own item is gone, and that nothing else repeats.
            let held = |c: &&Call| {
                c.run == run
                    && c.reference.is_some()
                    && self.calls.iter().filter(|o| o.reference == c.reference).count() == 1
                    && c.reference.as_ref().is_some_and(|r| before.iter().any(|i| i.key.contains(r.as_str())))
            };
            if let Some(r) = self.calls.iter().find(held).and_then(|c| c.reference.clone()) {
                words.push_str(&format!(" The reference on file is {r}."));
                leaks = 1;
            }
        }
        // As the frameworks put it: the sender's words, not the user's.
        let handover = said("assistant", &words);
        // The user's own words are kept in half of the cases.
        let user = before.iter().find(|i| i.key.starts_with("text My order")).cloned();
        match user.filter(|_| roll < 0.7) {
            Some(u) => (vec![u, handover], leaks),
            None => (vec![handover], leaks),
        }
    }

    /// Notes what is true of a transfer that is taken now.
    fn record(
        &mut self,
        before: &[Item],
        view: &[Item],
        stated: &BTreeSet<usize>,
        fields: usize,
        time: u64,
    ) -> usize {
        let sees = |k: &usize| view.iter().any(|i| i.key.contains(RULES[*k].0));
        let counted: BTreeSet<usize> = stated.iter().chain(&self.active).copied().collect();
        // Each item of one side is paired with at most one of the other.
        let mut left: Vec<&str> = before.iter().map(|i| i.key.as_str()).collect();
        for i in view {
            if let Some(k) = left.iter().position(|b| *b == i.key) {
                left.swap_remove(k);
            }
        }
        let common = before.len() - left.len();
        self.handoffs.push(Handoff {
            fields,
            kept: counted.iter().filter(|k| sees(k)).count(),
            counted: counted.len(),
            in_payload: self.active.iter().filter(|k| stated.contains(k)).count(),
            active: self.active.len(),
            before: before.len(),
            after: view.len(),
            filtered: before.len() - common,
            added: view.len() - common,
            time,
            ..Handoff::default()
        });
        self.active = counted.into_iter().collect();
        self.handoffs.len() - 1
    }
}
