//! Who lost the rule: made-up tasks of which it is known, since they are built from what each channel holds.
//!
//! Three agents work on a return: Intake hands to Triage, Triage to Refunds, and Refunds pays back too late. Whether the rule
//! against it was stated, carried and seen differs from task to task.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{baton, root, stderr, stdout};

const RULE: &str = "refund-window-30d";
const TEXT: &str = "Refund only within 30 days of capture";
const CATALOGUE: &str = r#"
[[constraints]]
id = "refund-window-30d"
text = "Refund only within 30 days of capture"
patterns = ["(?i)no refund after a month"]

[[rules]]
id = "refund"
constraint = "refund-window-30d"
where = "tool = 'issue_refund'"

[[rules]]
id = "late-refund"
constraint = "refund-window-30d"
where = "tool = 'issue_refund' AND arg(args, 'days') > 30"

[[rules]]
id = "huge-refund"
constraint = "refund-window-30d"
where = "tool = 'issue_refund' AND arg(args, 'amount') > 1000"
"#;

/// What came to the receiver besides the user's words.
#[derive(Debug, Clone, Copy, PartialEq)]
enum View {
    /// All that the sender saw, and its call.
    Everything,
    /// All that the sender saw, without its call.
    History,
    /// The payload's words.
    Payload,
    /// Nothing.
    Bare,
    /// Not recorded.
    Unrecorded,
}

/// How a payload speaks of the rule.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Carried {
    No,
    Stated,
    /// In other words, which a pattern of the catalogue knows.
    InWords,
    /// The transfer's arguments are not recorded.
    Unrecorded,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    first: Carried,
    second: Carried,
    view: View,
    /// Instructions of Triage and of Refunds hold the rule.
    told_sender: bool,
    told_receiver: bool,
    /// Refunds reads the rule in a policy before or after it pays.
    reads: Option<bool>,
}

impl Case {
    fn all() -> Vec<Self> {
        use Carried::*;
        let mut out = Vec::new();
        for first in [No, Stated, Unrecorded] {
            for second in [No, Stated, InWords, Unrecorded] {
                for view in [View::Everything, View::History, View::Payload, View::Bare, View::Unrecorded] {
                    for told in 0..4 {
                        for reads in [None, Some(true), Some(false)] {
                            let (told_sender, told_receiver) = (told & 1 > 0, told & 2 > 0);
                            out.push(Self { first, second, view, told_sender, told_receiver, reads });
                        }
                    }
                }
            }
        }
        out
    }

    /// What Triage saw and passed on as history: the first contract stands in it.
    fn history_holds(&self) -> bool {
        self.first == Carried::Stated
    }

    /// The verdict, from what was really in each channel.
    fn truth(&self) -> &'static str {
        let carried = matches!(self.second, Carried::Stated | Carried::InWords);
        let first_view = match self.view {
            View::Unrecorded => None,
            View::Everything => Some(self.history_holds() || carried),
            View::History => Some(self.history_holds()),
            View::Payload => Some(carried),
            View::Bare => Some(false),
        };
        // A call that is masked stays masked where it is passed on, and may hold the rule.
        let masked = match self.view {
            View::Everything => self.first == Carried::Unrecorded || self.second == Carried::Unrecorded,
            View::History => self.first == Carried::Unrecorded,
            _ => false,
        };
        // An inference whose messages are not recorded shows neither instructions nor what was read.
        let seen = first_view.map(|v| v || self.told_receiver || self.reads == Some(true));
        match seen {
            None => "unknown",
            Some(true) => "model",
            Some(false) if masked => "unknown",
            Some(false) if carried => "filter",
            Some(false) if self.second == Carried::Unrecorded => "unknown",
            Some(false) if self.first == Carried::Stated => "payload",
            Some(false) if self.first == Carried::Unrecorded => "unknown",
            Some(false) => "state",
        }
    }
}

/// Spans of one task in the making.
struct Task {
    trace: String,
    next: u64,
    now: u64,
    spans: Vec<Value>,
}

fn attributes(list: &[(&str, Value)]) -> Vec<Value> {
    list.iter()
        .map(|(k, v)| {
            let v = match v {
                Value::String(s) => json!({"stringValue": s}),
                Value::Number(n) if n.is_f64() => json!({"doubleValue": n}),
                other => json!({"stringValue": other.to_string()}),
            };
            json!({"key": k, "value": v})
        })
        .collect()
}

