//! What people say of transfers, kept beside the store's spans and compared with the automatic verdicts.
//!
//! Each batch of labels is one Parquet file below `labels/`, which appears whole or not at all. Of several labels of one
//! transfer by one reviewer the last one counts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_record::canonical::sha256_hex;
use datafusion::arrow::array::{
    ArrayRef, BooleanArray, RecordBatch, StringViewArray, TimestampNanosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::datasource::MemTable;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use serde_json::{Map, Value};

use crate::evaluate::{PerHandoff, Stream, Value as Measured};
use crate::place::{Local, Place};
use crate::report::text::plain;
use crate::session::{Result, Session};

/// Something that a person judges of a transfer, and what Baton says of it.
#[derive(Debug, Clone, Copy)]
pub struct Judged {
    /// Its name in samples and in the table `labels`.
    pub name: &'static str,
    /// What is asked. True is the answer that is counted as found.
    pub question: &'static str,
    /// The measure that gives the automatic verdict.
    pub measure: &'static str,
    /// The verdict of a known value: numerator and denominator.
    verdict: fn(f64, i64) -> bool,
}

/// What is judged (METRICS.md section 2).
pub const JUDGED: [Judged; 5] = [
    Judged {
        name: "constraint_lost",
        question: "Did the receiver lack a hard constraint that was in force?",
        measure: "constraint_retention",
        verdict: |n, d| n < d as f64,
    },
    Judged {
        name: "redundant_work",
        question: "Did the receiver do again what was done before the transfer?",
        measure: "redundant_tool_calls",
        verdict: |n, _| n > 0.0,
    },
    Judged {
        name: "leak",
        question: "Did tool content that was filtered out reach the receiver in prose?",
        measure: "leaks",
        verdict: |n, _| n > 0.0,
    },
    Judged {
        name: "retriage",
        question: "Did the receiver begin again: repeat a lookup, or ask for what the task holds?",
        measure: "retriage",
        verdict: |n, _| n > 0.0,
    },
    Judged {
        name: "complete",
        question: "Did the payload hold intent, constraints, status, evidence, next action and stop condition?",
        measure: "completeness",
        verdict: |n, d| n >= d as f64,
    },
];

/// What Baton says of each judged thing, or why it does not know.
pub type Verdicts = [Result<bool, String>; JUDGED.len()];

/// The automatic verdicts of all transfers.
#[derive(Debug)]
pub struct Automatic(PerHandoff);

impl Automatic {
    /// Asks for them.
    ///
    /// # Errors
    /// The engine's.
    pub async fn new(session: &Session) -> Result<Self> {
        let wanted = |m: &str| JUDGED.iter().any(|j| j.measure == m);
        Ok(Self(PerHandoff::of(session, wanted).await?))
    }

    /// Those of one transfer; `None` where there is no such transfer.
    pub fn of(&self, handoff: &str) -> Option<Verdicts> {
        let place = self.0.place(handoff)?;
        Some(JUDGED.map(|j| match self.0.get(j.measure, place) {
            Some(Measured::Known(n, d)) => Ok((j.verdict)(n, d)),
            Some(Measured::Unknown(why)) => Err(why.to_owned()),
            None => Err("not known".to_owned()),
        }))
    }
}

/// What one reviewer says of one transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The transfer.
    pub handoff_id: String,
    /// Who says so, where named.
    pub reviewer: Option<String>,
    /// By judged thing, in the order of [`JUDGED`]; `None`: not said.
    pub says: [Option<bool>; JUDGED.len()],
    /// A remark.
    pub note: Option<String>,
}

/// Why a file of labels was refused: file, line, field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {reason}")]
pub struct LabelError {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong, beginning with the field where it is one.
    pub reason: String,
}

/// Characters of a reviewer's name and of a remark at most.
const LONGEST: usize = 4096;

/// Reads a sample that was filled in: JSON lines with `handoff_id`, `labels` and, where wanted, `reviewer` and `note`. What
/// else stands there is for the reviewer and not looked at. Lines that say nothing give no label. `reviewer` is of the
/// lines that name none; `known` says whether there is such a transfer.
///
/// # Errors
/// At the first line that is wrong.
pub fn parse(
    file: &str,
    text: &str,
    reviewer: Option<&str>,
    known: impl Fn(&str) -> bool,
) -> Result<Vec<Label>, LabelError> {
    let mut out: Vec<Label> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let label = label(line, reviewer).and_then(|l| match known(&l.handoff_id) {
            true => Ok(l),
            false => Err(format!("handoff_id: no transfer of the store has the id {}", plain(&l.handoff_id))),
        });
        let label = label.map_err(|reason| LabelError { file: file.to_owned(), line: i + 1, reason })?;
        if label.says.iter().all(Option::is_none) {
            continue;
        }
        // The later line counts.
        let place = *places.entry((label.handoff_id.clone(), label.reviewer.clone())).or_insert(out.len());
        match out.get_mut(place) {
            Some(earlier) => *earlier = label,
            None => out.push(label),
        }
    }
    Ok(out)
}

