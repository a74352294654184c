//! Baton's scores of single transfers, for sending them to where the spans are.

use crate::evaluate::{PerHandoff, Row, Rows, Stream, Value};
use crate::measures::{ALL, Subject};
use crate::session::{Result, Session};

/// A score of one transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// Trace of the span that shows the transfer.
    pub trace_id: String,
    /// That span.
    pub span_id: String,
    /// `baton.` and the name of the measure, or `baton.violation`.
    pub name: String,
    /// Its value in the measure's unit; a violation has none.
    pub value: Option<f64>,
    /// The verdict on a violation.
    pub label: Option<String>,
    /// The constraint that was broken.
    pub explanation: Option<String>,
}

/// The scores of all accepted transfers, one transfer after the other. What is unknown has no score.
pub struct Scores<'s> {
    session: &'s Session,
    measured: PerHandoff,
    handoffs: Stream,
}

impl<'s> Scores<'s> {
    /// Asks for them.
    ///
    /// # Errors
    /// The engine's.
    pub async fn new(session: &'s Session) -> Result<Self> {
        let sql = "SELECT handoff_id, trace_id, span_id FROM handoffs WHERE outcome = 'accepted'";
        Ok(Self {
            session,
            measured: PerHandoff::new(session).await?,
            handoffs: Stream::new(session, sql).await?,
        })
    }

    /// The scores of the next transfer.
    ///
    /// # Errors
    /// The engine's.
    pub async fn next(&mut self) -> Result<Option<Vec<Score>>> {
        if !self.handoffs.advance().await? {
            return Ok(None);
        }
        let r = self.handoffs.row();
        let get = |r: &Row<'_>, k: &str| r.text(k).unwrap_or_default().to_owned();
        let bare = Score {
            trace_id: get(&r, "trace_id"),
            span_id: get(&r, "span_id"),
            name: String::new(),
            value: None,
            label: None,
            explanation: None,
        };
        let place = self.measured.place(r.text("handoff_id").unwrap_or_default());
        let mut out = Vec::new();
        for m in ALL.iter().filter(|m| m.subject == Subject::Handoff) {
            if let Some(Value::Known(n, d)) = place.and_then(|p| self.measured.get(m.name, p))
                && d > 0
            {
                let value = Some(n / d as f64);
                out.push(Score { name: format!("baton.{}", m.name), value, ..bare.clone() });
            }
        }
        Ok(Some(out))
    }

    /// The violations under transfers, each with its verdict as the label.
    ///
    /// # Errors
    /// The engine's.
    pub async fn violations(&self) -> Result<Vec<Score>> {
        let sql = "SELECT h.trace_id, h.span_id, v.constraint_id, v.verdict FROM violations v \
                   JOIN handoffs h ON h.task_id = v.task_id AND h.handoff_id = v.handoff_id";
        let rows = Rows::new(&self.session.query(sql).await?)?;
        let get = |r: &Row<'_>, k: &str| r.text(k).unwrap_or_default().to_owned();
        Ok(rows
            .all()
            .map(|r| Score {
                trace_id: get(&r, "trace_id"),
                span_id: get(&r, "span_id"),
                name: "baton.violation".to_owned(),
                value: None,
                label: Some(get(&r, "verdict")),
                explanation: Some(get(&r, "constraint_id")),
            })
            .collect())
    }
}