fn say(role: &str, text: &str) -> Value {
    json!({"role": role, "parts": [{"type": "text", "content": text}]})
}

fn call(id: &str, tool: &str, args: &Value) -> Value {
    json!({"role": "assistant", "parts": [{"type": "tool_call", "id": id, "name": tool, "arguments": args}]})
}

fn result(id: &str, text: &str) -> Value {
    json!({"role": "tool", "parts": [{"type": "tool_call_response", "id": id, "response": text}]})
}

impl Task {
    fn new(n: usize) -> Self {
        let now = 1_790_000_000_000_000_000 + n as u64 * 60_000_000_000;
        Self {
            trace: format!("{:032x}", 0xabc0_0000 + n),
            next: (n as u64 + 1) << 16,
            now,
            spans: Vec::new(),
        }
    }

    fn id(&mut self) -> String {
        self.next += 1;
        format!("{:016x}", self.next)
    }

    fn span(&mut self, id: &str, parent: Option<&str>, name: &str, start: u64, list: &[(&str, Value)]) {
        self.now += 1_000_000;
        self.spans.push(json!({
            "traceId": self.trace, "spanId": id, "parentSpanId": parent.unwrap_or_default(), "name": name, "kind": 1,
            "startTimeUnixNano": start.to_string(), "endTimeUnixNano": self.now.to_string(),
            "attributes": attributes(list),
        }));
    }

    /// A model call of an agent; without a view nothing of its messages is recorded.
    fn chat(&mut self, agent: (&str, &str), view: Option<(&[Value], &str)>, output: &Value) {
        let (id, start) = (self.id(), self.now);
        self.now += 1_000_000_000;
        let mut list = vec![
            ("gen_ai.operation.name", json!("chat")),
            ("gen_ai.request.model", json!("m")),
            ("gen_ai.agent.name", json!(agent.1)),
            ("gen_ai.response.id", json!(format!("r-{id}"))),
        ];
        if let Some((input, instructions)) = view {
            list.push(("gen_ai.input.messages", json!(input)));
            list.push(("gen_ai.output.messages", json!([output])));
            list.push(("gen_ai.system_instructions", json!([{"type": "text", "content": instructions}])));
        }
        self.span(&id, Some(agent.0), "chat m", start, &list);
    }

    fn tool(&mut self, agent: &str, call: &str, tool: &str, args: Option<&Value>, result: &str) -> String {
        let (id, start) = (self.id(), self.now);
        self.now += 10_000_000;
        let mut list = vec![
            ("gen_ai.operation.name", json!("execute_tool")),
            ("gen_ai.tool.name", json!(tool)),
            ("gen_ai.tool.call.id", json!(call)),
            ("gen_ai.tool.call.result", json!(result)),
        ];
        list.extend(args.map(|a| ("gen_ai.tool.call.arguments", a.clone())));
        self.span(&id, Some(agent), &format!("execute_tool {tool}"), start, &list);
        id
    }

    fn agent(&mut self, id: &str, root: &str, name: &str, start: u64) {
        let list = [("gen_ai.operation.name", json!("invoke_agent")), ("gen_ai.agent.name", json!(name))];
        self.span(id, Some(root), &format!("invoke_agent {name}"), start, &list);
    }
}

fn payload(carried: Carried) -> Option<Value> {
    let mut p = json!({"intent": "settle the return of order 7", "next_action": "decide on the refund"});
    match carried {
        Carried::No => {}
        Carried::Stated => p["constraints"] = json!([{"id": RULE, "text": TEXT, "kind": "hard"}]),
        Carried::InWords => p["next_action"] = json!("Decide, but no refund after a month, as always."),
        Carried::Unrecorded => return None,
    }
    Some(p)
}

/// What the model said where the arguments of its transfer are not recorded.
fn transfer(id: &str, tool: &str, payload: &Option<Value>) -> Value {
    match payload {
        Some(p) => call(id, tool, p),
        // The message is masked too, as an instrumentation does it.
        None => call(id, tool, &json!("[REDACTED]")),
    }
}

