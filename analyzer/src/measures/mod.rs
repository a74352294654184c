//! The measures: one SQL file each, in a dialect that DuckDB runs unchanged over the same Parquet files.
//!
//! A measure's query gives one row per transfer or task: `id`, `rated` (counts in rates), `numerator`, `denominator` (whole
//! numbers) and `unknown` (why it cannot be known, else NULL). A rate over many rows is the sum of numerators by the
//! sum of denominators of the rated rows that are known.

/// What a row of a measure is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A transfer.
    Handoff,
    /// A task.
    Task,
}

/// Which way is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// More is better.
    Up,
    /// Less is better.
    Down,
    /// Neither.
    Neutral,
}

impl Direction {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Neutral => "-",
        }
    }
}

/// A measure.
#[derive(Debug, Clone, Copy)]
pub struct Measure {
    /// Name, as in METRICS and in reports.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// Which way is good.
    pub direction: Direction,
    /// What it says, in one sentence.
    pub description: &'static str,
    /// What a row is about.
    pub subject: Subject,
    /// The numerator is shown multiplied by this (nanoseconds as milliseconds).
    pub scale: f64,
    /// Its query.
    pub sql: &'static str,
}

macro_rules! measures {
    ($($name:literal $subject:ident $direction:ident $unit:literal $scale:literal $description:literal;)*) => {
        /// Every measure, in the order of reports.
        pub const ALL: &[Measure] = &[$(Measure {
            name: $name,
            unit: $unit,
            direction: Direction::$direction,
            description: $description,
            subject: Subject::$subject,
            scale: $scale,
            sql: include_str!(concat!($name, ".sql")),
        }),*];
    };
}

measures! {
    "completeness" Handoff Up "share" 1.0 "Required contract fields that the payload holds, of six.";
    "constraint_retention" Handoff Up "share" 1.0 "Hard constraints in force that the receiver got.";
    "constraint_retention_payload" Handoff Up "share" 1.0 "Hard constraints in force that the payload itself carries.";
    "constraint_survival" Handoff Up "share" 1.0 "Hard constraints of the first transfer that later receivers still got.";
    "context_items_before" Handoff Neutral "items per handoff" 1.0 "Items of the sender's context at the transfer.";
    "context_items_after" Handoff Down "items per handoff" 1.0 "Items that the receiver saw first.";
    "context_tokens_before" Handoff Neutral "tokens per handoff" 1.0 "Tokens of the sender's context at the transfer.";
    "context_tokens_after" Handoff Down "tokens per handoff" 1.0 "Tokens that the receiver saw first.";
    "filtered_items" Handoff Neutral "share" 1.0 "Items of the sender's context that the receiver did not get.";
    "added_items" Handoff Neutral "share" 1.0 "Items of the receiver's view that are new to it.";
    "duplicate_items" Handoff Down "share" 1.0 "Extra copies among the items that the receiver saw.";
    "payload_tokens" Handoff Neutral "tokens per handoff" 1.0 "Tokens of the payload.";
    "tool_calls_after" Handoff Neutral "calls per handoff" 1.0 "The receiver's own tool calls.";
    "redundant_tool_calls" Handoff Down "share" 1.0 "Of the receiver's calls, those that repeat what was done before.";
    "known_failure_retries" Handoff Down "share" 1.0 "Of the receiver's calls, those that had failed before.";
    "self_repeats" Handoff Down "share" 1.0 "Of the receiver's calls, those that repeat one of its own.";
    "lost_tool_results" Handoff Down "results per handoff" 1.0 "Results of the transfer's turn that no later message holds.";
    "artifact_reuse" Handoff Up "share" 1.0 "References in the payload that the receiver uses.";
    "time_to_first_correct_action_ms" Handoff Down "ms per handoff" 1e-6 "Time from the transfer to the receiver's first correct action.";
    "leaks" Handoff Down "leaks per handoff" 1.0 "Filtered tool content that survives in prose.";
    "retriage" Handoff Down "share" 1.0 "Transfers after which the receiver began again.";
    "bounces" Task Down "episodes per task" 1.0 "Episodes in which control went back with the same goal.";
    "redone_steps" Task Down "steps per task" 1.0 "Steps declared complete and carried out again.";
    "completed" Task Up "share" 1.0 "Tasks that reached a final answer.";
    "task_rework_free_rate" Task Up "share" 1.0 "Completed tasks in which nothing was done twice.";
    "wasted_tool_calls" Task Down "share" 1.0 "Tool calls spent on repeats and retries.";
    "wasted_tokens" Task Down "share" 1.0 "Tokens spent on repeats, retries and bounces.";
    "wasted_ms" Task Down "ms per task" 1e-6 "Time spent on repeats, retries and bounces.";
    "partial" Task Down "share" 1.0 "Tasks of which only a part is recorded.";
    "input_tokens" Task Neutral "tokens per task" 1.0 "Input tokens, each model call once.";
    "output_tokens" Task Neutral "tokens per task" 1.0 "Output tokens, each model call once.";
    "duplicate_inferences" Task Down "share" 1.0 "Recordings of model calls that repeat another one.";
}

impl Measure {
    /// The measure of a name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|m| m.name == name)
    }
}

/// The measures as JSON, for programs that make something of the list.
pub fn json() -> String {
    let measures: Vec<serde_json::Value> = ALL
        .iter()
        .map(|m| {
            serde_json::json!({
                "name": m.name,
                "subject": match m.subject {
                    Subject::Handoff => "handoff",
                    Subject::Task => "task",
                },
                "good": match m.direction {
                    Direction::Neutral => "neutral",
                    d => d.name(),
                },
                "unit": m.unit,
                "scale": m.scale,
                "description": m.description,
                "sql": m.sql,
            })
        })
        .collect();
    format!("{:#}", serde_json::json!({ "measures": measures }))
}

/// The measures as Markdown, for the README.
pub fn markdown() -> String {
    let mut out =
        String::from("| measure | a row is a | unit | good | what it says |\n|---|---|---|---|---|\n");
    for m in ALL {
        let subject = match m.subject {
            Subject::Handoff => "handoff",
            Subject::Task => "task",
        };
        out.push_str(&format!(
            "| [`{0}`](src/measures/{0}.sql) | {subject} | {1} | {2} | {3} |\n",
            m.name,
            m.unit,
            m.direction.name(),
            m.description
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sql_file_is_a_measure_and_says_what_it_is() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/measures");
        let mut files: Vec<String> = std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| e.file_name().to_str().and_then(|n| n.strip_suffix(".sql")).map(str::to_owned))
            .collect();
        files.sort();
        let mut names: Vec<String> = ALL.iter().map(|m| m.name.to_owned()).collect();
        names.sort();
        assert_eq!(files, names);
        for m in ALL {
            assert!(m.sql.starts_with("-- ") && m.description.ends_with('.'), "{}", m.name);
        }
    }
}
