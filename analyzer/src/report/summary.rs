//! The report for people: what was evaluated, every measure with its denominator, the worst transfers with their cause,
//! what stands out.

use crate::evaluate::{Row, Rows, Total, totals};
use crate::measures::{Direction, Measure};
use crate::session::{Result, Session};
use crate::sums::HANDOFFS;

use super::document::{Document, Section, Table};
use super::{rfc3339, text, violations};

/// Rows of each list that is cut.
pub(super) const SHOWN: usize = 10;

/// Builds the report.
///
/// # Errors
/// The engine's.
pub async fn document(session: &Session) -> Result<Document> {
    let totals = totals(session).await?;
    let mut sections = vec![overview(session).await?, measures(&totals)];
    sections.extend(survival(session).await?);
    sections.extend(pairs(session).await?);
    sections.extend(violations::sections(session).await?);
    sections.extend(worst(session).await?);
    sections.extend(findings(session).await?);
    Ok(Document { title: "Handoff report".to_owned(), sections })
}

pub(super) fn plural(n: i64, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}

/// What was evaluated, in numbers.
#[derive(Default)]
pub(super) struct Overview {
    /// Which tasks were asked for, where not all.
    pub(super) asked: Option<String>,
    /// First start and last end.
    pub(super) window: Option<(i64, i64)>,
    pub(super) tasks: i64,
    pub(super) partial: i64,
    /// Completed, of how many for which that is known.
    pub(super) completed: (i64, i64),
    pub(super) model_calls: i64,
    pub(super) tool_calls: i64,
    pub(super) handoffs: i64,
    /// How many transfers there are of each kind, the most frequent first.
    pub(super) outcomes: String,
    pub(super) detections: String,
    pub(super) confidences: String,
}

impl Overview {
    pub(super) async fn new(session: &Session) -> Result<Self> {
        let mut out = Self::default();
        let window = session.window();
        if !window.is_everything() {
            let at = |ns: Option<i64>, open: &str| ns.map_or_else(|| open.to_owned(), rfc3339);
            out.asked = Some(format!(
                "tasks whose last activity lies from {} up to {}",
                at(window.since, "the beginning"),
                at(window.until, "the end")
            ));
        }
        let sql = "SELECT COUNT(*) AS tasks, COUNT(*) FILTER (WHERE partial) AS partial, COUNT(*) FILTER (WHERE completed) AS done, \
                   COUNT(completed) AS known, SUM(inferences) AS inferences, SUM(tool_calls) AS calls, MIN(start) AS since, MAX(\"end\") AS until FROM tasks";
        for r in Rows::new(&session.query(sql).await?)?.all() {
            let int = |k: &str| r.int(k).unwrap_or(0);
            out.window = r.time("since").zip(r.time("until"));
            out.tasks = int("tasks");
            out.partial = int("partial");
            out.completed = (int("done"), int("known"));
            out.model_calls = int("inferences");
            out.tool_calls = int("calls");
        }
        let list =
            |c: &[(String, i64)]| c.iter().map(|(k, n)| format!("{n} {k}")).collect::<Vec<_>>().join(", ");
        let outcomes = counts(session, "outcome").await?;
        out.handoffs = outcomes.iter().map(|(_, n)| n).sum();
        out.outcomes = list(&outcomes);
        out.detections = list(&counts(session, "detection").await?);
        out.confidences = list(&counts(session, "confidence").await?);
        Ok(out)
    }
}

async fn overview(session: &Session) -> Result<Section> {
    let o = Overview::new(session).await?;
    let mut lines: Vec<String> = o.asked.into_iter().collect();
    if let Some((a, b)) = o.window {
        lines.push(format!("{} to {}", rfc3339(a), rfc3339(b)));
    }
    lines.push(format!(
        "{}: {} of {} known completed, {} partial (kept out of the rates)",
        plural(o.tasks, "task"),
        o.completed.0,
        o.completed.1,
        o.partial
    ));
    lines.push(format!("{}, {}", plural(o.model_calls, "model call"), plural(o.tool_calls, "tool call")));
    if o.handoffs == 0 {
        lines.push("no handoffs".to_owned());
    } else {
        lines.push(format!("{}: {}", plural(o.handoffs, "handoff"), o.outcomes));
        lines.push(format!("seen by: {}", o.detections));
        lines.push(format!("confidence: {}", o.confidences));
    }
    Ok(Section { title: String::new(), lines, table: None })
}

