//! From recorded files to rows in a store.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;

use crate::dialect;
use crate::otlp::{Inputs, Problem, Signal, read_input};
use crate::raw::{Attrs, Placed, Traces};
use crate::reading::Reader;
use crate::store::{Error, Store};
use baton_record::span::Span;

/// What an import did.
#[derive(Debug, Default, Clone)]
pub struct Summary {
    /// Files read.
    pub files: usize,
    /// Spans kept.
    pub spans: u64,
    /// Log records kept (those that say something about a span).
    pub logs: u64,
    /// Log records that say nothing about a span.
    pub logs_skipped: u64,
    /// Requests with metrics, which are not read.
    pub metrics: u64,
    /// Attributes that stood twice on a span; the last one counts.
    pub repeated_attributes: u64,
    /// What could not be read or kept.
    pub problems: Vec<Problem>,
}

/// How far an import is.
#[derive(Debug, Clone, Copy)]
pub struct Position<'a> {
    /// The file being read.
    pub file: &'a str,
    /// (Packed) bytes read of all files.
    pub bytes: u64,
}

/// Rows of one traces request; `reject` gets what cannot be kept, with its place in the request.
pub fn rows_of_traces(
    reader: &Reader,
    req: &ExportTraceServiceRequest,
    summary: &mut Summary,
    reject: &mut dyn FnMut(String, String),
    sink: &mut dyn FnMut(Span),
) {
    rows_of_spans(reader, Traces::from(req).spans(), summary, reject, sink);
}

/// The same of spans that may stand in a body still.
pub fn rows_of_spans<'t, 'a: 't>(
    reader: &Reader,
    spans: impl Iterator<Item = Placed<'t, 'a>>,
    summary: &mut Summary,
    reject: &mut dyn FnMut(String, String),
    sink: &mut dyn FnMut(Span),
) {
    for Placed { place: [i, j, k], resource, scope, span } in spans {
        match dialect::read_span(reader, resource, scope, span) {
            Ok((row, repeated)) => {
                summary.spans += 1;
                summary.repeated_attributes += u64::from(repeated);
                sink(row);
            }
            Err(reason) => reject(format!("resourceSpans[{i}].scopeSpans[{j}].spans[{k}]"), reason),
        }
    }
}

/// The same for a logs request.
pub fn rows_of_logs(
    reader: &Reader,
    req: &ExportLogsServiceRequest,
    summary: &mut Summary,
    reject: &mut dyn FnMut(String, String),
    sink: &mut dyn FnMut(Span),
) {
    for (i, rl) in req.resource_logs.iter().enumerate() {
        let resource = Attrs::of(rl.resource.as_ref().map_or(&[][..], |r| &r.attributes));
        for (j, sl) in rl.scope_logs.iter().enumerate() {
            let scope = sl.scope.as_ref().map_or("", |s| s.name.as_str());
            for (k, log) in sl.log_records.iter().enumerate() {
                match dialect::read_log(reader, &resource, scope, log) {
                    Ok(Some(row)) => {
                        summary.logs += 1;
                        sink(row);
                    }
                    Ok(None) => summary.logs_skipped += 1,
                    Err(reason) => {
                        reject(format!("resourceLogs[{i}].scopeLogs[{j}].logRecords[{k}]"), reason)
                    }
                }
            }
        }
    }
}

/// Reads all inputs into the store and writes what is held at the end. With `each_file` the rows of every input become
/// files of their own, so that an input read again, with whatever others, makes the same files.
///
/// # Errors
/// Where the store cannot be written. What cannot be read stands in the summary.
pub fn import(
    inputs: &Inputs,
    reader: &Reader,
    store: &mut Store,
    each_file: bool,
    progress: &mut dyn FnMut(Position<'_>),
) -> Result<Summary, Error> {
    let mut summary = Summary { problems: inputs.problems.clone(), ..Summary::default() };
    let mut before = 0u64;
    for input in &inputs.files {
        let name = input.path.display().to_string();
        let mut problems = Vec::new();
        let mut rejected: Vec<Problem> = Vec::new();
        let mut message = 0u64;
        let mut bytes = 0u64;
        let mut sink = |signal: Signal| {
            let mut failed = None;
            let mut push = |row: Span| {
                if failed.is_none() {
                    failed = store.push(row).err();
                }
            };
            let mut reject = |path: String, reason: String| {
                rejected.push(Problem {
                    file: name.clone(),
                    position: format!("message {message}, {path}"),
                    reason,
                })
            };
            match &signal {
                Signal::Traces(req) => rows_of_traces(reader, req, &mut summary, &mut reject, &mut push),
                Signal::Logs(req) => rows_of_logs(reader, req, &mut summary, &mut reject, &mut push),
                Signal::Metrics => summary.metrics += 1,
            }
            message += 1;
            failed.map_or(Ok(()), Err)
        };
        read_input(
            input,
            &mut |n| {
                bytes = n;
                progress(Position { file: &name, bytes: before + n });
            },
            &mut sink,
            &mut problems,
        )?;
        if each_file {
            store.flush()?;
        }
        before += bytes;
        summary.files += 1;
        summary.problems.append(&mut problems);
        summary.problems.append(&mut rejected);
    }
    store.flush()?;
    Ok(summary)
}
