//! The measures: a card each for those that are looked at first, and a table of all.

use super::super::summary::{figure, value};
use super::Part;
use super::markup::Html;
use crate::evaluate::Total;
use crate::measures::{Direction, Measure};

/// Shown first and large.
const FIRST: [&str; 8] = [
    "constraint_retention",
    "completeness",
    "redundant_tool_calls",
    "leaks",
    "task_rework_free_rate",
    "bounces",
    "context_tokens_after",
    "time_to_first_correct_action_ms",
];

/// Reasons for what is unknown that are listed with a measure.
const REASONS: usize = 3;

/// How a value stands to what it was: a class, and words that say the same.
fn trend(m: &Measure, now: Option<f64>, was: Option<f64>) -> (&'static str, String) {
    let (n, w) = match (now, was) {
        (Some(n), Some(w)) => (n, w),
        (None, Some(_)) => return ("soft", format!("unknown now, was {}", value(m, was))),
        (_, None) => return ("soft", "the baseline is unknown".to_owned()),
    };
    let was = value(m, was);
    if value(m, now) == was {
        return ("soft", format!("as before ({was})"));
    }
    let by = if m.unit == "share" {
        format!("{:.1} points", (n - w).abs() * 100.0)
    } else {
        figure((n - w).abs())
    };
    let up = n > w;
    let arrow = if up { '▲' } else { '▼' };
    match m.direction {
        Direction::Neutral => {
            ("soft", format!("{arrow} {} by {by} (was {was})", if up { "more" } else { "less" }))
        }
        d if (d == Direction::Up) == up => ("better", format!("{arrow} better by {by} (was {was})")),
        _ => ("worse", format!("{arrow} worse by {by} (was {was})")),
    }
}

/// The name in words; the unit says milliseconds.
fn title(m: &Measure) -> String {
    m.name.trim_end_matches("_ms").replace('_', " ")
}

fn good(d: Direction) -> &'static str {
    match d {
        Direction::Up => "more is better",
        Direction::Down => "less is better",
        Direction::Neutral => "",
    }
}

/// What the value was computed of.
fn of(t: &Total) -> String {
    match t.numerator {
        Some(n) if t.denominator > 0 => format!("{} / {}", figure(n), t.denominator),
        _ => "nothing known".to_owned(),
    }
}

/// The value for people, with the exact one beside it for machines.
fn put(h: &mut Html, t: &Total) {
    match t.value() {
        Some(v) => h.raw("<data value=\"").text(&v.to_string()).raw("\">").text(&value(t.measure, Some(v))),
        None => h.raw("<data class=\"unknown\" value=\"unknown\">unknown"),
    };
    h.raw("</data>");
}

fn before<'a>(baseline: Option<&'a [Total]>, m: &Measure) -> Option<&'a Total> {
    baseline?.iter().find(|t| t.measure.name == m.name)
}

/// The cards.
pub(super) fn headline(totals: &[Total], baseline: Option<&[Total]>) -> Part {
    let mut h = Html::default();
    if baseline.is_some() {
        h.raw("<p class=\"lead\">Each value with the difference to the baseline, which a dark line marks on its bar. Whether a \
               difference is more than chance is not tested here.</p>");
    }
    h.raw("<ul class=\"tiles\">");
    for t in FIRST.iter().filter_map(|name| totals.iter().find(|t| t.measure.name == *name)) {
        let m = t.measure;
        let was = before(baseline, m);
        h.raw("<li><h3>").text(&title(m)).raw("</h3><p class=\"about\">").raw(m.description);
        h.raw("</p><p class=\"big\">");
        put(&mut h, t);
        if m.unit != "share" && t.value().is_some() {
            h.raw(" <small>").raw(m.unit).raw("</small>");
        }
        h.raw("</p>");
        if let Some(v) = t.value().filter(|_| m.unit == "share") {
            h.bar(v, was.and_then(Total::value));
        }
        h.raw("<p class=\"of\">").text(&of(t));
        if t.unknown > 0 {
            h.raw("; ").int(t.unknown).raw(" unknown");
        }
        h.raw("</p><p class=\"of soft\">").raw(good(m.direction)).raw("</p>");
        if let Some(was) = was {
            let (class, words) = trend(m, t.value(), was.value());
            h.raw("<p class=\"of ").raw(class).raw("\">").text(&words).raw("</p>");
        }
        h.raw("</li>");
    }
    h.raw("</ul>");
    Part { id: "headline", title: "At a glance", body: h }
}

