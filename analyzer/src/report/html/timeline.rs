//! The timelines of tasks: a lane for each agent, with its runs, its tool calls and what it hands over; and the same as a table.

use super::super::explain::{call, head, offset};
use super::super::summary::SHOWN;
use super::super::text;
use super::markup::Html;
use super::worst::Worst;
use super::{Part, brief};
use crate::evaluate::{Row, Rows};
use crate::session::{Result, Session};

/// Lanes of one timeline; further agents share the last.
const LANES: usize = 12;
/// Runs, calls and transfers of one task that are drawn, of each kind.
const MARKS: usize = 200;
/// Events of one task that are listed.
const EVENTS: usize = 60;
/// Height of a lane: a line for the name, a bar, and room.
const LANE: usize = 44;

/// A task that is listed.
pub(super) struct Task {
    pub(super) id: String,
}

/// The tasks of the worst transfers, then the latest ones, of both together at most [`SHOWN`].
pub(super) async fn tasks(session: &Session, worst: &[Worst]) -> Result<Vec<Task>> {
    let mut out: Vec<Task> = Vec::new();
    let sql = format!("SELECT task_id FROM tasks ORDER BY start DESC, task_id LIMIT {SHOWN}");
    let latest = Rows::new(&session.query(&sql).await?)?;
    let latest = latest.all().filter_map(|r| r.text("task_id").map(str::to_owned)).collect::<Vec<_>>();
    for id in worst.iter().take(SHOWN).map(|w| &w.task).chain(&latest) {
        if out.len() < SHOWN && out.iter().all(|t| t.id != *id) {
            out.push(Task { id: id.clone() });
        }
    }
    Ok(out)
}

/// The section.
pub(super) async fn part(session: &Session, tasks: &[Task], all: i64) -> Result<Option<Part>> {
    if tasks.is_empty() {
        return Ok(None);
    }
    let mut h = Html::default();
    h.raw("<p class=\"lead\">The tasks of the worst handoffs, then the latest ones. A lane is an agent; a pale bar is a time in which it ran, \
           marks on it are its tool calls, an arrow is a transfer.</p><ul class=\"key marks\">");
    for (class, what) in [
        ("run", "run of an agent"),
        ("call", "tool call"),
        ("hatched", "repeated call"),
        ("error", "failed or lost call"),
    ] {
        h.raw("<li><svg aria-hidden=\"true\"><rect class=\"")
            .raw(class)
            .raw("\" width=\"100%\" height=\"100%\"/></svg>")
            .raw(what)
            .raw("</li>");
    }
    h.raw("<li><svg aria-hidden=\"true\"><line class=\"hand\" x1=\"0\" y1=\"50%\" x2=\"100%\" y2=\"50%\" marker-end=\"url(#arrow)\"/></svg>transfer</li>\
           <li><svg aria-hidden=\"true\"><line class=\"hand open\" x1=\"0\" y1=\"50%\" x2=\"100%\" y2=\"50%\"/></svg>transfer not accepted</li></ul>");
    for (place, t) in tasks.iter().enumerate() {
        task(session, &mut h, place, &t.id).await?;
    }
    if all > tasks.len() as i64 {
        h.raw("<p class=\"note\">Cut: ").int(tasks.len() as i64).raw(" of ").int(all).raw(" tasks.</p>");
    }
    Ok(Some(Part { id: "timelines", title: "Timelines", body: h }))
}

/// What is drawn of a task.
#[derive(Default)]
struct Drawing {
    lanes: Vec<String>,
    from: i64,
    to: i64,
    marks: Vec<Mark>,
    arrows: Vec<Arrow>,
    /// Calls without a time.
    timeless: usize,
}

struct Mark {
    lane: usize,
    from: i64,
    to: i64,
    class: &'static str,
    title: String,
}

struct Arrow {
    from: usize,
    /// None: the receiver is not known.
    to: Option<usize>,
    time: i64,
    taken: bool,
    title: String,
}

/// A line of the table.
struct Event {
    time: Option<i64>,
    rank: u8,
    agent: String,
    lines: Vec<String>,
}