fn label(line: &str, reviewer: Option<&str>) -> Result<Label, String> {
    let v: Value = serde_json::from_str(line).map_err(|e| format!("no JSON: {e}"))?;
    let m = v.as_object().ok_or("an object is expected")?;
    let handoff_id = text(m, "handoff_id")?.filter(|t| !t.is_empty()).ok_or("handoff_id: is missing")?;
    let labels = match m.get("labels") {
        Some(Value::Object(l)) => l,
        Some(_) => return Err("labels: an object is expected".to_owned()),
        None => return Err("labels: is missing".to_owned()),
    };
    let mut says = [None; JUDGED.len()];
    for (name, v) in labels {
        let Some(k) = JUDGED.iter().position(|j| j.name == name) else {
            let known = JUDGED.map(|j| j.name).join(", ");
            return Err(format!("labels.{name}: is none of {known}"));
        };
        says[k] = match v {
            Value::Bool(b) => Some(*b),
            Value::Null => None,
            other => return Err(format!("labels.{name}: true, false or null is expected, not {other}")),
        };
    }
    let named = text(m, "reviewer")?.filter(|t| !t.is_empty());
    Ok(Label { handoff_id, reviewer: named.or(reviewer.map(str::to_owned)), says, note: text(m, "note")? })
}

fn text(m: &Map<String, Value>, field: &str) -> Result<Option<String>, String> {
    match m.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(s)) if s.len() > LONGEST => Err(format!("{field}: longer than {LONGEST} bytes")),
        Some(Value::String(s)) => Ok(Some(s.clone())),
        Some(_) => Err(format!("{field}: text is expected")),
    }
}

fn schema() -> SchemaRef {
    let utc = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    let mut fields = vec![
        Field::new("handoff_id", DataType::Utf8View, false),
        Field::new("reviewer", DataType::Utf8View, true),
        Field::new("labelled_at", utc, false),
    ];
    fields.extend(JUDGED.map(|j| Field::new(j.name, DataType::Boolean, true)));
    fields.push(Field::new("note", DataType::Utf8View, true));
    Arc::new(Schema::new(fields))
}

/// Where labels lie in a store.
pub(crate) const FOLDER: &str = "labels";

/// Keeps labels in a store, a folder or a URL, all or none of them. `now` is in nanoseconds since 1970.
///
/// # Errors
/// Where the file cannot be written.
pub async fn keep(store: &Path, labels: &[Label], now: i64) -> Result<()> {
    let texts = |get: fn(&Label) -> Option<&str>| -> ArrayRef {
        Arc::new(labels.iter().map(get).collect::<StringViewArray>())
    };
    let times = TimestampNanosecondArray::from(vec![now; labels.len()]).with_timezone("UTC");
    let mut columns =
        vec![texts(|l| Some(&l.handoff_id)), texts(|l| l.reviewer.as_deref()), Arc::new(times) as ArrayRef];
    for k in 0..JUDGED.len() {
        columns.push(Arc::new(labels.iter().map(|l| l.says[k]).collect::<BooleanArray>()));
    }
    columns.push(texts(|l| l.note.as_deref()));
    let rows = RecordBatch::try_new(schema(), columns)?;
    let mut bytes = Vec::new();
    let mut w = ArrowWriter::try_new(&mut bytes, schema(), None)?;
    w.write(&rows)?;
    w.close()?;
    let hash = sha256_hex(&bytes);
    let name = format!("{FOLDER}/{now:020}-{}.parquet", hash.get(..8).unwrap_or_default());
    Place::open(store)?.keep(&name, bytes).await
}

/// Of several labels of one transfer by one reviewer the last.
const LAST: &str = "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY handoff_id, reviewer ORDER BY labelled_at DESC) \
     AS nth FROM every_label) WHERE nth = 1";

/// The files of labels, to be read on this machine.
///
/// # Errors
/// Where they cannot be listed or fetched.
pub(crate) async fn files(place: &Place) -> Result<Local> {
    let hidden = |name: &str| name.rsplit('/').next().is_none_or(|n| n.starts_with('.'));
    let found = place.list(FOLDER).await?.into_iter().map(|f| f.name);
    place.local(&found.filter(|n| n.ends_with(".parquet") && !hidden(n)).collect::<Vec<_>>()).await
}

