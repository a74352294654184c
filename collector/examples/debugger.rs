//! A planner hands a failing test to a debugger and waits for it.
//!
//! ```text
//! cargo run -p baton-collector --example debugger -- weak /tmp/weak && baton eval --store /tmp/weak
//! cargo run -p baton-collector --example debugger -- good /tmp/good && baton eval --store /tmp/good
//! ```
//!
//! The **weak** version says "fix the tests". The debugger runs what the planner ran, tries again what is known to fail, and does not know
//! that the public interface must stay. The **good** version hands over a bounded objective: what to make pass, what not to touch,
//! what was tried, and when to stop.

use std::collections::VecDeque;

use baton_collector::handoff::history::History;
use baton_collector::handoff::{Handoff, Mode, held_in, received};
use baton_record::constraint::{Constraint, ConstraintSet};
use baton_record::contract::Contract;
use opentelemetry::Context;
use opentelemetry::trace::{TraceContextExt, Tracer};
use serde_json::{Value, json};

mod support;

use support::{Agent, Outcome, Tracing, Turn, calls, says};
pub(crate) use support::{To, Version};

const PLANNER: &str = "You plan work on a code base and delegate it.";
const DEBUGGER: &str = "You find out why tests fail and repair the code.";

fn main() -> Outcome {
    support::main(run)
}

/// Durable facts of the project.
fn rules() -> ConstraintSet {
    [
        Constraint::hard("keep-public-api", "Do not change the public interface"),
        Constraint::hard("no-new-dependencies", "Do not add dependencies"),
    ]
    .into_iter()
    .collect()
}

fn tools(tool: &str, args: &Value) -> Result<Value, String> {
    match tool {
        "run_tests" => Ok(json!({"passed": 41, "failed": ["parse_amount_reads_thousands"]})),
        "read_file" => Ok(
            json!({"path": args["path"], "text": "fn parse_amount(s: &str) -> Option<u64> { s.parse().ok() }"}),
        ),
        "bisect" => Err("the history is shallow".to_owned()),
        "apply_patch" => Ok(json!({"changed": ["src/amount.rs"]})),
        other => Err(format!("there is no tool {other}")),
    }
}

fn contract() -> Contract {
    Contract::builder()
        .intent("Make the test parse_amount_reads_thousands pass")
        .constraints(rules())
        .status("41 of 42 tests pass; the cause is within parse_amount")
        .evidence("parse_amount hands the text to str::parse, which takes no separators")
        .next_action("Change parse_amount in src/amount.rs")
        .stop_condition("All 42 tests pass, or two attempts have failed")
        .attempted_tool(json!({"tool": "run_tests", "outcome": "one fails"}))
        .attempted_tool(json!({"tool": "bisect", "outcome": "error"}))
        .known_failure("bisect cannot be used: the history is shallow")
        .artifact_ref("src/amount.rs")
        .build()
}

fn debugger(version: Version) -> VecDeque<Turn> {
    let patch =
        calls(&[("apply_patch", "d8", json!({"path": "src/amount.rs", "patch": "s.replace(',', \"\")"}))]);
    let check = calls(&[("run_tests", "d9", json!({"filter": "parse_amount_reads_thousands"}))]);
    let done = says("Repaired: separators are taken out before parsing.");
    match version {
        Version::Weak => VecDeque::from([
            calls(&[("run_tests", "d1", json!({"filter": "all"}))]),
            calls(&[("bisect", "d2", json!({"good": "v1.4"}))]),
            calls(&[("read_file", "d3", json!({"path": "src/amount.rs"}))]),
            patch,
            check,
            done,
        ]),
        Version::Good => VecDeque::from([patch, check, done]),
    }
}

/// Runs one version.
pub(crate) fn run(to: To<'_>, version: Version) -> Outcome {
    let tracing = Tracing::start(to, "code-desk")?;
    let tracer = tracing.tracer();
    let session = Context::new().with_span(tracer.start("repair"));
    let (rules, contract) = (rules(), contract());

    let asked = json!([{"role": "user", "content": "The build is red, please repair it."}]);
    let mut planner =
        Agent::start(&tracer, &session, "Planner", PLANNER, History::from_value(&asked), Vec::new());
    let arguments = match version {
        Version::Weak => json!({"request": "Fix the tests."}),
        Version::Good => contract.to_value(),
    };
    let mut script = VecDeque::from([
        calls(&[("run_tests", "p1", json!({"filter": "all"}))]),
        calls(&[
            ("bisect", "p2", json!({"good": "v1.4"})),
            ("read_file", "p3", json!({"path": "src/amount.rs"})),
        ]),
        calls(&[("delegate_to_debugger", "p4", arguments.clone())]),
        says("The build is green again."),
    ]);
    planner.run(&mut script, tools)?;

    // The debugger begins with the payload alone: none of the planner's history is passed on.
    let said = match version {
        Version::Weak => "Fix the tests.".to_owned(),
        Version::Good => contract.to_json(),
    };
    let after = History::from_value(&json!([{"role": "user", "content": said}]));
    let handoff = Handoff::new("Planner", "Debugger")
        .mode(Mode::ReturnToCaller)
        .task_id(format!("repair-{version:?}").to_lowercase())
        .reason("A test fails")
        .tool("delegate_to_debugger", Some("p4"))
        .state(&rules)
        .history(&planner.history, &after);
    let handoff = match version {
        Version::Weak => handoff.payload(&arguments),
        Version::Good => handoff.contract(&contract),
    };
    let handoff = handoff.content(true).start_with_context(&tracer, planner.context());

    let received = received(handoff.context(), &held_in(&rules, &after));
    let mut agent = Agent::start(&tracer, handoff.context(), "Debugger", DEBUGGER, after, received);
    let answer = agent.run(&mut debugger(version), tools)?;
    drop(agent);
    handoff.accepted();

    planner.answered("p4", answer.text.as_deref().unwrap_or_default());
    planner.run(&mut script, tools)?;
    drop(planner);
    session.span().end();
    tracing.finish()
}