impl Drawing {
    fn lane(&mut self, agent: &str) -> usize {
        if let Some(place) = self.lanes.iter().position(|l| l == agent) {
            return place;
        }
        if self.lanes.len() == LANES {
            return LANES - 1;
        }
        self.lanes.push(if self.lanes.len() == LANES - 1 {
            "other agents".to_owned()
        } else {
            agent.to_owned()
        });
        self.lanes.len() - 1
    }

    /// How far a moment is from the start, from 0 to 1.
    fn at(&self, time: i64) -> f64 {
        let all = self.to.saturating_sub(self.from).max(1);
        time.saturating_sub(self.from) as f64 / all as f64
    }

    fn svg(&self, h: &mut Html, about: &str) {
        let height = self.lanes.len() * LANE + 24;
        h.raw("<div class=\"timeline\"><svg role=\"img\" height=\"")
            .int(height as i64)
            .raw("\" aria-label=\"")
            .text(about)
            .raw("\">");
        for (x, anchor) in [("0%", "start"), ("50%", "middle"), ("100%", "end")] {
            h.raw("<line class=\"grid\" y1=\"0\" x1=\"")
                .raw(x)
                .raw("\" x2=\"")
                .raw(x)
                .raw("\" y2=\"")
                .int(height as i64 - 20)
                .raw("\"/>");
            let time = match anchor {
                "start" => "0 s".to_owned(),
                "middle" => duration(self.to.saturating_sub(self.from) / 2),
                _ => duration(self.to.saturating_sub(self.from)),
            };
            h.raw("<text class=\"tick\" text-anchor=\"")
                .raw(anchor)
                .raw("\" x=\"")
                .raw(x)
                .raw("\" y=\"")
                .int(height as i64 - 5)
                .raw("\">")
                .text(&time)
                .raw("</text>");
        }
        for (i, l) in self.lanes.iter().enumerate() {
            h.raw("<text x=\"0\" y=\"")
                .int((i * LANE) as i64 + 14)
                .raw("\">")
                .text(&text::short(l, 40))
                .raw("</text>");
        }
        for m in &self.marks {
            // Runs are as high as the bar, calls lie on them.
            let (y, height) = if m.class == "run" { (20, 18) } else { (23, 12) };
            let width = (self.at(m.to) - self.at(m.from)).max(0.006);
            h.raw("<rect class=\"")
                .raw(m.class)
                .raw("\" y=\"")
                .int((m.lane * LANE) as i64 + y)
                .raw("\" height=\"")
                .int(height);
            h.raw("\" x=\"")
                .part(self.at(m.from).min(1.0 - 0.006))
                .raw("\" width=\"")
                .part(width)
                .raw("\"><title>");
            h.text(&m.title).raw("</title></rect>");
        }
        for a in &self.arrows {
            self.arrow(h, a);
        }
        h.raw("</svg></div>");
    }

    fn arrow(&self, h: &mut Html, a: &Arrow) {
        let bar = |lane: usize| (lane * LANE) as i64 + 29;
        let x = self.at(a.time).clamp(0.004, 0.996);
        let (y1, y2) = match a.to {
            Some(to) if to != a.from => (bar(a.from), if to > a.from { bar(to) - 9 } else { bar(to) + 9 }),
            _ => {
                h.raw("<circle class=\"hand\" r=\"5\" cx=\"")
                    .part(x)
                    .raw("\" cy=\"")
                    .int(bar(a.from))
                    .raw("\"><title>");
                h.text(&a.title).raw("</title></circle>");
                return;
            }
        };
        h.raw(if a.taken {
            "<line class=\"hand\" marker-end=\"url(#arrow)\" x1=\""
        } else {
            "<line class=\"hand open\" x1=\""
        });
        h.part(x).raw("\" x2=\"").part(x).raw("\" y1=\"").int(y1).raw("\" y2=\"").int(y2).raw("\"><title>");
        h.text(&a.title).raw("</title></line>");
    }
}

