//! What goes from agent to agent: transfers, constraints, context, repeated calls.

use super::super::document::Table;
use super::super::summary::{PAIR, Pair, SHOWN, figure, hops, name, pair_rows, plural, share};
use super::super::text;
use super::Part;
use super::markup::Html;
use crate::evaluate::{Row, Rows, Total};
use crate::session::{Result, Session};

/// Agents on each side of the matrix.
const SIDE: usize = 8;
/// Pairs that are asked for.
const PAIRS: usize = 200;

/// The senders and receivers of the matrix: those of the pairs with the most transfers, as long as there is room. Also how many
/// pairs did not fit.
fn sides(pairs: &[Pair]) -> (Vec<&str>, Vec<&str>, usize) {
    let (mut from, mut to, mut cut) = (Vec::new(), Vec::new(), 0);
    for p in pairs {
        let fits = |side: &[&str], name: &str| side.contains(&name) || side.len() < SIDE;
        if !fits(&from, &p.from) || !fits(&to, &p.to) {
            cut += 1;
            continue;
        }
        for (side, name) in [(&mut from, &p.from), (&mut to, &p.to)] {
            if !side.contains(&name.as_str()) {
                side.push(name.as_str());
            }
        }
    }
    (from, to, cut)
}

/// A measure of [`PAIR`] as a sum by what it was summed over.
fn of(p: &Pair, measure: &str) -> Option<(i64, i64)> {
    let place = PAIR.iter().position(|(n, _)| *n == measure)?;
    p.sums.get(place).copied().flatten()
}

fn cell(h: &mut Html, p: &Pair) {
    let kept = of(p, "constraint_retention");
    let repeats = of(p, "redundant_tool_calls");
    let lost = kept.is_some_and(|(n, d)| n < d);
    h.raw(if lost { "<td class=\"lost\"><b>" } else { "<td><b>" }).int(p.handoffs).raw("</b>");
    for (what, known) in [("kept", kept), ("repeats", repeats)] {
        h.raw("<small>").raw(what);
        match known {
            Some((n, d)) => h.text(&format!(" {n} / {d}")),
            None => h.raw(" unknown"),
        };
        h.raw("</small>");
    }
    h.raw("</td>");
}

/// Who handed over to whom: the matrix, and the pairs with more of their measures.
pub(super) async fn between(session: &Session) -> Result<Option<Part>> {
    let pairs = pair_rows(session, PAIRS + 1).await?;
    if pairs.is_empty() {
        return Ok(None);
    }
    let (from, to, cut) = sides(&pairs);
    let mut h = Html::default();
    h.raw("<p class=\"lead\">Accepted transfers, sender by row, receiver by column: their number, how many of the constraints in force \
           the receivers got, and how many of the receivers' calls repeat what was done before. A stripe on the left: a constraint was lost.</p>");
    h.frame("Matrix of agents").raw("<table class=\"matrix\"><thead><tr><th scope=\"col\">from \\ to</th>");
    for t in &to {
        h.raw("<th scope=\"col\">").name(t).raw("</th>");
    }
    h.raw("</tr></thead><tbody>");
    for f in &from {
        h.raw("<tr><th scope=\"row\">").name(f).raw("</th>");
        for t in &to {
            match pairs.iter().find(|p| p.from == *f && p.to == *t) {
                Some(p) => cell(&mut h, p),
                None => _ = h.raw("<td class=\"none\">–</td>"),
            }
        }
        h.raw("</tr>");
    }
    h.raw("</tbody></table></div>");
    if pairs.len() > PAIRS {
        h.raw("<p class=\"note\">Cut: only agents of the pairs with the most transfers are shown.</p>");
    } else if cut > 0 {
        let agents = format!(
            "Cut: the matrix has room for {SIDE} agents on each side; not in it: {}.",
            plural(cut as i64, "pair")
        );
        h.raw("<p class=\"note\">").text(&agents).raw("</p>");
    }
    let mut head = vec!["from → to", ">handoffs"];
    head.extend(PAIR.iter().map(|(_, h)| *h));
    let rows = pairs
        .iter()
        .take(SHOWN)
        .map(|p| {
            let ends = format!("{} → {}", text::short(&p.from, 40), text::short(&p.to, 40));
            let mut row = vec![ends, p.handoffs.to_string()];
            row.extend((0..PAIR.len()).map(|i| p.shown(i)));
            row
        })
        .collect();
    h.table("Measures of pairs of agents", &Table { head, rows });
    if pairs.len() > SHOWN {
        h.raw("<p class=\"note\">Cut: the ")
            .text(&SHOWN.to_string())
            .raw(" pairs with the most transfers.</p>");
    }
    Ok(Some(Part { id: "between", title: "Between agents", body: h }))
}