/// Plays a task; gives its spans and the ids of what may be judged: the call that pays, and the run of Refunds.
fn play(n: usize, c: &Case) -> (Task, String, String) {
    let mut t = Task::new(n);
    let (root, intake, triage, refunds) = (t.id(), t.id(), t.id(), t.id());
    let begin = t.now;
    let user = say("user", "My parcel came broken, I want my money back.");
    let plain = "You work for a returns desk.";
    let told = format!("You work for a returns desk. {TEXT}.");

    let first = payload(c.first);
    let asked = transfer("c1", "transfer_to_triage", &first);
    t.chat((&intake, "Intake"), Some((std::slice::from_ref(&user), plain)), &asked);
    t.tool(&intake, "c1", "transfer_to_triage", first.as_ref(), "ok");
    t.agent(&intake, &root, "Intake", begin);

    let start = t.now;
    let second = payload(c.second);
    let asked_again = transfer("c2", "transfer_to_refunds", &second);
    let history = vec![user.clone(), asked, result("c1", "ok")];
    let instructions = if c.told_sender { &told } else { plain };
    t.chat((&triage, "Triage"), Some((&history, instructions)), &asked_again);
    t.tool(&triage, "c2", "transfer_to_refunds", second.as_ref(), "ok");
    t.agent(&triage, &root, "Triage", start);

    let start = t.now;
    let mut view = match c.view {
        View::Everything => [history, vec![asked_again, result("c2", "ok")]].concat(),
        View::History => history,
        View::Payload => {
            vec![user, say("user", &second.map_or("Please take over.".to_owned(), |p| p.to_string()))]
        }
        View::Bare | View::Unrecorded => vec![user],
    };
    let instructions = if c.told_receiver { &told } else { plain };
    let recorded = c.view != View::Unrecorded;
    let mut paid = String::new();
    let steps: &[&str] = match c.reads {
        None => &["pay"],
        Some(true) => &["read", "pay"],
        Some(false) => &["pay", "read"],
    };
    for (i, step) in steps.iter().enumerate() {
        let id = format!("r{i}");
        let (tool, args, answer) = match *step {
            "pay" => {
                ("issue_refund", json!({"order": "7", "days": 45, "amount": "80.50"}), "paid".to_owned())
            }
            _ => ("read_policy", json!({"section": "refunds"}), format!("Section 1. {TEXT}.")),
        };
        let asked = call(&id, tool, &args);
        t.chat((&refunds, "Refunds"), recorded.then_some((&view, instructions)), &asked);
        let span = t.tool(&refunds, &id, tool, Some(&args), &answer);
        if *step == "pay" {
            paid = span;
        }
        view.extend([asked, result(&id, &answer)]);
    }
    t.chat(
        (&refunds, "Refunds"),
        recorded.then_some((&view, instructions)),
        &say("assistant", "Your money is on its way."),
    );
    t.agent(&refunds, &root, "Refunds", start);
    t.span(&root, None, "POST /chat", begin, &[]);
    (t, paid, refunds)
}

fn request(spans: &[Value]) -> String {
    json!({"resourceSpans": [{"scopeSpans": [{"scope": {"name": "test"}, "spans": spans}]}]}).to_string()
}

/// Evaluates files under a configuration, whose report is given.
fn report(folder: &Path, config: &str, paths: &[&str]) -> Value {
    let file = folder.join("baton.toml");
    fs::write(&file, config).unwrap();
    let mut args = vec!["--config", file.to_str().unwrap(), "eval", "--format", "json"];
    args.extend(paths);
    let o = baton(&args).output().unwrap();
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    serde_json::from_str(&stdout(&o)).unwrap()
}

/// Verdicts of violations that one rule or judge found, by task.
fn verdicts(report: &Value, name: &str) -> BTreeMap<String, String> {
    let of = |v: &Value, k: &str| v[k].as_str().unwrap_or_default().to_owned();
    let all = report["violations"].as_array().unwrap();
    all.iter().filter(|v| v["name"] == name).map(|v| (of(v, "task_id"), of(v, "verdict"))).collect()
}