/// Makes the labels in files a table.
pub(crate) async fn register(ctx: &SessionContext, files: &[PathBuf]) -> Result<()> {
    let files: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
    if files.is_empty() {
        let empty = RecordBatch::new_empty(schema());
        ctx.register_table("labels", Arc::new(MemTable::try_new(schema(), vec![vec![empty]])?))?;
        return Ok(());
    }
    let fields = schema();
    let all = ctx.read_parquet(files, ParquetReadOptions::default().schema(&fields)).await?;
    ctx.register_table("every_label", all.into_view())?;
    let last = ctx.sql(LAST).await?.drop_columns(&["nth"])?;
    ctx.deregister_table("every_label")?;
    ctx.register_table("labels", last.into_view())?;
    Ok(())
}

/// How labels and automatic verdicts of one thing agree. True is positive; the label is taken for the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Agreement {
    /// Both say yes.
    pub both: u64,
    /// Baton says yes, the label no.
    pub only_verdict: u64,
    /// Baton says no, the label yes.
    pub only_label: u64,
    /// Both say no.
    pub neither: u64,
    /// Labels for which Baton does not know. They are in no figure below.
    pub unknown: u64,
}

impl Agreement {
    /// Takes in one label and the verdict beside it.
    pub fn add(&mut self, label: bool, verdict: Option<bool>) {
        let count = match (label, verdict) {
            (true, Some(true)) => &mut self.both,
            (false, Some(true)) => &mut self.only_verdict,
            (true, Some(false)) => &mut self.only_label,
            (false, Some(false)) => &mut self.neither,
            (_, None) => &mut self.unknown,
        };
        *count += 1;
    }

    /// Labels with a known verdict.
    pub fn compared(&self) -> u64 {
        self.both + self.only_verdict + self.only_label + self.neither
    }

    /// Of what Baton found, the share that the labels confirm; `None`: Baton found nothing.
    pub fn precision(&self) -> Option<f64> {
        share(self.both, self.both + self.only_verdict)
    }

    /// Of what the labels found, the share that Baton found; `None`: the labels found nothing.
    pub fn recall(&self) -> Option<f64> {
        share(self.both, self.both + self.only_label)
    }

    /// Cohen's kappa: agreement beyond that of chance, from -1 to 1. `None`: nothing was compared, or both sides gave one
    /// and the same answer throughout, so that chance alone explains it all.
    pub fn kappa(&self) -> Option<f64> {
        let n = self.compared() as f64;
        let (verdict, label) = (self.both + self.only_verdict, self.both + self.only_label);
        let (no_verdict, no_label) = (self.compared() - verdict, self.compared() - label);
        let observed = share(self.both + self.neither, self.compared())?;
        // All of both sides' answers are one answer.
        if (verdict == 0 && label == 0) || (no_verdict == 0 && no_label == 0) {
            return None;
        }
        let chance = (verdict as f64 * label as f64 + no_verdict as f64 * no_label as f64) / (n * n);
        Some((observed - chance) / (1.0 - chance))
    }
}

fn share(n: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| n as f64 / of as f64)
}

/// The agreement over all labels of a store.
#[derive(Debug, Default)]
pub struct Agreements {
    /// Labels that count.
    pub labels: u64,
    /// Those of them whose transfer is not in the store any more.
    pub gone: u64,
    /// Reviewers, the unnamed one included.
    pub reviewers: u64,
    /// By judged thing, in the order of [`JUDGED`].
    pub things: [Agreement; JUDGED.len()],
}

