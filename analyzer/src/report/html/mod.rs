//! The report as one page: everything is in it, it loads nothing and runs nothing. Folding is the browser's own. The numbers
//! are those of the other forms; lists are bounded and say where they were cut.

mod flow;
mod markup;
mod measures;
mod timeline;
mod worst;

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::document::Section;
use super::summary::{self, Overview};
use super::{rfc3339, text, violations};
use crate::evaluate::{Total, totals};
use crate::gates::Answer;
use crate::session::{Error, Result, Session};
use markup::Html;

const STYLE: &str = include_str!("style.css");

/// A part of the page, with its place among the links at the top.
struct Part {
    id: &'static str,
    title: &'static str,
    body: Html,
}

/// Writes the page. With the totals of a baseline, each measure is shown beside what it was; gates come before all else.
///
/// # Errors
/// The engine's, and where `out` cannot be written to.
pub async fn write(
    session: &Session,
    baseline: Option<&[Total]>,
    gates: Option<&[Answer]>,
    out: &mut impl Write,
) -> Result<()> {
    let totals = totals(session).await?;
    let overview = Overview::new(session).await?;
    let worst = worst::rows(session).await?;
    let mut parts: Vec<Part> =
        gates.map(|g| listed("gates", "Gates", &[super::gates::section(g)])).into_iter().collect();
    parts.push(measures::headline(&totals, baseline));
    parts.extend(flow::between(session).await?);
    parts.extend(flow::survival(session).await?);
    parts.extend(flow::context(session).await?);
    parts.extend(flow::tools(session, &totals).await?);
    let broken = violations::sections(session).await?;
    parts.extend((!broken.is_empty()).then(|| listed("rules", "Broken rules", &broken)));
    let tasks = timeline::tasks(session, &worst).await?;
    parts.extend(worst::part(session, &worst, &tasks).await?);
    parts.extend(timeline::part(session, &tasks, overview.tasks).await?);
    parts.push(measures::all(&totals, baseline));
    parts.extend(findings(session).await?);
    out.write_all(page(&overview, &parts).as_bytes())
        .map_err(|source| Error::Io { path: "the report".into(), source })
}

/// A moment, to the second.
fn moment(ns: i64) -> String {
    rfc3339(ns).get(..19).unwrap_or_default().replace('T', " ")
}

fn page(o: &Overview, parts: &[Part]) -> String {
    let mut h = Html::default();
    h.raw("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">")
        // Nothing may be loaded, run or sent, whatever a name holds; of styles this page's own alone counts.
        .raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-")
        .text(&STANDARD.encode(Sha256::digest(STYLE)))
        .raw("'; base-uri 'none'; form-action 'none'\"><meta name=\"referrer\" content=\"no-referrer\">")
        .raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")
        .raw("<title>Handoff report</title><style>")
        .raw(STYLE)
        .raw("</style></head><body>")
        // What drawings refer to.
        .raw("<svg class=\"defs\" aria-hidden=\"true\"><defs>")
        .raw("<pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><rect width=\"6\" height=\"6\"/><path d=\"M-1 7L7 -1M-1 1L1 -1M5 7L7 5\"/></pattern>")
        .raw("<pattern id=\"dots\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\"><rect width=\"5\" height=\"5\"/><circle cx=\"2.5\" cy=\"2.5\" r=\"1.1\"/></pattern>")
        .raw("<marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8Z\"/></marker>")
        .raw("</defs></svg>")
        .raw("<header><h1>Handoff report</h1>");
    if let Some(asked) = &o.asked {
        h.raw("<p class=\"soft\">").text(asked).raw("</p>");
    }
    if let Some((from, to)) = o.window {
        h.raw("<p class=\"soft\">").text(&format!("{} to {} UTC", moment(from), moment(to))).raw("</p>");
    }
    facts(&mut h, o);
    h.raw("<nav aria-label=\"Parts of this page\"><ul>");
    for p in parts {
        h.raw("<li><a href=\"#").raw(p.id).raw("\">").raw(p.title).raw("</a></li>");
    }
    h.raw("</ul></nav></header><main>");
    for p in parts {
        h.raw("\n<section aria-labelledby=\"").raw(p.id).raw("\"><h2 id=\"").raw(p.id).raw("\">");
        h.raw(p.title).raw("</h2>").append(&p.body).raw("</section>");
    }
    h.raw("</main>\n<footer><p>A value that the recording does not show is unknown and never counted as 0. A rate is the sum of what was \
           counted by the sum of what it was counted in, over what is known; tasks of which only a part is recorded stay out. \
           This page is complete in itself: it loads nothing, runs nothing and sends nothing.</p><p>Baton ")
        .raw(env!("CARGO_PKG_VERSION"))
        .raw("</p></footer></body></html>\n");
    h.into_string()
}

fn facts(h: &mut Html, o: &Overview) {
    let fact = |h: &mut Html, what: &'static str, n: i64, more: &str| {
        h.raw("<div><dt>").raw(what).raw("</dt><dd>").int(n);
        if !more.is_empty() {
            h.raw("<small>").text(more).raw("</small>");
        }
        h.raw("</dd></div>");
    };
    h.raw("<dl class=\"facts\">");
    let (done, known) = o.completed;
    fact(
        h,
        "Tasks",
        o.tasks,
        &format!("{done} of {known} known completed; {} partial, kept out of the rates", o.partial),
    );
    fact(h, "Handoffs", o.handoffs, &o.outcomes);
    if o.handoffs > 0 {
        h.raw("<div><dt>Seen by</dt><dd><small>").text(&o.detections).raw("</small></dd></div>");
        h.raw("<div><dt>Confidence</dt><dd><small>").text(&o.confidences).raw("</small></dd></div>");
    }
    fact(h, "Model calls", o.model_calls, "");
    fact(h, "Tool calls", o.tool_calls, "");
    h.raw("</dl>");
}

async fn findings(session: &Session) -> Result<Option<Part>> {
    let Some(table) = summary::findings(session).await?.and_then(|s| s.table) else { return Ok(None) };
    let mut body = Html::default();
    body.raw("<p class=\"lead\">What stands out, by kind, with one example of each.</p>")
        .table("Findings", &table);
    Ok(Some(Part { id: "findings", title: "Findings", body }))
}

/// Sections of the other forms as one part.
fn listed(id: &'static str, title: &'static str, sections: &[Section]) -> Part {
    let mut body = Html::default();
    for s in sections {
        if sections.len() > 1 {
            body.raw("<h3>").text(&s.title).raw("</h3>");
        }
        for line in &s.lines {
            body.raw("<p class=\"lead\">").text(line).raw("</p>");
        }
        if let Some(table) = &s.table {
            body.table(title, table);
        }
    }
    Part { id, title, body }
}

/// A text for a heading or a summary line.
fn brief(t: &str) -> String {
    text::short(t, 80)
}
