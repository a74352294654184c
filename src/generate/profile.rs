//! What spans carry, for measuring: nothing but names and numbers, or much content.

use clap::ValueEnum;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;

use super::wire;

/// How much spans carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// As the truth is told of: short messages and results.
    Plain,
    /// About 0.8 kB a span, no content.
    Lean,
    /// About 10 kB a span: messages and results.
    Content,
}

const CONTENT: [&str; 5] = [
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
];

/// Text of about so many bytes, made of common words; another seed, other text.
fn prose(seed: u64, bytes: usize) -> String {
    const WORDS: [&str; 40] = [
        "order", "customer", "refund", "payment", "was", "the", "captured", "on", "delivery", "and",
        "return", "window", "of", "policy", "requires", "manager", "approval", "for", "amounts", "above",
        "limit", "ticket", "shipment", "tracking", "shows", "parcel", "arrived", "damaged", "photo",
        "attached", "agent", "verified", "identity", "with", "last", "four", "digits", "account", "created",
        "status",
    ];
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut out = String::with_capacity(bytes + 16);
    while out.len() < bytes {
        out.push_str(WORDS[rng.usize(..WORDS.len())]);
        out.push(if rng.u8(..12) == 0 { '.' } else { ' ' });
        if rng.u8(..20) == 0 {
            out.push_str(&format!("R-{} ", rng.u32(10_000..100_000)));
        }
    }
    out
}

impl Profile {
    /// Changes a span to what the profile says.
    pub(super) fn apply(self, span: &mut Span) {
        match self {
            Self::Plain => {}
            Self::Lean => {
                span.attributes.retain(|a| !CONTENT.contains(&a.key.as_str()));
                for (k, v) in [
                    ("server.address", "model-gateway.internal.example"),
                    (
                        "url.full",
                        "https://model-gateway.internal.example/v1/chat/completions?deployment=primary",
                    ),
                    ("http.request.method", "POST"),
                    ("user_agent.original", "agent-runtime/2.14.3 python/3.13.1 linux x86_64"),
                    ("thread.name", "AnyIO worker thread"),
                    ("code.function.name", "returns_desk.agents.runtime.execute_step"),
                    ("deployment.environment.name", "production"),
                    ("feature_flag.context.id", "tenant-4711-eu-central"),
                ] {
                    span.attributes.push(wire::text(k, v));
                }
            }
            Self::Content => {
                let seed = span.trace_id.iter().fold(0u64, |a, b| a.rotate_left(8) ^ u64::from(*b));
                let own = seed ^ span.span_id.iter().fold(0u64, |a, b| a.rotate_left(7) ^ u64::from(*b));
                for a in &mut span.attributes {
                    let Some(Value::StringValue(text)) = a.value.as_mut().and_then(|v| v.value.as_mut())
                    else {
                        continue;
                    };
                    match a.key.as_str() {
                        // Instructions are the same in every call of a deployment.
                        "gen_ai.system_instructions" => {
                            *text = format!("[{{\"type\":\"text\",\"content\":\"{}\"}}]", prose(1, 6000));
                        }
                        // A history repeats what the task has seen; the newest part is new.
                        "gen_ai.input.messages" => {
                            let part = |seed, n| {
                                format!(
                                    "{{\"role\":\"user\",\"parts\":[{{\"type\":\"text\",\"content\":\"{}\"}}]}}",
                                    prose(seed, n)
                                )
                            };
                            if let Some(at) = text.rfind(']') {
                                let more = [
                                    part(seed, 8000),
                                    part(seed ^ 1, 6000),
                                    part(seed ^ 2, 5000),
                                    part(own, 1500),
                                ];
                                let comma = if text[..at].trim_end().ends_with('[') { "" } else { "," };
                                *text = format!("{}{comma}{}]", &text[..at], more.join(","));
                            }
                        }
                        "gen_ai.tool.call.result" => {
                            *text =
                                format!("{{\"found\":{},\"document\":\"{}\"}}", text.len(), prose(own, 6000));
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}