/// A time of which one digit behind the point is enough.
fn duration(ns: i64) -> String {
    let s = ns as f64 / 1e9;
    match s {
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

fn agent(r: &Row<'_>, column: &str) -> String {
    r.text(column).unwrap_or("(unnamed)").to_owned()
}

async fn task(session: &Session, h: &mut Html, place: usize, id: &str) -> Result<()> {
    let tasks = Rows::new(&session.ask("SELECT * FROM tasks WHERE task_id = $1", &[id]).await?)?;
    let Some(t) = tasks.all().next() else { return Ok(()) };
    let start = t.time("start");
    let mut d =
        Drawing { from: start.unwrap_or(0), to: t.time("end").or(start).unwrap_or(0), ..Drawing::default() };
    let mut events: Vec<Event> = Vec::new();
    let mut cut = runs(session, id, &mut d, &mut events).await?;
    cut |= calls(session, id, start, &mut d, &mut events).await?;
    cut |= transfers(session, id, &mut d, &mut events).await?;
    events.sort_by_key(|e| (e.time, e.rank));

    h.raw("<article aria-labelledby=\"task-")
        .int(place as i64)
        .raw("\"><h3 id=\"task-")
        .int(place as i64)
        .raw("\">Task <bdi>");
    h.text(&brief(id)).raw("</bdi></h3>");
    h.list(&head(&t).lines, usize::MAX);
    d.svg(
        h,
        &format!(
            "{} agents, {} runs and calls, {} transfers; the table below says the same",
            d.lanes.len(),
            d.marks.len(),
            d.arrows.len()
        ),
    );
    if cut {
        h.raw("<p class=\"note\">Cut: the first ")
            .int(MARKS as i64)
            .raw(" runs, calls and transfers of the task.</p>");
    }
    if d.timeless > 0 {
        h.raw("<p class=\"note\">Not drawn: ")
            .int(d.timeless as i64)
            .raw(" calls that only messages show, without a time.</p>");
    }
    h.raw("<details><summary>The same as a table</summary><div>");
    h.frame("Events of the task").raw(
        "<table><thead><tr><th scope=\"col\" class=\"n\">time</th><th scope=\"col\">agent</th><th scope=\"col\">what happened</th></tr></thead><tbody>",
    );
    for e in events.iter().take(EVENTS) {
        h.raw("<tr><td class=\"n\">")
            .text(&offset(e.time, start))
            .raw("</td><td>")
            .name(&e.agent)
            .raw("</td><td class=\"long\">");
        for (i, l) in e.lines.iter().enumerate() {
            h.raw(if i > 0 { "<br>" } else { "" }).text(l);
        }
        h.raw("</td></tr>");
    }
    h.raw("</tbody></table></div>");
    if events.len() > EVENTS {
        h.raw("<p class=\"note\">Cut: ")
            .int(EVENTS as i64)
            .raw(" of ")
            .int(events.len() as i64)
            .raw(" events; `baton explain` tells all.</p>");
    }
    h.raw("</div></details></article>");
    Ok(())
}

async fn runs(session: &Session, id: &str, d: &mut Drawing, events: &mut Vec<Event>) -> Result<bool> {
    let sql =
        format!("SELECT * FROM agent_runs WHERE task_id = $1 ORDER BY start, run_id LIMIT {}", MARKS + 1);
    let rows = Rows::new(&session.ask(&sql, &[id]).await?)?;
    for r in rows.all().take(MARKS) {
        let name = agent(&r, "agent");
        let n = |k: &str| r.int(k).unwrap_or(0);
        let line = format!("runs: {} model calls, {} tool calls", n("inferences"), n("tool_calls"));
        if let Some(from) = r.time("start") {
            let lane = d.lane(&name);
            let to = r.time("end").unwrap_or(d.to);
            d.marks.push(Mark {
                lane,
                from,
                to,
                class: "run",
                title: format!("{} {line}", text::short(&name, 40)),
            });
        }
        events.push(Event { time: r.time("start"), rank: 0, agent: name, lines: vec![line] });
    }
    Ok(rows.all().nth(MARKS).is_some())
}

async fn calls(
    session: &Session,
    id: &str,
    start: Option<i64>,
    d: &mut Drawing,
    events: &mut Vec<Event>,
) -> Result<bool> {
    let sql = format!(
        "SELECT c.*, e.agent AS earlier_agent, e.start AS earlier_start FROM tool_calls c LEFT JOIN tool_calls e \
         ON e.id = c.repeats AND e.task_id = c.task_id WHERE c.task_id = $1 ORDER BY c.start, c.id LIMIT {}",
        MARKS + 1
    );
    let rows = Rows::new(&session.ask(&sql, &[id]).await?)?;
    for r in rows.all().take(MARKS) {
        let name = agent(&r, "agent");
        let lines = call(&r, start);
        match r.time("start") {
            None => d.timeless += 1,
            Some(from) => {
                let class = match (r.text("repeat_kind"), r.text("outcome")) {
                    (Some(_), _) => "hatched",
                    (None, Some("ok")) => "call",
                    _ => "error",
                };
                let lane = d.lane(&name);
                d.marks.push(Mark {
                    lane,
                    from,
                    to: r.time("end").unwrap_or(from),
                    class,
                    title: lines.join("; "),
                });
            }
        }
        events.push(Event { time: r.time("start"), rank: 1, agent: name, lines });
    }
    Ok(rows.all().nth(MARKS).is_some())
}

async fn transfers(session: &Session, id: &str, d: &mut Drawing, events: &mut Vec<Event>) -> Result<bool> {
    let sql = format!("SELECT * FROM handoffs WHERE task_id = $1 ORDER BY seq LIMIT {}", MARKS + 1);
    let rows = Rows::new(&session.ask(&sql, &[id]).await?)?;
    for r in rows.all().take(MARKS) {
        let name = agent(&r, "from_agent");
        let outcome = r.text("outcome").unwrap_or_default();
        let to = r.text("to_agent").unwrap_or("(unknown)");
        let line = format!("HANDS OVER to {}: {outcome}", text::short(to, 40));
        if let Some(time) = r.time("time") {
            let from = d.lane(&name);
            let to = r.text("to_agent").map(|t| d.lane(t));
            let title = format!("{} {line}", text::short(&name, 40));
            d.arrows.push(Arrow { from, to, time, taken: outcome == "accepted", title });
        }
        let id = format!("handoff {}", r.text("handoff_id").unwrap_or_default());
        events.push(Event { time: r.time("time"), rank: 2, agent: name, lines: vec![line, id] });
    }
    Ok(rows.all().nth(MARKS).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_past_the_last_lane_share_it() {
        let mut d = Drawing::default();
        let lanes: Vec<usize> = (0..LANES + 3).map(|i| d.lane(&format!("agent {i}"))).collect();
        assert_eq!(d.lanes.len(), LANES);
        assert_eq!(lanes[LANES - 2..], [LANES - 2, LANES - 1, LANES - 1, LANES - 1, LANES - 1]);
        assert_eq!(d.lane("agent 0"), 0);
        assert_eq!(d.lanes.last().map(String::as_str), Some("other agents"));
    }

    #[test]
    fn a_task_without_length_is_drawn() {
        let mut d = Drawing { from: 5, to: 5, ..Drawing::default() };
        let lane = d.lane("a");
        d.marks.push(Mark {
            lane,
            from: 5,
            to: i64::MIN,
            class: "run",
            title: "</title><script>".to_owned(),
        });
        d.arrows.push(Arrow { from: lane, to: None, time: i64::MAX, taken: false, title: String::new() });
        let mut h = Html::default();
        d.svg(&mut h, "\"");
        assert!(h.as_str().contains("width=\"0.60%\"") && !h.as_str().contains("<script"), "{}", h.as_str());
    }

    #[test]
    fn times_have_a_unit_that_fits() {
        let said = [5_000_000, 2_515_000_000, 180_000_000_000, 9_000_000_000_000].map(duration);
        assert_eq!(said, ["5 ms", "2.5 s", "3.0 min", "2.5 h"]);
    }
}
