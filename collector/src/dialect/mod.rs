//! Dialects: what one span of one instrumentation says, in this project's words.
//!
//! A dialect sees a single span and never another one. [`ALL`] lists them in the order in which they are
//! asked; the last one takes what is left. Own attributes ([`baton`]) are read on top of every dialect.

pub mod agents_v2;
pub mod baton;
pub mod claude_code;
mod common;
mod flatten;
pub mod genai;
mod langchain;
pub mod langsmith;
pub mod logfire;
pub mod openinference;
pub mod openllmetry;

use baton_record::span::{Control, Record, Span, Status};
use opentelemetry_proto::tonic::logs::v1::LogRecord;

use crate::raw::{self, Any, Attrs, Raw};
use crate::reading::Reader;

/// How one instrumentation is read.
pub struct Dialect {
    /// The name stored with each row.
    pub name: &'static str,
    /// Whose spans they are.
    pub about: &'static str,
    /// What they show of a handoff.
    pub shows: &'static str,
    /// What they cannot show.
    pub hides: &'static str,
    /// Whether a span is of this dialect.
    pub matches: fn(&Raw<'_>) -> bool,
    /// Reads the span into a row whose ids, times, names and status are filled.
    pub read: fn(&Reader, &Raw<'_>, &mut Span),
}

/// Every dialect, in the order in which they are asked.
pub static ALL: [&Dialect; 8] = [
    &baton::DIALECT,
    &claude_code::DIALECT,
    &logfire::DIALECT,
    &langsmith::DIALECT,
    &openinference::DIALECT,
    &agents_v2::DIALECT,
    &openllmetry::DIALECT,
    &genai::DIALECT,
];

/// Times beyond this (the year 2200) are no times.
const LAST_TIME: u64 = 7_258_118_400_000_000_000;

fn time(nanos: u64) -> Option<i64> {
    (nanos != 0 && nanos < LAST_TIME).then(|| nanos.cast_signed())
}

/// The dialects as Markdown, for the README.
pub fn markdown() -> String {
    let mut out =
        String::from("| dialect | what it is | what it shows | what it cannot show |\n|---|---|---|---|\n");
    for d in ALL {
        out.push_str(&format!("| `{}` | {} | {} | {} |\n", d.name, d.about, d.shows, d.hides));
    }
    out
}

fn id<const N: usize>(bytes: &[u8], what: &str) -> Result<String, String> {
    if bytes.len() != N {
        return Err(format!("{what} has {} bytes and not {N}", bytes.len()));
    }
    if bytes.iter().all(|b| *b == 0) {
        return Err(format!("{what} is all zero"));
    }
    Ok(baton_record::canonical::hex(bytes))
}

/// Reads one span.
///
/// # Errors
/// Why the span cannot be kept: an id of the wrong length or all zero.
pub fn read_span(
    reader: &Reader,
    resource: &Attrs<'_>,
    scope: &str,
    span: &raw::Span<'_>,
) -> Result<(Span, u32), String> {
    let raw = Raw { span, attrs: &span.attrs, resource, scope };
    let parent_id = match span.parent_span_id {
        [] => None,
        p if p.iter().all(|b| *b == 0) && p.len() == 8 => None,
        p => Some(id::<8>(p, "parent span id")?),
    };
    let mut row = Span {
        trace_id: id::<16>(span.trace_id, "trace id")?,
        span_id: id::<8>(span.span_id, "span id")?,
        parent_id,
        // Bit 8: whether the parent is remote is known; bit 9: it is.
        remote_parent: span.flags & 0x300 == 0x300,
        record: Record::Span,
        start: time(span.start_time_unix_nano),
        end: time(span.end_time_unix_nano),
        service: resource.text("service.name").map(str::to_owned),
        scope: scope.to_owned(),
        name: cut(span.name, 1024),
        otel_kind: span.kind,
        dropped: i32::try_from(span.dropped_attributes_count).unwrap_or(i32::MAX),
        ..Span::default()
    };
    status(&raw, &mut row);
    let dialect: &Dialect = ALL.into_iter().find(|d| (d.matches)(&raw)).unwrap_or(&genai::DIALECT);
    row.dialect = dialect.name.to_owned();
    (dialect.read)(reader, &raw, &mut row);
    baton::overlay(reader, &raw, &mut row);
    common::events(&raw, &mut row);
    plausible(&mut row);
    reader.mask_labels(&mut row);
    row.view.cut |= row.dropped > 0
        && matches!(row.role, baton_record::span::Role::Inference | baton_record::span::Role::Tool);
    Ok((row, raw.attrs.repeated))
}

/// Reads one log record; `None` where it says nothing about a span.
///
/// # Errors
/// Why the record cannot be kept.
pub fn read_log(
    reader: &Reader,
    resource: &Attrs<'_>,
    scope: &str,
    log: &LogRecord,
) -> Result<Option<Span>, String> {
    if log.trace_id.is_empty()
        || log.span_id.is_empty()
        || log.trace_id.iter().all(|b| *b == 0)
        || log.span_id.iter().all(|b| *b == 0)
    {
        return Ok(None);
    }
    let attrs = Attrs::of(&log.attributes);
    let body = log.body.as_ref().and_then(|b| b.value.as_ref()).map(Any::of);
    let body = body.as_ref();
    let name = match body {
        _ if !log.event_name.is_empty() => log.event_name.as_str(),
        _ if attrs.has("event.name") => attrs.str("event.name").unwrap_or_default(),
        Some(Any::StringValue(s)) => s,
        _ => "",
    };
    let mut row = Span {
        trace_id: id::<16>(&log.trace_id, "trace id")?,
        span_id: id::<8>(&log.span_id, "span id")?,
        record: Record::Log,
        // The event's own time is often 0; when it was seen still orders the records of one span.
        start: time(log.time_unix_nano).or_else(|| time(log.observed_time_unix_nano)),
        service: resource.text("service.name").map(str::to_owned),
        scope: scope.to_owned(),
        name: cut(name, 1024),
        dropped: i32::try_from(log.dropped_attributes_count).unwrap_or(i32::MAX),
        ..Span::default()
    };
    let said = if scope.starts_with("com.anthropic.claude_code") {
        row.dialect = claude_code::DIALECT.name.to_owned();
        claude_code::read_log(reader, &attrs, body, &mut row)
    } else {
        row.dialect = genai::DIALECT.name.to_owned();
        genai::read_log(reader, &attrs, body, name, &mut row)
    };
    plausible(&mut row);
    reader.mask_labels(&mut row);
    Ok(said.then_some(row))
}

/// Token counts no model call can have are not known, so that no sum of them can overflow.
fn plausible(row: &mut Span) {
    const MOST: i64 = 1 << 32;
    for tokens in [&mut row.input_tokens, &mut row.output_tokens] {
        *tokens = tokens.filter(|n| (0..=MOST).contains(n));
    }
}

/// A text of at most `max` characters.
fn cut(s: &str, max: usize) -> String {
    match s.char_indices().nth(max) {
        Some((i, _)) => s[..i].to_owned(),
        None => s.to_owned(),
    }
}

/// Status, error class and control flow (METRICS.md section 1, outcome: `ParentCommand` is a
/// transfer and `GraphInterrupt` a pause, on any span they show on).
fn status(raw: &Raw<'_>, row: &mut Span) {
    let code = raw.span.status_code;
    let message = raw.status_message();
    let mut class = raw.attrs.text("error.type").map(str::to_owned);
    let mut control = control_of(class.as_deref().unwrap_or_default(), message);
    for (_, e) in raw.events("exception") {
        let kind = e.str("exception.type").unwrap_or_default();
        control = control.or(control_of(kind, e.str("exception.message").unwrap_or_default()));
        if class.is_none() && !kind.is_empty() {
            class = Some(kind.to_owned());
        }
    }
    match (control, code) {
        (Some(c), _) => row.control = c,
        (None, 2) => {
            row.status = Status::Error;
            row.error = Some(cut(class.as_deref().unwrap_or("error"), 256));
        }
        (None, 1) => row.status = Status::Ok,
        _ => {}
    }
}

fn control_of(class: &str, message: &str) -> Option<Control> {
    let class = class.rsplit('.').next().unwrap_or(class);
    let starts = |names: &[&str]| {
        names
            .iter()
            .any(|n| class == *n || message.strip_prefix(n).is_some_and(|r| r.starts_with(['(', ':'])))
    };
    if starts(&["ParentCommand"])
        || message.starts_with("Command(graph=")
        || message.contains("langgraph.errors.ParentCommand")
    {
        return Some(Control::Transfer);
    }
    if starts(&["GraphInterrupt", "NodeInterrupt", "GraphBubbleUp"])
        || message.starts_with("(Interrupt(value=")
        || message.contains("langgraph.errors.GraphInterrupt")
    {
        return Some(Control::Pause);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dialect_says_what_it_shows_and_what_it_cannot() {
        let mut names = std::collections::HashSet::new();
        for d in ALL {
            assert!(names.insert(d.name), "{} stands twice", d.name);
            assert!(d.about.len() > 20 && d.shows.len() > 20 && d.hides.len() > 20, "{}", d.name);
        }
    }

    #[test]
    fn control_flow_is_told_from_errors() {
        assert_eq!(control_of("langgraph.errors.ParentCommand", ""), Some(Control::Transfer));
        assert_eq!(control_of("", "ParentCommand: Command(graph='__parent__')"), Some(Control::Transfer));
        assert_eq!(control_of("Exception", "GraphInterrupt((Interrupt(value=1),))"), Some(Control::Pause));
        assert_eq!(control_of("RuntimeError", "boom"), None);
        assert_eq!(control_of("", "the ParentCommand was not sent"), None);
    }

    #[test]
    fn times_that_are_no_times_are_unknown() {
        assert_eq!(time(0), None);
        assert_eq!(time(u64::MAX), None);
        assert_eq!(time(i64::MAX as u64), None);
        assert_eq!(time(1_700_000_000_000_000_000), Some(1_700_000_000_000_000_000));
    }
}