/// How the first transfer's constraints survive, hop by hop.
pub(super) async fn survival(session: &Session) -> Result<Option<Part>> {
    let hops = hops(session).await?;
    if hops.is_empty() {
        return Ok(None);
    }
    let mut h = Html::default();
    h.raw("<p class=\"lead\">Of the hard constraints known at a task's first transfer: how many the receiver still got at it (hop 0) and at \
           each later one. Tasks have different numbers of hops, so each line has its own total.</p>");
    h.frame("Survival of constraints by hop").raw(
        "<table><thead><tr><th scope=\"col\" class=\"n\">hop</th><th scope=\"col\">still there</th><th scope=\"col\" class=\"n\">share</th>\
         <th scope=\"col\" class=\"n\">got / known</th></tr></thead><tbody>",
    );
    for (hop, n, d) in &hops {
        let rate = (*d > 0).then(|| *n as f64 / *d as f64);
        h.raw("<tr><th scope=\"row\" class=\"n\">").int(*hop).raw("</th><td class=\"chart\">");
        if let Some(r) = rate {
            h.bar(r, None);
        }
        h.raw("</td><td class=\"n\">").text(&share(rate)).raw("</td><td class=\"n\">");
        h.text(&format!("{n} / {d}")).raw("</td></tr>");
    }
    h.raw("</tbody></table></div>");
    if hops.len() == SHOWN {
        h.raw("<p class=\"note\">Later hops, where there are any, are not shown.</p>");
    }
    Ok(Some(Part { id: "survival", title: "Constraints by hop", body: h }))
}

