//! Labels for people: beside the automatic verdicts, and how well the two agree.

use super::document::{Document, Section, Table};
use super::text;
use crate::evaluate::Rows;
use crate::labels::{Agreements, JUDGED};
use crate::session::{Result, Session};

/// What reviewers say of a transfer, a line each.
pub(super) async fn of(session: &Session, handoff: &str) -> Result<Vec<String>> {
    let sql = "SELECT * FROM labels WHERE handoff_id = $1 ORDER BY labelled_at, reviewer";
    let mut out = Vec::new();
    for r in Rows::new(&session.ask(sql, &[handoff]).await?)?.all() {
        let says: Vec<String> = JUDGED
            .iter()
            .filter_map(|j| Some(format!("{} {}", j.name, if r.flag(j.name)? { "yes" } else { "no" })))
            .collect();
        let who = text::short(r.text("reviewer").unwrap_or("a reviewer"), 40);
        let note = r.text("note").filter(|n| !n.is_empty());
        let note = note.map(|n| format!("; {}", text::short(n, 160))).unwrap_or_default();
        out.push(format!("labelled by {who}: {}{note}", says.join(", ")));
    }
    Ok(out)
}

/// The figures of agreement.
pub fn document(a: &Agreements) -> Document {
    let figure = |x: Option<f64>| x.map_or("undefined".to_owned(), |x| format!("{x:.2}"));
    let rows = JUDGED
        .iter()
        .zip(&a.things)
        .map(|(j, t)| {
            let mut row = vec![j.name.to_owned()];
            row.extend([t.both, t.only_verdict, t.only_label, t.neither, t.unknown].map(|n| n.to_string()));
            row.extend([t.precision(), t.recall(), t.kappa()].map(figure));
            row
        })
        .collect();
    let mut lines = vec![format!("{} labelled transfers, {} reviewers", a.labels, a.reviewers)];
    if a.gone > 0 {
        lines.push(format!("{} of them are not in the store any more and in no figure", a.gone));
    }
    let head = vec![
        "verdict",
        ">both yes",
        ">only Baton",
        ">only label",
        ">both no",
        ">Baton unknown",
        ">precision",
        ">recall",
        ">kappa",
    ];
    let table = Section { title: String::new(), lines, table: Some(Table { head, rows }) };
    Document { title: "Agreement of labels and verdicts".to_owned(), sections: vec![table] }
}
