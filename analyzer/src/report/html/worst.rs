//! The transfers with the most that went wrong, each with its story.

use super::super::explain;
use super::super::summary::{SHOWN, faults, name, worst_rows};
use super::markup::Html;
use super::timeline::Task;
use super::{Part, brief};
use crate::evaluate::Rows;
use crate::session::{Result, Session};

/// Lines of one story.
const LINES: usize = 40;

/// A transfer that went wrong.
pub(super) struct Worst {
    id: String,
    /// Its task.
    pub(super) task: String,
    from: String,
    to: String,
    faults: Vec<String>,
}

/// The worst, and one more where there are more than are shown.
pub(super) async fn rows(session: &Session) -> Result<Vec<Worst>> {
    let mut out = Vec::new();
    for r in worst_rows(session, SHOWN + 1).await?.all() {
        let id = name(&r, "handoff_id");
        out.push(Worst {
            id: id.to_owned(),
            task: r.text("task_id").unwrap_or_default().to_owned(),
            from: name(&r, "from_agent").to_owned(),
            to: name(&r, "to_agent").to_owned(),
            faults: faults(session, &r, id).await?,
        });
    }
    Ok(out)
}

/// What happened in one transfer, as `explain` tells it.
async fn story(session: &Session, w: &Worst) -> Result<Vec<String>> {
    let sql = "SELECT h.*, i.trace_id AS view_trace, i.span_id AS view_span FROM handoffs h LEFT JOIN inferences i \
               ON i.inference_id = h.receiver_inference_id AND i.task_id = h.task_id WHERE h.handoff_id = $1 AND h.task_id = $2";
    let mut lines = Vec::new();
    for r in Rows::new(&session.ask(sql, &[&w.id, &w.task]).await?)?.all() {
        lines.extend(explain::transfer(session, &r, &w.id).await?);
        if r.text("outcome") == Some("accepted") {
            lines.extend(explain::view(session, &r).await?);
        }
    }
    Ok(lines)
}

/// The section, with links to the timelines of their tasks.
pub(super) async fn part(session: &Session, worst: &[Worst], tasks: &[Task]) -> Result<Option<Part>> {
    if worst.is_empty() {
        return Ok(None);
    }
    let mut h = Html::default();
    h.raw("<p class=\"lead\">Lost constraints and leaks weigh most, then failed transfers and lost results, then repeats. Open one for its story.</p>");
    for w in worst.iter().take(SHOWN) {
        h.raw("<details><summary><b>").ends(&w.from, &w.to).raw("</b><small>");
        h.text(&brief(w.faults.first().map_or("", String::as_str)));
        if w.faults.len() > 1 {
            h.text(&format!("; {} more", w.faults.len() - 1));
        }
        h.raw("</small></summary><div><h4>What went wrong</h4>").list(&w.faults, LINES);
        h.raw("<h4>Its story</h4>").list(&story(session, w).await?, LINES);
        if let Some(place) = tasks.iter().position(|t| t.id == w.task) {
            h.raw("<p><a href=\"#task-").text(&place.to_string()).raw("\">The timeline of its task</a></p>");
        }
        h.raw("</div></details>");
    }
    if worst.len() > SHOWN {
        h.raw("<p class=\"note\">Cut: the ")
            .text(&SHOWN.to_string())
            .raw(" worst; more went wrong elsewhere.</p>");
    }
    Ok(Some(Part { id: "worst", title: "Worst handoffs", body: h }))
}