/// How many transfers have which value in a column.
async fn counts(session: &Session, column: &str) -> Result<Vec<(String, i64)>> {
    let sql =
        format!("SELECT {column} AS k, COUNT(*) AS n FROM handoffs GROUP BY {column} ORDER BY n DESC, k");
    let rows = Rows::new(&session.query(&sql).await?)?;
    Ok(rows.all().map(|r| (name(&r, "k").to_owned(), r.int("n").unwrap_or(0))).collect())
}

/// A number with as many digits as its size deserves.
pub(super) fn figure(v: f64) -> String {
    if v.fract() == 0.0 && v.abs() < 1e15 {
        format!("{v:.0}")
    } else if v.abs() >= 100.0 {
        format!("{v:.1}")
    } else {
        format!("{v:.2}")
    }
}

/// A share in percent.
pub(super) fn share(v: Option<f64>) -> String {
    v.map_or_else(|| "unknown".to_owned(), |v| format!("{:.1} %", v * 100.0))
}

/// A value in its unit: shares in percent.
pub(super) fn value(m: &Measure, v: Option<f64>) -> String {
    match v {
        Some(v) if m.unit != "share" => figure(v),
        v => share(v),
    }
}

fn measures(totals: &[Total]) -> Section {
    let rows = totals
        .iter()
        .map(|t| {
            let m = t.measure;
            let of = match t.numerator {
                Some(n) if t.denominator > 0 => format!("{} / {}", figure(n), t.denominator),
                _ => "-".to_owned(),
            };
            let why: Vec<String> = t.reasons.iter().take(2).map(|(why, n)| format!("{n}: {why}")).collect();
            let more = t.reasons.len().saturating_sub(2);
            let why = if more > 0 {
                format!("{}; {}", why.join("; "), plural(more as i64, "other reason"))
            } else {
                why.join("; ")
            };
            vec![
                m.name.to_owned(),
                value(m, t.value()),
                // A share shows its percent sign.
                if m.unit == "share" { String::new() } else { m.unit.to_owned() },
                of,
                t.unknown.to_string(),
                match m.direction {
                    Direction::Up => "up",
                    Direction::Down => "down",
                    Direction::Neutral => "",
                }
                .to_owned(),
                why,
            ]
        })
        .collect();
    let head = vec!["measure", ">value", "unit", ">sum / of", ">unknown", "good", "why unknown"];
    Section { title: "Measures".to_owned(), lines: Vec::new(), table: Some(Table { head, rows }) }
}

/// By number of transfers since the first: how many of the first transfer's constraints are still there, of how many.
pub(super) async fn hops(session: &Session) -> Result<Vec<(i64, i64, i64)>> {
    let Some(m) = Measure::by_name("constraint_survival") else { return Ok(Vec::new()) };
    let sql = format!(
        "SELECT c.hop, SUM(m.numerator) AS numerator, SUM(m.denominator) AS denominator FROM (\n{}) m \
         JOIN (SELECT DISTINCT handoff_id, hop FROM handoff_constraints) c ON c.handoff_id = m.id \
         WHERE m.rated AND m.unknown IS NULL GROUP BY c.hop ORDER BY c.hop LIMIT {SHOWN}",
        m.sql
    );
    let rows = Rows::new(&session.query(&sql).await?)?;
    let int = |r: &Row<'_>, k: &str| r.int(k).unwrap_or(0);
    Ok(rows.all().map(|r| (int(&r, "hop"), int(&r, "numerator"), int(&r, "denominator"))).collect())
}

/// The share of the first transfer's constraints that is still there, by number of transfers since.
async fn survival(session: &Session) -> Result<Option<Section>> {
    let rows: Vec<Vec<String>> = hops(session)
        .await?
        .into_iter()
        .map(|(hop, n, d)| {
            vec![hop.to_string(), share((d > 0).then(|| n as f64 / d as f64)), format!("{n} / {d}")]
        })
        .collect();
    let head = vec![">hop", ">still there", ">of"];
    // With one hop the table repeats the measure.
    Ok((rows.len() > 1).then(|| Section {
        title: "Constraints by hop".to_owned(),
        lines: Vec::new(),
        table: Some(Table { head, rows }),
    }))
}

pub(super) fn name<'a>(r: &Row<'a>, column: &str) -> &'a str {
    r.text(column).unwrap_or("(unnamed)")
}

fn ends(r: &Row<'_>) -> String {
    format!("{} -> {}", text::short(name(r, "from_agent"), 40), text::short(name(r, "to_agent"), 40))
}