#[test]
fn every_verdict_is_the_truth_under_every_content_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.json");
    // All cases once; of the other modes a share will do.
    for (content, share) in [("redacted", 1), ("none", 7), ("full", 11)] {
        let cases: Vec<Case> = Case::all().into_iter().step_by(share).collect();
        let lines: Vec<String> =
            cases.iter().enumerate().map(|(n, c)| request(&play(n, c).0.spans)).collect();
        fs::write(&path, lines.join("\n")).unwrap();
        let config = format!("content = \"{content}\"\n{CATALOGUE}");
        let report = report(folder.path(), &config, &[path.to_str().unwrap()]);
        // Arguments that are not kept decide nothing; those that are do.
        let by_args = content != "none";
        let found = verdicts(&report, "refund");
        let mut wrong = Vec::new();
        for (n, c) in cases.iter().enumerate() {
            let got = found.get(&Task::new(n).trace).map(String::as_str);
            if got != Some(c.truth()) {
                wrong.push(format!("{c:?}: {} expected, got {got:?}", c.truth()));
            }
        }
        assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
        assert_eq!(verdicts(&report, "late-refund"), if by_args { found } else { BTreeMap::new() });
        assert!(verdicts(&report, "huge-refund").is_empty());

        let count = |v: &str| cases.iter().filter(|c| c.truth() == v).count();
        let counts = |n: usize| {
            let k = |v| count(v) * n;
            json!({"total": cases.len() * n, "state": k("state"), "payload": k("payload"), "filter": k("filter"),
                   "model": k("model"), "unknown": k("unknown")})
        };
        let mut wrong = Vec::new();
        let by_pair = &report["violation_counts"]["by_pair"];
        super::cases::differences("pair", &json!([counts(1 + usize::from(by_args))]), by_pair, &mut wrong);
        super::cases::differences(
            "pair",
            &json!([{"from_agent": "Triage", "to_agent": "Refunds"}]),
            by_pair,
            &mut wrong,
        );
        let undecided = if by_args { 0 } else { cases.len() };
        let by_rule = &report["violation_counts"]["by_rule"];
        let rule = |name: &str| by_rule.as_array().unwrap().iter().find(|r| r["name"] == name).cloned();
        super::cases::differences("rule", &counts(1), &rule("refund").unwrap(), &mut wrong);
        if !by_args {
            let want = json!({"total": 0, "undecided": undecided});
            super::cases::differences("rule", &want, &rule("late-refund").unwrap(), &mut wrong);
            super::cases::differences("rule", &want, &rule("huge-refund").unwrap(), &mut wrong);
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        // What is unknown says what is missing, and nothing else does.
        for v in report["violations"].as_array().unwrap() {
            assert_eq!(v["missing"].is_null(), v["verdict"] != "unknown", "{v}");
            assert_eq!(
                (&v["constraint"], &v["text"], &v["agent"]),
                (&json!(RULE), &json!(TEXT), &json!("Refunds"))
            );
        }
    }
}

/// A judgement as an event: attributes and where it stands.
fn judgement(name: &str, score: Option<f64>, label: Option<&str>) -> Vec<Value> {
    let mut list = vec![("gen_ai.evaluation.name", json!(name))];
    list.extend(score.map(|s| ("gen_ai.evaluation.score.value", json!(s))));
    list.extend(label.map(|l| ("gen_ai.evaluation.score.label", json!(l))));
    attributes(&list)
}

fn log(trace: &str, span: &str, attributes: &[Value]) -> Value {
    json!({"timeUnixNano": "1790000000000000000", "eventName": "gen_ai.evaluation.result", "traceId": trace,
           "spanId": span, "attributes": attributes})
}

fn logs_request(logs: &[Value]) -> String {
    json!({"resourceLogs": [{"scopeLogs": [{"scope": {"name": "judge"}, "logRecords": logs}]}]}).to_string()
}

