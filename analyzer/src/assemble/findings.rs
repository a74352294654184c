//! What stands out in one task, in sentences.

use super::emit::Id;
use super::judge::Task;
use super::repeats::Kind;
use crate::tables::{FindingRow, Tables};

impl Task<'_> {
    pub(super) fn write_findings(&self, out: &mut Tables, ids: &[Id], partial: Option<&'static str>) {
        let mut add = |kind: &str, severity: &str, handoff: Option<&str>, text: String| {
            out.findings.push(FindingRow {
                kind,
                severity,
                task_id: &self.id,
                handoff_id: handoff,
                text: &text,
                last_activity: self.last_activity,
            })
        };
        if let Some(why) = partial {
            add(
                "partial_task",
                "warning",
                None,
                format!("The data holds only part of this task: {why}. It stays out of the rates."),
            );
        }
        if self.g.conflicts > 0 {
            add(
                "span_conflict",
                "warning",
                None,
                format!(
                    "{} came twice with other content; the fuller recording counts.",
                    count_of(self.g.conflicts, "span")
                ),
            );
        }
        if self.duplicates > 0 {
            add(
                "double_instrumentation",
                "info",
                None,
                format!(
                    "{} of model calls repeat another one; each call counts once.",
                    count_of(usize::try_from(self.duplicates).unwrap_or(0), "recording")
                ),
            );
        }
        for (i, t) in self.transfers.iter().enumerate() {
            let f = &self.facts[i];
            let id = Some(ids[i].as_str());
            let from = t.from_name.as_deref().unwrap_or("an unnamed agent");
            let to = t.to_name.as_deref().unwrap_or("an unnamed agent");
            match t.outcome {
                "failed" => {
                    add("failed_handoff", "error", id, format!("The transfer from {from} to {to} failed."))
                }
                "refused" => add(
                    "refused_handoff",
                    "warning",
                    id,
                    if t.sender.is_some()
                        && self.transfers.iter().any(|o| o.outcome == "accepted" && o.sender == t.sender)
                    {
                        format!("{from} asked for {to} in a turn in which another transfer was taken.")
                    } else {
                        format!("{from} asked for {to}, which was refused.")
                    },
                ),
                "pending" => add(
                    "pending_handoff",
                    "warning",
                    id,
                    format!("{from} handed over to {to}; no receiver is seen."),
                ),
                "unknown" => add(
                    "ambiguous_receiver",
                    "warning",
                    id,
                    format!(
                        "{from} handed over, and the receiver may be any of: {}.",
                        t.candidates.join(", ")
                    ),
                ),
                _ => {}
            }
            if t.outcome != "accepted" {
                continue;
            }
            let own: Vec<usize> = self.calls_under(i).collect();
            let count =
                |k: Kind| own.iter().filter(|c| self.repeats[**c].is_some_and(|r| r.kind == k)).count();
            if f.repeats_unknown.is_none() {
                let n = count(Kind::Redundant);
                if n > 0 {
                    add(
                        "redundant_calls",
                        "warning",
                        id,
                        format!(
                            "{to} made {}, of which {n} repeat what was done before {from} handed over.",
                            count_of(own.len(), "tool call")
                        ),
                    );
                }
                let n = count(Kind::KnownFailure);
                if n > 0 {
                    add(
                        "known_failure_retry",
                        "warning",
                        id,
                        format!(
                            "{to} retried {} that had failed before {from} handed over.",
                            count_of(n, "call")
                        ),
                    );
                }
            }
            for x in f.constraints.list.iter().filter(|x| x.cause.is_some()) {
                let how = match x.cause {
                    Some("dropped_by_filter") => "the payload carried it, and the history filter dropped it",
                    Some("not_in_state") => "no durable state or contract held it",
                    _ => "the payload did not carry it",
                };
                add(
                    "constraint_lost",
                    "error",
                    id,
                    format!("{to} did not get the constraint {}: {how}.", x.id),
                );
            }
            if let Ok(l) = &f.leaks
                && !l.is_empty()
            {
                add(
                    "leak",
                    "error",
                    id,
                    format!(
                        "Filtered tool content survives in prose that {to} sees: {}.",
                        count_of(l.len(), "case")
                    ),
                );
            }
            if f.lost.is_ok_and(|n| n > 0) {
                add(
                    "lost_result",
                    "warning",
                    id,
                    format!(
                        "A tool result of the turn in which {from} handed over reaches no later message."
                    ),
                );
            }
            if f.payload.unknown.is_none() && f.payload.fields == 0 && !f.payload.narrative {
                add(
                    "empty_payload",
                    "warning",
                    id,
                    format!("{from} handed over to {to} with an empty payload."),
                );
            }
        }
        for b in &self.bounces {
            let t = &self.transfers[b.back];
            add(
                "bounce",
                "warning",
                Some(ids[b.back].as_str()),
                format!(
                    "The same goal went back to {} and was passed on or done again.",
                    if t.mode == "return_to_caller" {
                        t.from_name.as_deref().unwrap_or("the caller")
                    } else {
                        t.to_name.as_deref().unwrap_or("its sender")
                    }
                ),
            );
        }
    }
}

fn count_of(n: usize, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}