/// What the sender held and what the receiver saw, by pair of agents.
pub(super) async fn context(session: &Session) -> Result<Option<Part>> {
    let sql = format!(
        "SELECT from_agent, to_agent, COUNT(*) AS n, SUM(known) AS known, SUM(known * tokens_before) AS before, SUM(known * tokens_after) AS after, \
         SUM(known * items_before) AS items_before, SUM(known * items_after) AS items_after FROM ( \
         SELECT *, CASE WHEN before_unknown IS NULL AND after_unknown IS NULL AND tokens_before IS NOT NULL AND tokens_after IS NOT NULL THEN 1 ELSE 0 END AS known \
         FROM handoffs WHERE rated) h GROUP BY from_agent, to_agent ORDER BY n DESC, from_agent, to_agent LIMIT {}",
        SHOWN + 1
    );
    let rows = Rows::new(&session.query(&sql).await?)?;
    let rows: Vec<Row<'_>> = rows.all().collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let mean = |r: &Row<'_>, column: &str| {
        let known = r.int("known").filter(|k| *k > 0)?;
        r.int(column).map(|sum| sum as f64 / known as f64)
    };
    let most = rows.iter().flat_map(|r| [mean(r, "before"), mean(r, "after")]).flatten().fold(1.0, f64::max);
    let mut h = Html::default();
    h.raw("<p class=\"lead\">Tokens and items of a transfer, on average over the rated transfers for which both sides are known: what the sender's \
           context held, and what the receiver saw first. Less is better as long as constraints are kept.</p>");
    h.raw("<ul class=\"key\"><li><svg aria-hidden=\"true\"><rect class=\"hollow\" width=\"100%\" height=\"100%\"/></svg>before: the sender's context</li>\
           <li><svg aria-hidden=\"true\"><rect class=\"fill\" width=\"100%\" height=\"100%\"/></svg>after: the receiver's view</li></ul>");
    h.frame("Context before and after").raw(
        "<table><thead><tr><th scope=\"col\">from → to</th><th scope=\"col\">tokens</th><th scope=\"col\" class=\"n\">tokens before</th><th scope=\"col\" class=\"n\">tokens after</th>\
         <th scope=\"col\" class=\"n\">items before</th><th scope=\"col\" class=\"n\">items after</th><th scope=\"col\" class=\"n\">known of</th></tr></thead><tbody>",
    );
    for r in rows.iter().take(SHOWN) {
        h.raw("<tr><th scope=\"row\" class=\"name\">")
            .ends(name(r, "from_agent"), name(r, "to_agent"))
            .raw("</th><td class=\"chart\">");
        for (column, class) in [("before", "hollow"), ("after", "fill")] {
            if let Some(v) = mean(r, column) {
                h.raw("<svg class=\"bar\" aria-hidden=\"true\"><rect class=\"")
                    .raw(class)
                    .raw("\" height=\"100%\" width=\"")
                    .part(v / most)
                    .raw("\"/></svg>");
            }
        }
        h.raw("</td>");
        for column in ["before", "after", "items_before", "items_after"] {
            h.raw("<td class=\"n\">")
                .text(&mean(r, column).map_or("unknown".to_owned(), figure))
                .raw("</td>");
        }
        let (known, n) = (r.int("known").unwrap_or(0), r.int("n").unwrap_or(0));
        h.raw("<td class=\"n\">").text(&format!("{known} / {n}")).raw("</td></tr>");
    }
    h.raw("</tbody></table></div>");
    if rows.len() > SHOWN {
        h.raw("<p class=\"note\">Cut: the ")
            .text(&SHOWN.to_string())
            .raw(" pairs with the most transfers.</p>");
    }
    Ok(Some(Part { id: "context", title: "Context before and after", body: h }))
}

/// The kinds of repeats: the measure, the column, how it is drawn and what it is called.
const REPEATS: [(&str, &str, &str, &str); 3] = [
    ("redundant_tool_calls", "redundant", "hatched", "redundant: done before the transfer, with a result"),
    ("known_failure_retries", "known_failure", "hollow", "retry: had failed before the transfer"),
    ("self_repeats", "own", "dotted", "own repeat: the receiver's second identical call"),
];