/// What is shown of a pair of agents: measures and their headings.
pub(super) const PAIR: [(&str, &str); 5] = [
    ("completeness", ">complete"),
    ("constraint_retention", ">constraints kept"),
    ("redundant_tool_calls", ">redundant calls"),
    ("context_tokens_after", ">tokens seen"),
    ("leaks", ">leaks"),
];

/// The accepted transfers from one agent to another.
pub(super) struct Pair {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) handoffs: i64,
    /// For each measure of [`PAIR`] its numerator and denominator; none: unknown.
    pub(super) sums: Vec<Option<(i64, i64)>>,
}

impl Pair {
    /// The measure at this place of [`PAIR`], for people.
    pub(super) fn shown(&self, place: usize) -> String {
        let known = self.sums.get(place).copied().flatten();
        let rate = known.map(|(n, d)| n as f64 / d as f64);
        PAIR.get(place)
            .and_then(|(name, _)| Measure::by_name(name))
            .map_or_else(String::new, |m| value(m, rate))
    }
}

/// The pairs of agents between which most transfers ran.
pub(super) async fn pair_rows(session: &Session, limit: usize) -> Result<Vec<Pair>> {
    session.sums().await?;
    let mut sql = format!(
        "SELECT from_agent, to_agent, SUM(CASE WHEN measure = '{HANDOFFS}' THEN numerator ELSE 0 END) AS n"
    );
    for (i, (measure, _)) in PAIR.iter().enumerate() {
        for (name, column) in [("n", "numerator"), ("d", "denominator")] {
            sql.push_str(&format!(", SUM(CASE WHEN measure = '{measure}' THEN {column} END) AS {name}{i}"));
        }
    }
    let names: Vec<String> = PAIR.iter().map(|(n, _)| format!("'{n}'")).collect();
    sql.push_str(&format!(
        " FROM measure_sums WHERE measure IN ('{HANDOFFS}', {}) GROUP BY from_agent, to_agent \
         HAVING SUM(CASE WHEN measure = '{HANDOFFS}' THEN numerator ELSE 0 END) > 0 \
         ORDER BY n DESC, from_agent, to_agent LIMIT {limit}",
        names.join(", ")
    ));
    let rows = Rows::new(&session.query(&sql).await?)?;
    Ok(rows
        .all()
        .map(|r| Pair {
            from: name(&r, "from_agent").to_owned(),
            to: name(&r, "to_agent").to_owned(),
            handoffs: r.int("n").unwrap_or(0),
            sums: (0..PAIR.len())
                .map(|i| {
                    let d = r.int(&format!("d{i}")).filter(|d| *d > 0)?;
                    r.int(&format!("n{i}")).map(|n| (n, d))
                })
                .collect(),
        })
        .collect())
}

async fn pairs(session: &Session) -> Result<Option<Section>> {
    let rows = pair_rows(session, SHOWN + 1)
        .await?
        .iter()
        .map(|p| {
            let ends = format!("{} -> {}", text::short(&p.from, 40), text::short(&p.to, 40));
            let mut row = vec![ends, p.handoffs.to_string()];
            row.extend((0..PAIR.len()).map(|i| p.shown(i)));
            row
        })
        .collect();
    let mut head = vec!["from -> to", ">handoffs"];
    head.extend(PAIR.iter().map(|(_, h)| *h));
    Ok(listed("Between agents", head, rows))
}

/// A section of at most [`SHOWN`] rows that says where it was cut.
fn listed(title: &str, head: Vec<&'static str>, mut rows: Vec<Vec<String>>) -> Option<Section> {
    let cut = rows.len() > SHOWN;
    rows.truncate(SHOWN);
    let title = if cut { format!("{title} (the first {SHOWN})") } else { title.to_owned() };
    (!rows.is_empty()).then(|| Section { title, lines: Vec::new(), table: Some(Table { head, rows }) })
}

/// How bad each transfer is: `id` and `score`. Those in which nothing went wrong are not in it.
pub(super) const BADNESS: &str = "SELECT id, SUM(score) AS score FROM (
SELECT handoff_id AS id, score FROM handoff_scores
UNION ALL
SELECT handoff_id AS id, 5 AS score FROM violations WHERE handoff_id IS NOT NULL
) s GROUP BY id";

/// The transfers with the most that went wrong, the worst first: columns of `handoffs`.
pub(super) async fn worst_rows(session: &Session, limit: usize) -> Result<Rows> {
    let sql = format!(
        "SELECT w.score, h.* FROM ({BADNESS} ORDER BY score DESC, id LIMIT {limit}) w \
         JOIN handoffs h ON h.handoff_id = w.id ORDER BY w.score DESC, h.handoff_id"
    );
    Rows::new(&session.query(&sql).await?)
}

