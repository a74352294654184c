//! Broken constraints with who lost each (METRICS.md section 4), as views over the tables.
//!
//! A violation is a tool call that a rule of the configuration matches, or a judgement that failed and names a constraint. The
//! verdict on it is what its run knew of the constraint: `model` from the moment it saw it, before that where it was lost.

use baton_record::config::Config;
use datafusion::prelude::{DataFrame, SessionContext};

use crate::rules;
use crate::session::Result;

/// One row per violation: the columns of `violations`.
const VIOLATIONS: &str = "\
SELECT v.source, v.name, v.constraint_id, v.task_id, coalesce(v.handoff_id, c.handoff_id) AS handoff_id, v.run_id, v.agent, v.call, v.tool, v.time,
       CASE WHEN c.run_id IS NULL THEN 'unknown'
            WHEN c.seen_at <= v.time OR (v.time IS NULL AND c.seen_at IS NOT NULL) THEN 'model'
            ELSE c.verdict END AS verdict,
       CASE WHEN c.run_id IS NULL THEN 'which agent did it'
            WHEN c.seen_at <= v.time OR (v.time IS NULL AND c.seen_at IS NOT NULL) THEN NULL
            ELSE c.missing END AS missing,
       c.text
FROM (
    SELECT 'rule' AS source, rule AS name, constraint_id, task_id, handoff_id, run_id, agent, call, tool, time
    FROM rule_checks WHERE matched
    UNION ALL
    SELECT 'evaluation' AS source, e.name, e.constraint_id, e.task_id, e.handoff_id, e.run_id, e.agent, e.call, e.tool, e.time
    FROM evaluations e WHERE e.failed AND e.constraint_id IS NOT NULL
) v
LEFT JOIN run_constraints c
    ON c.task_id = v.task_id AND c.run_id = v.run_id AND c.constraint_id = v.constraint_id";

/// The columns of `rule_checks` where there is no rule.
const NO_RULES: &str = "\
SELECT '' AS rule, '' AS constraint_id, true AS matched, id AS call, task_id, run_id, agent, handoff_id, tool, start AS time
FROM tool_calls WHERE false";

/// The verdicts, in the order of reports.
pub const VERDICTS: [&str; 5] = ["state", "payload", "filter", "model", "unknown"];

/// Registers the views `rule_checks` and `violations`, and the functions of rules.
///
/// # Errors
/// A rule that is wrong, with its place; the engine's.
pub(crate) async fn register(ctx: &SessionContext, config: &Config) -> Result<()> {
    rules::register_functions(ctx);
    let checks = match rules::matches(ctx, config).await? {
        Some(c) => c,
        None => ctx.sql(NO_RULES).await?,
    };
    view(ctx, "rule_checks", checks)?;
    let violations = ctx.sql(VIOLATIONS).await?;
    view(ctx, "violations", violations)
}

fn view(ctx: &SessionContext, name: &str, rows: DataFrame) -> Result<()> {
    ctx.register_table(name, rows.into_view())?;
    Ok(())
}