/// What receivers' calls repeat, by tool. Its sums are those of the measures.
pub(super) async fn tools(session: &Session, totals: &[Total]) -> Result<Option<Part>> {
    let sql = format!(
        "SELECT c.tool, COUNT(*) AS calls, SUM(CASE WHEN c.repeat_kind = 'redundant' THEN 1 ELSE 0 END) AS redundant, \
         SUM(CASE WHEN c.repeat_kind = 'known_failure' THEN 1 ELSE 0 END) AS known_failure, SUM(CASE WHEN c.repeat_kind = 'self' THEN 1 ELSE 0 END) AS own \
         FROM tool_calls c JOIN handoffs h ON h.handoff_id = c.handoff_id WHERE h.rated AND h.repeats_unknown IS NULL GROUP BY c.tool \
         ORDER BY redundant + known_failure DESC, calls DESC, tool LIMIT {}",
        SHOWN + 1
    );
    let rows = Rows::new(&session.query(&sql).await?)?;
    let rows: Vec<Row<'_>> = rows.all().collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let mut h = Html::default();
    h.raw("<p class=\"lead\">Of the calls that receivers made after a transfer: those that repeat an earlier identical call. Each bar is all calls of the tool.</p><ul class=\"key\">");
    for (_, _, class, what) in REPEATS {
        h.raw("<li><svg aria-hidden=\"true\"><rect class=\"")
            .raw(class)
            .raw("\" width=\"100%\" height=\"100%\"/></svg>")
            .raw(what)
            .raw("</li>");
    }
    h.raw("<li><svg aria-hidden=\"true\"><rect class=\"track\" width=\"100%\" height=\"100%\"/></svg>no repeat</li></ul>");
    h.frame("Repeated calls by tool").raw(
        "<table><thead><tr><th scope=\"col\">tool</th><th scope=\"col\">share</th><th scope=\"col\" class=\"n\">redundant</th><th scope=\"col\" class=\"n\">retries</th>\
         <th scope=\"col\" class=\"n\">own repeats</th><th scope=\"col\" class=\"n\">calls</th></tr></thead><tbody>",
    );
    for r in rows.iter().take(SHOWN) {
        let calls = r.int("calls").unwrap_or(0);
        h.raw("<tr><th scope=\"row\" class=\"name\">").name(name(r, "tool")).raw("</th><td class=\"chart\"><svg class=\"bar\" aria-hidden=\"true\"><rect class=\"track\" width=\"100%\" height=\"100%\"/>");
        let mut x = 0;
        for (_, column, class, _) in REPEATS {
            let n = r.int(column).unwrap_or(0);
            if n > 0 {
                h.raw("<rect class=\"")
                    .raw(class)
                    .raw("\" height=\"100%\" x=\"")
                    .part(x as f64 / calls as f64);
                h.raw("\" width=\"").part(n as f64 / calls as f64).raw("\"/>");
            }
            x += n;
        }
        h.raw("</svg></td>");
        for column in REPEATS.map(|(_, c, ..)| c).into_iter().chain(["calls"]) {
            h.raw("<td class=\"n\">").int(r.int(column).unwrap_or(0)).raw("</td>");
        }
        h.raw("</tr>");
    }
    let sums = REPEATS.map(|(m, ..)| totals.iter().find(|t| t.measure.name == m));
    h.raw("</tbody><tfoot><tr><th scope=\"row\">all tools</th><td></td>");
    for t in sums {
        h.raw("<td class=\"n\">")
            .text(&t.and_then(|t| t.numerator).map_or("unknown".to_owned(), figure))
            .raw("</td>");
    }
    let first = sums[0];
    h.raw("<td class=\"n\">").int(first.map_or(0, |t| t.denominator)).raw("</td></tr></tfoot></table></div>");
    if rows.len() > SHOWN {
        h.raw("<p class=\"note\">Cut: the ")
            .text(&SHOWN.to_string())
            .raw(" tools with the most repeats; the last line counts all.</p>");
    }
    if let Some(n) = first.map(|t| t.unknown).filter(|n| *n > 0) {
        let transfers = plural(n, "transfer");
        h.raw("<p class=\"note\">For ")
            .text(&transfers)
            .raw(" it is unknown what the receiver repeats; its calls are not counted here.</p>");
    }
    Ok(Some(Part { id: "tools", title: "Repeated calls by tool", body: h }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_has_no_empty_line_and_says_what_did_not_fit() {
        let pair = |from: usize, to: usize| Pair {
            from: format!("f{from}"),
            to: format!("t{to}"),
            handoffs: 1,
            sums: Vec::new(),
        };
        // Nine senders to one receiver; then a pair of those that are in it, and one with a new receiver.
        let mut pairs: Vec<Pair> = (0..=SIDE).map(|i| pair(i, 0)).collect();
        pairs.extend([pair(3, 0), pair(3, 1), pair(SIDE, 1)]);
        let (from, to, cut) = sides(&pairs);
        assert_eq!((from.len(), to, cut), (SIDE, vec!["t0", "t1"], 2));
    }
}