/// The table of all.
pub(super) fn all(totals: &[Total], baseline: Option<&[Total]>) -> Part {
    let mut h = Html::default();
    h.raw("<p class=\"lead\">Each value is a sum by what it was summed over. What is unknown is in neither, and is told apart with its reasons.</p>");
    h.frame("All measures")
        .raw("<table><thead><tr><th scope=\"col\">measure</th><th scope=\"col\" class=\"n\">value</th>");
    if baseline.is_some() {
        h.raw("<th scope=\"col\">against the baseline</th>");
    }
    h.raw("<th scope=\"col\" class=\"n\">sum / of</th><th scope=\"col\">good</th><th scope=\"col\" class=\"n\">unknown</th><th scope=\"col\">why unknown</th></tr></thead><tbody>");
    for t in totals {
        let m = t.measure;
        h.raw("<tr id=\"m-")
            .raw(m.name)
            .raw("\"><th scope=\"row\" class=\"name\"><code>")
            .raw(m.name)
            .raw("</code><small>");
        h.raw(m.description).raw("</small></th><td class=\"n\">");
        put(&mut h, t);
        if m.unit != "share" {
            h.raw("<small>").raw(m.unit).raw("</small>");
        }
        h.raw("</td>");
        if baseline.is_some() {
            let (class, words) = trend(m, t.value(), before(baseline, m).and_then(Total::value));
            h.raw("<td class=\"").raw(class).raw("\">").text(&words).raw("</td>");
        }
        h.raw("<td class=\"n\">")
            .text(&of(t))
            .raw("</td><td class=\"good\">")
            .raw(good(m.direction))
            .raw("</td><td class=\"n\">");
        h.int(t.unknown).raw("</td><td class=\"why\">");
        for (i, (why, n)) in t.reasons.iter().take(REASONS).enumerate() {
            h.raw(if i > 0 { "<br>" } else { "" }).text(&format!("{n}: {why}"));
        }
        if let Some(more) = t.reasons.len().checked_sub(REASONS).filter(|n| *n > 0) {
            h.raw("<br>").text(&format!("and {more} more reasons"));
        }
        h.raw("</td></tr>");
    }
    h.raw("</tbody></table></div>");
    Part { id: "measures", title: "All measures", body: h }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str, now: Option<f64>, was: Option<f64>) -> String {
        let (class, words) = Measure::by_name(name).map(|m| trend(m, now, was)).unwrap_or_default();
        format!("{class}: {words}")
    }

    #[test]
    fn a_trend_says_better_and_worse_by_the_measure() {
        assert_eq!(
            said("completeness", Some(0.75), Some(0.5)),
            "better: ▲ better by 25.0 points (was 50.0 %)"
        );
        assert_eq!(said("leaks", Some(1.5), Some(1.0)), "worse: ▲ worse by 0.50 (was 1)");
        assert_eq!(said("leaks", Some(0.0), Some(1.0)), "better: ▼ better by 1 (was 1)");
        assert_eq!(said("payload_tokens", Some(3.0), Some(5.0)), "soft: ▼ less by 2 (was 5)");
    }

    #[test]
    fn what_is_unknown_has_no_trend_and_what_reads_the_same_is_the_same() {
        assert_eq!(said("completeness", None, Some(0.5)), "soft: unknown now, was 50.0 %");
        assert_eq!(said("completeness", Some(0.5), None), "soft: the baseline is unknown");
        assert_eq!(said("completeness", None, None), "soft: the baseline is unknown");
        assert_eq!(said("completeness", Some(0.50001), Some(0.5)), "soft: as before (50.0 %)");
    }

    fn total(name: &str, numerator: f64, denominator: i64) -> Total {
        let measure = Measure::by_name(name).expect("a measure");
        Total { measure, numerator: Some(numerator), denominator, unknown: 0, reasons: Vec::new() }
    }

    #[test]
    fn with_a_baseline_every_measure_is_shown_beside_what_it_was() {
        let now = [total("completeness", 9.0, 12), total("leaks", 0.0, 0)];
        let was = [total("completeness", 6.0, 12)];
        let cards = headline(&now, Some(&was)).body;
        assert!(cards.as_str().contains("class=\"of better\">▲ better by 25.0 points (was 50.0 %)</p>"));
        // The line on the bar stands at what it was.
        assert!(cards.as_str().contains("class=\"was\" y1=\"0\" y2=\"100%\" x1=\"50.00%\" x2=\"50.00%\""));
        let table = all(&now, Some(&was)).body;
        assert!(table.as_str().contains("<td class=\"better\">▲ better by 25.0 points (was 50.0 %)</td>"));
        assert!(table.as_str().contains("<td class=\"soft\">the baseline is unknown</td>"));
        assert!(!all(&now, None).body.as_str().contains("baseline"));
    }

    #[test]
    fn every_card_shows_a_measure() {
        assert!(FIRST.iter().all(|name| Measure::by_name(name).is_some()));
    }
}