/// The worst transfers, each with what went wrong and why.
async fn worst(session: &Session) -> Result<Option<Section>> {
    let mut rows = Vec::new();
    for r in worst_rows(session, SHOWN + 1).await?.all() {
        let id = name(&r, "handoff_id");
        rows.push(vec![id.to_owned(), ends(&r), faults(session, &r, id).await?.join("\n")]);
    }
    let section = listed("Worst handoffs", vec!["handoff", "from -> to", "what went wrong"], rows);
    Ok(section.map(|mut s| {
        s.lines.push("`baton explain <handoff>` tells the story of one.".to_owned());
        s
    }))
}

/// What went wrong in one transfer, a sentence each.
pub(super) async fn faults(session: &Session, handoff: &Row<'_>, id: &str) -> Result<Vec<String>> {
    let mut out = Vec::new();
    match handoff.text("outcome") {
        Some("accepted") | None => {}
        Some(other) => out.push(format!("the transfer is {other}")),
    }
    let sql = "SELECT id, cause FROM handoff_constraints WHERE handoff_id = $1 AND cause IS NOT NULL ORDER BY id, hash";
    for r in Rows::new(&session.ask(sql, &[id]).await?)?.all() {
        let how = r.text("cause").unwrap_or_default().replace('_', " ");
        out.push(format!("lost constraint {}: {how}", text::short(name(&r, "id"), 60)));
    }
    let sql = "SELECT tool, repeat_kind, cause, prevented_by, COUNT(*) AS n FROM tool_calls WHERE handoff_id = $1 \
               AND repeat_kind IN ('redundant', 'known_failure') GROUP BY tool, repeat_kind, cause, prevented_by ORDER BY n DESC, tool, repeat_kind";
    for r in Rows::new(&session.ask(sql, &[id]).await?)?.all() {
        let kind = if r.text("repeat_kind") == Some("redundant") { "repeats" } else { "retries the failed" };
        let mut line = format!("{kind} {} {}x", text::short(name(&r, "tool"), 40), r.int("n").unwrap_or(0));
        if let Some(c) = r.text("cause").filter(|c| *c != "unknown") {
            line.push_str(&format!(", lost by the {c}"));
        }
        let fields = r.texts("prevented_by");
        if !fields.is_empty() {
            line.push_str(&format!(", prevented by {}", fields.join(", ")));
        }
        out.push(line);
    }
    let sql = "SELECT constraint_id, verdict, COUNT(*) AS n FROM violations WHERE handoff_id = $1 \
               GROUP BY constraint_id, verdict ORDER BY n DESC, constraint_id, verdict";
    for r in Rows::new(&session.ask(sql, &[id]).await?)?.all() {
        out.push(format!(
            "breaks {} {}x: {}",
            text::short(name(&r, "constraint_id"), 60),
            r.int("n").unwrap_or(0),
            name(&r, "verdict")
        ));
    }
    let sql =
        "SELECT tool, COUNT(*) AS n FROM leaks WHERE handoff_id = $1 GROUP BY tool ORDER BY n DESC, tool";
    for r in Rows::new(&session.ask(sql, &[id]).await?)?.all() {
        out.push(format!(
            "filtered content of {} leaks {}x",
            text::short(name(&r, "tool"), 40),
            r.int("n").unwrap_or(0)
        ));
    }
    if let Some(n) = handoff.int("lost_tool_results").filter(|n| *n > 0) {
        out.push(format!("{} lost", plural(n, "tool result")));
    }
    if handoff.flag("retriage") == Some(true) {
        out.push("the receiver began again".to_owned());
    }
    Ok(out)
}

pub(super) async fn findings(session: &Session) -> Result<Option<Section>> {
    let sql = format!(
        "SELECT severity, kind, COUNT(*) AS n, MIN(text) AS example FROM findings GROUP BY severity, kind \
         ORDER BY CASE severity WHEN 'error' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, n DESC, kind LIMIT {}",
        SHOWN * 3
    );
    let mut rows = Vec::new();
    for r in Rows::new(&session.query(&sql).await?)?.all() {
        rows.push(vec![
            name(&r, "severity").to_owned(),
            name(&r, "kind").to_owned(),
            r.int("n").unwrap_or(0).to_string(),
            text::short(name(&r, "example"), 160),
        ]);
    }
    let head = vec!["severity", "finding", ">times", "for example"];
    Ok((!rows.is_empty()).then(|| Section {
        title: "Findings".to_owned(),
        lines: Vec::new(),
        table: Some(Table { head, rows }),
    }))
}
