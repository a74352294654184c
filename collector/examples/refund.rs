//! A customer wants money back. Triage verifies who it is, looks at the order and at the payment log, and hands over to the
//! refunds specialist, which decides.
//!
//! ```text
//! cargo run -p baton-collector --example refund -- weak /tmp/weak && baton eval --store /tmp/weak
//! cargo run -p baton-collector --example refund -- good /tmp/good && baton eval --store /tmp/good
//! ```
//!
//! The **weak** version hands over a sentence and filters the tool items away. The specialist looks everything up again, never hears of
//! the two rules that the application holds, and reads the number of a payment in Triage's words although the payment log was
//! filtered. The **good** version hands over a contract, and no word of Triage's.

use std::collections::VecDeque;

use baton_collector::handoff::filter::Filter;
use baton_collector::handoff::history::History;
use baton_collector::handoff::leaks::leaks;
use baton_collector::handoff::{Handoff, held_in, received};
use baton_collector::messages::{Message, Part};
use baton_record::constraint::{Constraint, ConstraintSet};
use baton_record::contract::Contract;
use baton_record::span::Speaker;
use opentelemetry::Context;
use opentelemetry::trace::{TraceContextExt, Tracer};
use serde_json::{Value, json};

mod support;

use support::{Agent, Outcome, Tracing, Turn, calls, says};
pub(crate) use support::{To, Version};

const TRIAGE: &str =
    "You are the first line of support. Find out what is wanted and hand over to who can do it.";
const REFUNDS: &str = "You decide on refunds and issue them.";

fn main() -> Outcome {
    support::main(run)
}

/// Durable facts of the application: rules that hold whoever is at work.
fn rules() -> ConstraintSet {
    [
        Constraint::hard("refund-window-30d", "Refund only within 30 days of capture"),
        Constraint::hard("mask-iban", "Never repeat a customer's IBAN in full"),
    ]
    .into_iter()
    .collect()
}

fn tools(tool: &str, _: &Value) -> Result<Value, String> {
    match tool {
        "verify_identity" => Ok(json!({"customer": "CUST-1007", "verified": true})),
        "lookup_order" => Ok(json!({"order": "ORD-48213", "total": 49.9, "captured": "12 days ago"})),
        "payment_log" => {
            Ok(json!({"payment": "pay_7F3M9Q", "state": "captured", "account": "ending in 4931"}))
        }
        "issue_refund" => Ok(json!({"refund": "rf_20261", "state": "issued"})),
        other => Err(format!("there is no tool {other}")),
    }
}

/// What the contract of the good version says; a model would fill it in.
fn contract() -> Contract {
    Contract::builder()
        .intent("Refund order ORD-48213 in full")
        .constraints(rules())
        .status("Identity verified, order and payment found, nothing refunded yet")
        .evidence(
            json!({"order": "ORD-48213", "total": 49.9, "captured": "12 days ago", "payment": "pay_7F3M9Q"}),
        )
        .next_action("Issue the refund of 49.90")
        .stop_condition("The refund is issued, or declined with a reason")
        .completed_step("verify_identity")
        .attempted_tool("lookup_order")
        .attempted_tool("payment_log")
        .build()
}

fn triage(transfer: Turn) -> VecDeque<Turn> {
    VecDeque::from([
        calls(&[("verify_identity", "t1", json!({"customer": "CUST-1007"}))]),
        calls(&[
            ("lookup_order", "t2", json!({"order": "ORD-48213"})),
            ("payment_log", "t3", json!({"order": "ORD-48213"})),
        ]),
        transfer,
    ])
}

fn refunds(version: Version) -> VecDeque<Turn> {
    let refund = calls(&[("issue_refund", "r9", json!({"order": "ORD-48213", "amount": 49.9}))]);
    let done = says("Your refund of 49.90 is on its way.");
    match version {
        Version::Weak => VecDeque::from([
            calls(&[("verify_identity", "r1", json!({"customer": "CUST-1007"}))]),
            calls(&[
                ("lookup_order", "r2", json!({"order": "ORD-48213"})),
                ("payment_log", "r3", json!({"order": "ORD-48213"})),
            ]),
            refund,
            done,
        ]),
        Version::Good => VecDeque::from([refund, done]),
    }
}

/// Runs one version.
pub(crate) fn run(to: To<'_>, version: Version) -> Outcome {
    let tracing = Tracing::start(to, "support-desk")?;
    let tracer = tracing.tracer();
    let session = Context::new().with_span(tracer.start("support session"));
    let (rules, contract) = (rules(), contract());

    let asked =
        json!([{"role": "user", "content": "I am CUST-1007 and I want my money back for ORD-48213."}]);
    let mut agent =
        Agent::start(&tracer, &session, "Triage", TRIAGE, History::from_value(&asked), Vec::new());
    let (arguments, text) = match version {
        Version::Weak => (
            json!({"request": "The customer wants a refund, please take over."}),
            Some("The payment pay_7F3M9Q was captured, I hand you over.".to_owned()),
        ),
        Version::Good => (contract.to_value(), None),
    };
    let transfer = ("transfer_to_refunds_specialist".to_owned(), "t4".to_owned(), arguments.clone());
    agent.run(&mut triage(Turn { text, calls: vec![transfer] }), tools)?;

    // The filter makes the receiver's history out of the sender's. Tool items go in both versions.
    let filtered = agent.history.filtered(&[Filter::RemoveTools]);
    let mut after = filtered.history;
    let said = match version {
        Version::Weak => "The customer wants a refund, please take over.".to_owned(),
        Version::Good => format!("Contract:\n{}", contract.to_json()),
    };
    after.messages.push(Message { speaker: Speaker::User, author: None, parts: vec![Part::Text(said)] });
    let leaked = leaks(&agent.history, &after, &arguments.to_string());
    assert_eq!(leaked.len(), usize::from(version == Version::Weak), "{leaked:?}");

    // Three channels: state, payload, history.
    let handoff = Handoff::new("Triage", "Refunds Specialist")
        .task_id(format!("refund-{version:?}").to_lowercase())
        .reason("The customer asks for a refund")
        .tool("transfer_to_refunds_specialist", Some("t4"))
        .state(&rules)
        .history(&agent.history, &after);
    let handoff = match version {
        Version::Weak => handoff.payload(&arguments),
        Version::Good => handoff.contract(&contract),
    };
    let handoff = handoff.content(true).start_with_context(&tracer, agent.context());
    drop(agent);

    // Control is passed: Triage is done, and the specialist runs below the handoff, as it would in another process.
    let received = received(handoff.context(), &held_in(&rules, &after));
    let mut agent = Agent::start(&tracer, handoff.context(), "Refunds Specialist", REFUNDS, after, received);
    handoff.accepted();
    agent.run(&mut refunds(version), tools)?;
    drop(agent);
    session.span().end();
    tracing.finish()
}
