//! The page on `/`: what is running, and the transfers that spans spoke of last.

use std::fmt::Write as _;

use super::metrics::Metrics;

/// What the page says of the collector.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// The store.
    pub store: String,
    /// Address of OTLP over HTTP.
    pub http: String,
    /// Address of OTLP over gRPC.
    pub grpc: String,
}

/// The page. Everything that came with a span is text.
pub fn html(about: &About, metrics: &Metrics) -> String {
    let mut rows = String::new();
    for s in metrics.seen() {
        let time = s.time.map(utc).unwrap_or_default();
        let service = s.service.as_deref().unwrap_or("");
        let from = s.from.as_deref().unwrap_or("not said");
        let to = if s.to.is_empty() { "not said".to_owned() } else { s.to.join(", ") };
        let cells = [time.as_str(), service, from, to.as_str(), s.trace.as_str()];
        rows.push_str("<tr>");
        cells.iter().for_each(|c| {
            let _ = write!(rows, "<td>{}</td>", escape(c));
        });
        rows.push_str("</tr>\n");
    }
    let table = if rows.is_empty() {
        "<p>No span has spoken of a handoff yet.</p>".to_owned()
    } else {
        format!(
            "<table><thead><tr><th>time (UTC)</th><th>service</th><th>from</th><th>to</th><th>trace</th></tr></thead>\n<tbody>\n{rows}</tbody></table>"
        )
    };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Baton collector</title><style>\
         body{{font-family:sans-serif;margin:2em;max-width:70em}}table{{border-collapse:collapse}}\
         td,th{{text-align:left;padding:.2em 1em .2em 0;border-bottom:1px solid #ccc;overflow-wrap:anywhere}}\
         :root{{color-scheme:light dark}}</style></head><body>\n\
         <h1>Baton collector {version}</h1>\n\
         <p>OTLP/HTTP on {http}, OTLP/gRPC on {grpc}. Store: {store}</p>\n\
         <p>{stored} rows stored since the start, {waiting} in the journal. <a href=\"metrics\">Metrics</a></p>\n\
         <h2>Last handoffs, as spans tell them</h2>\n{table}\n</body></html>\n",
        version = env!("CARGO_PKG_VERSION"),
        http = escape(&about.http),
        grpc = escape(&about.grpc),
        store = escape(&about.store),
        stored = metrics.stored(),
        waiting = metrics.waiting(),
    )
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().take(200) {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Shown, so that a name cannot hide or reverse what stands beside it.
            c if c.is_control()
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
            {
                let _ = write!(out, "\\u{{{:x}}}", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}

fn utc(ns: i64) -> String {
    let secs = ns.div_euclid(1_000_000_000);
    let (y, m, d) = crate::store::civil(secs.div_euclid(86_400));
    let s = secs.rem_euclid(86_400);
    format!("{y:04}-{m:02}-{d:02} {:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_record::span::{Handoff, Span};

    #[test]
    fn names_from_spans_are_text() {
        let m = Metrics::new();
        let handoff = Handoff {
            from: Some("<script>alert(1)</script>".to_owned()),
            to: vec!["a&b \u{202e}x".to_owned()],
            ..Handoff::default()
        };
        m.rows(&[Span { handoff: Some(handoff), start: Some(0), ..Span::default() }]);
        let page = html(&About::default(), &m);
        assert!(page.contains("&lt;script&gt;alert(1)") && !page.contains("<script"), "{page}");
        assert!(page.contains("a&amp;b \\u{202e}x") && page.contains("1970-01-01 00:00:00"), "{page}");
    }
}