#[test]
fn a_judgement_is_joined_to_its_handoff_and_gets_the_same_verdict() {
    let stated = |c: Carried| matches!(c, Carried::No | Carried::Stated);
    let cases: Vec<Case> = Case::all()
        .into_iter()
        .filter(|c| stated(c.first) && stated(c.second) && c.reads.is_none())
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.json");
    let event = judgement("guardrail/refund-window-30d", Some(0.0), Some("fail"));
    let mut lines = Vec::new();
    for (n, c) in cases.iter().enumerate() {
        let (mut t, paid, refunds) = play(n, c);
        let on_span = json!([{"name": "gen_ai.evaluation.result", "timeUnixNano": "1", "attributes": event}]);
        let tool = t.spans.iter_mut().find(|s| s["spanId"] == paid.as_str()).unwrap();
        let mut logs = Vec::new();
        // On the span of the call, beside it, both, on a span of the judge's below it, on the agent.
        match n % 5 {
            0 => tool["events"] = on_span,
            1 => logs.push(log(&t.trace, &paid, &event)),
            2 => {
                tool["events"] = on_span;
                logs.push(log(&t.trace, &paid, &event));
            }
            3 => {
                let (id, now) = (t.id(), t.now);
                t.span(&id, Some(&paid), "judge", now, &[]);
                logs.push(log(&t.trace, &id, &event));
            }
            _ => logs.push(log(&t.trace, &refunds, &event)),
        }
        lines.push(request(&t.spans));
        lines.push(logs_request(&logs));
    }
    fs::write(&path, lines.join("\n")).unwrap();
    // Without a catalogue: the rule is known from the contracts alone.
    let report = report(folder.path(), "", &[path.to_str().unwrap()]);
    assert_eq!(report["evaluations"].as_array().unwrap().len(), cases.len());
    let handoffs = report["handoffs"].as_array().unwrap();
    let found = verdicts(&report, "guardrail/refund-window-30d");
    for (n, c) in cases.iter().enumerate() {
        let trace = Task::new(n).trace;
        // A rule that no contract states is no constraint of the task.
        let known = c.first == Carried::Stated || c.second == Carried::Stated;
        assert_eq!(found.get(&trace).map(String::as_str), known.then_some(c.truth()), "{c:?}");
        let of = report["evaluations"].as_array().unwrap().iter().find(|e| e["task_id"] == trace.as_str());
        let of = of.unwrap();
        let handoff = handoffs.iter().find(|h| h["handoff_id"] == of["handoff_id"]).unwrap();
        assert_eq!((&handoff["from_agent"], &handoff["to_agent"]), (&json!("Triage"), &json!("Refunds")));
        assert_eq!((&of["failed"], &of["call"].is_null()), (&json!(true), &(n % 5 == 4)));
    }
}