/// Compares what is kept with what Baton says now.
///
/// # Errors
/// The engine's.
pub async fn agreement(session: &Session) -> Result<Agreements> {
    let automatic = Automatic::new(session).await?;
    let mut out = Agreements::default();
    let mut reviewers = std::collections::HashSet::new();
    let mut rows = Stream::new(session, "SELECT * FROM labels").await?;
    while rows.advance().await? {
        let r = rows.row();
        out.labels += 1;
        reviewers.insert(r.text("reviewer").map(str::to_owned));
        let Some(verdicts) = r.text("handoff_id").and_then(|id| automatic.of(id)) else {
            out.gone += 1;
            continue;
        };
        for ((j, v), a) in JUDGED.iter().zip(verdicts).zip(&mut out.things) {
            if let Some(label) = r.flag(j.name) {
                a.add(label, v.ok());
            }
        }
    }
    out.reviewers = reviewers.len() as u64;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(both: u64, only_verdict: u64, only_label: u64, neither: u64) -> Agreement {
        Agreement { both, only_verdict, only_label, neither, unknown: 0 }
    }

    fn near(found: Option<f64>, by_hand: f64) {
        assert!(found.is_some_and(|x| (x - by_hand).abs() < 1e-12), "{found:?} and not {by_hand}");
    }

    #[test]
    fn figures_are_those_worked_out_by_hand() {
        // 50 labels. Observed 35/50 = 0.7; chance (25*30 + 25*20)/2500 = 0.5; kappa (0.7-0.5)/0.5 = 0.4.
        let a = of(20, 5, 10, 15);
        near(a.precision(), 0.8);
        near(a.recall(), 2.0 / 3.0);
        near(a.kappa(), 0.4);
        // Nothing but disagreement, evenly: observed 0, chance (2*2 + 2*2)/16 = 0.5; kappa -1.
        near(of(0, 2, 2, 0).kappa(), -1.0);
        // All agree, on both answers.
        near(of(3, 0, 0, 4).kappa(), 1.0);
        // One side says yes to all: observed 3/4, chance (4*3 + 0*1)/16 = 3/4; kappa 0, and defined.
        near(of(3, 1, 0, 0).kappa(), 0.0);
    }

    #[test]
    fn what_cannot_be_known_is_not_a_number() {
        let nothing = Agreement::default();
        assert_eq!((nothing.precision(), nothing.recall(), nothing.kappa()), (None, None, None));
        // Both always say no: no share has a denominator, and chance explains it all.
        let no = of(0, 0, 0, 9);
        assert_eq!((no.precision(), no.recall(), no.kappa()), (None, None, None));
        // Both always say yes.
        assert_eq!(of(9, 0, 0, 0).kappa(), None);
        near(of(9, 0, 0, 0).precision(), 1.0);
    }

    #[test]
    fn a_verdict_that_is_unknown_is_no_disagreement() {
        let mut a = Agreement::default();
        for (label, verdict) in [(true, Some(true)), (true, None), (false, None), (false, Some(true))] {
            a.add(label, verdict);
        }
        assert_eq!(a, Agreement { both: 1, only_verdict: 1, unknown: 2, ..Agreement::default() });
        assert_eq!(a.compared(), 2);
    }

    #[test]
    fn lines_are_read_and_the_later_one_of_a_reviewer_counts() {
        let text = r#"{"handoff_id":"a","labels":{"leak":true},"reviewer":"ann","payload":{"text":"x"}}

{"handoff_id":"a","labels":{"leak":true,"complete":null}}
{"handoff_id":"b","labels":{"leak":null}}
{"handoff_id":"a","labels":{"leak":false},"reviewer":"ann","note":"on a second look"}
"#;
        let found = parse("f", text, Some("bob"), |_| true);
        let label = |who: &str, leak, note: Option<&str>| Label {
            handoff_id: "a".to_owned(),
            reviewer: Some(who.to_owned()),
            says: [None, None, Some(leak), None, None],
            note: note.map(str::to_owned),
        };
        assert_eq!(found, Ok(vec![label("ann", false, Some("on a second look")), label("bob", true, None)]));
    }

    #[test]
    fn a_wrong_line_is_named_with_its_field() {
        let good = r#"{"handoff_id":"a","labels":{"leak":true}}"#;
        for (line, why) in [
            ("{", "no JSON"),
            ("[]", "an object is expected"),
            (r#"{"labels":{}}"#, "handoff_id: is missing"),
            (r#"{"handoff_id":7,"labels":{}}"#, "handoff_id: text is expected"),
            (r#"{"handoff_id":"a"}"#, "labels: is missing"),
            (r#"{"handoff_id":"a","labels":[]}"#, "labels: an object is expected"),
            (r#"{"handoff_id":"a","labels":{"leaks":true}}"#, "labels.leaks: is none of constraint_lost, "),
            (r#"{"handoff_id":"a","labels":{"leak":"yes"}}"#, "labels.leak: true, false or null is expected"),
            (r#"{"handoff_id":"b","labels":{}}"#, "handoff_id: no transfer of the store has the id b"),
            (r#"{"handoff_id":"a","labels":{},"reviewer":1}"#, "reviewer: text is expected"),
        ] {
            let known = |id: &str| id == "a";
            let found =
                parse("f.jsonl", &format!("{good}\n{line}\n"), None, known).map_err(|e| e.to_string());
            assert!(found.as_ref().is_err_and(|e| e.starts_with(&format!("f.jsonl:2: {why}"))), "{found:?}");
        }
    }
}