#[test]
fn a_judgement_that_passed_or_that_no_agent_earned_puts_nothing_down_to_anyone() {
    let case = Case {
        first: Carried::Stated,
        second: Carried::No,
        view: View::Bare,
        told_sender: false,
        told_receiver: false,
        reads: None,
    };
    let (t, paid, refunds) = play(0, &case);
    let root_span = t.spans.last().unwrap()["spanId"].as_str().unwrap().to_owned();
    let said = |span: &str, name, score, label| log(&t.trace, span, &judgement(name, score, label));
    let logs = [
        said(&paid, RULE, Some(0.9), None),
        said(&paid, "helpfulness", Some(0.1), None),
        said(&refunds, "refund_window_30d", None, Some("compliant")),
        said(&refunds, "tone", None, Some("blue")),
        said(&refunds, "baton.violation", None, Some("payload")),
        said(&root_span, "refund-window-30d violation", None, Some("true")),
        said(&root_span, "task_success", None, Some("fail")),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.json");
    fs::write(&path, format!("{}\n{}", request(&t.spans), logs_request(&logs))).unwrap();
    let report = report(folder.path(), "", &[path.to_str().unwrap()]);
    let mut wrong = Vec::new();
    let want = json!({
        "tasks": [{"completed": false}],
        "violations": [{"source": "evaluation", "name": "refund-window-30d violation", "constraint": RULE,
            "agent": null, "handoff_id": null, "verdict": "unknown", "missing": "which agent did it"}],
        "evaluations": {"$any_order": [
            {"name": RULE, "failed": false, "constraint": RULE, "score": 0.9},
            {"name": "helpfulness", "failed": true, "constraint": null},
            {"name": "refund_window_30d", "failed": false, "constraint": RULE, "label": "compliant"},
            {"name": "tone", "failed": null},
            {"name": "refund-window-30d violation", "failed": true},
            {"name": "task_success", "failed": true, "agent": null},
        ]},
    });
    super::cases::differences("", &want, &report, &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_first_agent_is_judged_by_its_own_view_and_a_rule_binds_whom_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.json");
    let mut lines = Vec::new();
    for (n, instructions) in [Some(TEXT), Some("Be kind."), None].into_iter().enumerate() {
        let mut t = Task::new(n);
        let (root, own) = (t.id(), t.id());
        let start = t.now;
        let user = [say("user", "My parcel came broken.")];
        let asked = call("r0", "issue_refund", &json!({"days": 45.5}));
        t.chat((&own, "Refunds"), instructions.map(|i| (&user[..], i)), &asked);
        t.tool(&own, "r0", "issue_refund", Some(&json!({"days": 45.5})), "paid");
        t.agent(&own, &root, "Refunds", start);
        t.span(&root, None, "POST /chat", start, &[]);
        lines.push(request(&t.spans));
    }
    fs::write(&path, lines.join("\n")).unwrap();
    let path = path.to_str().unwrap();
    let all = report(folder.path(), CATALOGUE, &[path]);
    let got: Vec<String> = verdicts(&all, "late-refund").into_values().collect();
    assert_eq!(got, ["model", "state", "unknown"]);
    assert_eq!(all["violation_counts"]["by_pair"][0]["from_agent"], Value::Null);
    for (bound, n) in [("REFUNDS", 3), ("Triage", 0)] {
        let config = CATALOGUE.replacen("patterns", &format!("agents = [\"{bound}\"]\npatterns"), 1);
        let found = verdicts(&report(folder.path(), &config, &[path]), "refund");
        assert_eq!(found.len(), n, "{bound}");
    }
}

#[test]
fn a_view_that_is_cut_off_tells_of_what_it_still_holds() {
    // The third agent's view holds the first rule; where the second one stood, it is cut off.
    let folder = tempfile::tempdir().unwrap();
    let said = |span: &str| {
        let trace = trace_of(&root().join("tests/cases/faults/truncated-fault/input.otlp.pb"));
        let of = |name| log(&trace, span, &judgement(name, Some(0.0), None));
        logs_request(&[of("window-30d"), of("cap-100")])
    };
    let logs = folder.path().join("logs.json");
    fs::write(&logs, said("ba6b617f14b6b8b6")).unwrap();
    let input = root().join("tests/cases/faults/truncated-fault/input.otlp.pb");
    let report = report(folder.path(), "", &[input.to_str().unwrap(), logs.to_str().unwrap()]);
    let mut wrong = Vec::new();
    let want = json!([
        {"constraint": "cap-100", "agent": "Compliance Reviewer", "verdict": "unknown",
         "missing": "the agent's view: content cut off"},
        {"constraint": "window-30d", "agent": "Compliance Reviewer", "verdict": "model", "missing": null},
    ]);
    super::cases::differences("", &want, &report["violations"], &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The one trace of a file of OTLP.
fn trace_of(path: &Path) -> String {
    let o = super::run(&["eval", "--format", "json", path.to_str().unwrap()]);
    let report: Value = serde_json::from_str(&stdout(&o)).unwrap();
    report["tasks"][0]["trace_ids"][0].as_str().unwrap().to_owned()
}

#[test]
fn durable_state_holds_a_rule_that_no_contract_states() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let to = super::examples::refund::To { store: &store, otlp: None };
    super::examples::refund::run(to, super::examples::refund::Version::Weak).unwrap();
    let config = CATALOGUE.replace("arg(args, 'days') > 30", "arg(args, 'amount') > 49.5");
    let report = report(folder.path(), &config, &["--store", store.to_str().unwrap()]);
    let verdict = verdicts(&report, "late-refund");
    assert_eq!(verdict.into_values().collect::<Vec<_>>(), ["payload"]);
}

#[test]
fn a_wrong_rule_is_refused_before_anything_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("baton.toml");
    fs::write(&file, CATALOGUE.replace("tool = 'issue_refund'\"", "toll = 'issue_refund'\"")).unwrap();
    let line = CATALOGUE.lines().position(|l| l.starts_with("where")).unwrap() + 1;
    for args in [vec!["eval", "no-such-file"], vec!["import", "no-such-file"], vec!["sql", "SELECT 1"]] {
        let o = baton(&[&["--config", file.to_str().unwrap()][..], &args].concat()).output().unwrap();
        let said = stderr(&o);
        assert_eq!(o.status.code(), Some(2), "{said}");
        let place = format!("{}:{line}:9: rules.where of `refund`: ", file.display());
        assert!(said.contains(&place) && said.contains("toll"), "{said}");
    }
}
