//! The rules of the policy catalogue: predicates over `tool_calls`, checked before anything is done with them.
//!
//! A predicate is an expression of the engine over one row of `tool_calls`. It may not ask other tables, and data cannot make
//! it fail: a value that is not of the type it is compared with is unknown, as one that is not there. `arg(args, 'days')`
//! reads an argument of the call.

use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use baton_record::config::{Config, ConfigError, Rule};
use baton_record::names::slug;
use baton_record::span::REDACTED;
use datafusion::arrow::array::{ArrayRef, AsArray, StringViewArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::config::Dialect;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{BinaryExpr, InList};
use datafusion::logical_expr::{
    Between, ColumnarValue, ExprSchemable, ScalarUDF, TryCast, Volatility, create_udf,
};
use datafusion::optimizer::analyzer::type_coercion::TypeCoercionRewriter;
use datafusion::prelude::{DataFrame, Expr, SessionContext, col, lit};
use datafusion::sql::sqlparser::ast as sql;
use serde_json::Value;

use crate::tables::{self, ToolCalls};

/// `arg(args, 'path')`: an argument of a call, as text.
static ARG: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| text_function("arg", 2, arg));
/// `slug(name)`: the form in which names of agents and tools are compared.
static SLUG: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| text_function("slug", 1, |v| v[0].map(slug)));

/// A function of texts, which gives NULL where its function does.
fn text_function(name: &str, n: usize, f: fn(&[Option<&str>]) -> Option<String>) -> Arc<ScalarUDF> {
    let run = move |values: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(values)?;
        let columns: Vec<&StringViewArray> = arrays.iter().filter_map(|a| a.as_string_view_opt()).collect();
        let rows = columns.first().map_or(0, |c| datafusion::arrow::array::Array::len(*c));
        let value = |row: usize| f(&columns.iter().map(|c| text(c, row)).collect::<Vec<_>>());
        let out: StringViewArray = (0..rows).map(value).collect();
        Ok(ColumnarValue::Array(Arc::new(out) as ArrayRef))
    };
    let types = vec![DataType::Utf8View; n];
    Arc::new(create_udf(name, types, DataType::Utf8View, Volatility::Immutable, Arc::new(run)))
}

fn text(c: &StringViewArray, row: usize) -> Option<&str> {
    use datafusion::arrow::array::Array;
    c.is_valid(row).then(|| c.value(row))
}

/// An argument by its name, or by a path of names and places with dots between. What is masked is not known.
fn arg(values: &[Option<&str>]) -> Option<String> {
    let (args, path) = (values.first().copied()??, values.get(1).copied()??);
    let all: Value = serde_json::from_str(args).ok()?;
    // A name may hold dots itself.
    let found = all.get(path).or_else(|| path.split('.').try_fold(&all, part))?;
    let text = match found {
        Value::Null => return None,
        Value::String(s) => s.clone(),
        other => other.to_string(),
    };
    (!text.contains(REDACTED)).then_some(text)
}

/// A member of an object by its name, or of a list by its place.
fn part<'v>(v: &'v Value, name: &str) -> Option<&'v Value> {
    match v {
        Value::Array(a) => a.get(name.parse::<usize>().ok()?),
        v => v.get(name),
    }
}

/// Makes the functions of rules known to questions in SQL, so that a predicate can be tried out.
pub(crate) fn register_functions(ctx: &SessionContext) {
    ctx.register_udf(ARG.as_ref().clone());
    ctx.register_udf(SLUG.as_ref().clone());
}

/// Checks the rules of a configuration.
///
/// # Errors
/// The first one that is no predicate over `tool_calls`, with its place.
pub fn check(config: &Config) -> Result<(), ConfigError> {
    if config.rules.is_empty() {
        return Ok(());
    }
    let ctx = SessionContext::new();
    register_functions(&ctx);
    config.rules.iter().try_for_each(|r| predicate(&ctx, r).map(drop))
}

/// The predicate of a rule, ready to be asked.
fn predicate(ctx: &SessionContext, rule: &Rule) -> Result<Expr, ConfigError> {
    let wrong = |e: DataFusionError| {
        let reason = e.strip_backtrace();
        rule.wrong(reason.lines().next().unwrap_or_default())
    };
    let fields = tables::schema_of(&ToolCalls::fields());
    let schema = DFSchema::try_from_qualified_schema(ToolCalls::NAME, &fields).map_err(wrong)?;
    let sql = ctx.state().sql_to_expr(&rule.predicate, &Dialect::Generic).map_err(wrong)?;
    let subquery = |e: &sql::Expr| match e {
        sql::Expr::Subquery(_) | sql::Expr::Exists { .. } | sql::Expr::InSubquery { .. } => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    };
    if sql::visit_expressions(&sql, subquery).is_break() {
        return Err(rule.wrong("holds a subquery; a rule sees one tool call"));
    }
    let parsed = ctx.parse_sql_expr(&rule.predicate, &schema).map_err(wrong)?.unalias_nested().data;
    if let Some(what) = forbidden(&parsed) {
        return Err(rule.wrong(what));
    }
    let expr = typed(parsed, &schema).map_err(wrong)?;
    match expr.get_type(&schema).map_err(wrong)? {
        DataType::Boolean => {}
        other => return Err(rule.wrong(&format!("is no condition, but a value of type {other}"))),
    }
    // What is constant in it is evaluated, and what the engine cannot do is seen.
    ctx.create_physical_expr(expr.clone(), &schema).map_err(wrong)?;
    Ok(expr)
}

/// What a predicate over one row may not hold.
fn forbidden(expr: &Expr) -> Option<&'static str> {
    let mut found = None;
    let _ = expr.apply(|e| {
        found = found.or(match e {
            Expr::AggregateFunction(_) | Expr::WindowFunction(_) | Expr::GroupingSet(_) => {
                Some("holds an aggregate; a rule sees one tool call")
            }
            Expr::Placeholder(_) => Some("holds a placeholder"),
            e if e.is_volatile_node() => Some("gives another answer each time"),
            _ => None,
        });
        Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
    });
    found
}

/// The expression with the types of its parts made equal, so that no value of the data can make it fail: what cannot be
/// converted is NULL. Text compared with a number is read as a number, with its fraction.
fn typed(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let is = |e: &Expr, test: fn(&DataType) -> bool| e.get_type(schema).is_ok_and(|t| test(&t));
    let number = |e: Box<Expr>, beside: bool| {
        if beside && is(&e, DataType::is_string) {
            Box::new(Expr::TryCast(TryCast::new(e, DataType::Float64)))
        } else {
            e
        }
    };
    let numeric = |e: &Expr| is(e, DataType::is_numeric);
    let read = expr.transform_up(|e| {
        Ok(Transformed::yes(match lenient(e) {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let (l, r) = (numeric(&left), numeric(&right));
                Expr::BinaryExpr(BinaryExpr { left: number(left, r), op, right: number(right, l) })
            }
            Expr::Between(Between { expr, negated, low, high }) => {
                let beside = numeric(&low) || numeric(&high);
                let low = number(low, numeric(&expr));
                Expr::Between(Between { expr: number(expr, beside), negated, low, high })
            }
            Expr::InList(InList { expr, list, negated }) => {
                let beside = list.iter().any(numeric);
                Expr::InList(InList { expr: number(expr, beside), list, negated })
            }
            other => other,
        }))
    })?;
    let coerced = read.data.rewrite(&mut TypeCoercionRewriter::new(schema))?;
    Ok(coerced.data.transform_up(|e| Ok(Transformed::yes(lenient(e))))?.data)
}

/// A conversion that gives NULL where it cannot be done.
fn lenient(e: Expr) -> Expr {
    match e {
        Expr::Cast(c) => Expr::TryCast(TryCast::new_from_field(c.expr, c.field)),
        other => other,
    }
}

/// The calls that rules speak of, a row for each rule and call: `rule`, `constraint_id`, `matched` (NULL: the rule cannot be
/// decided, since arguments are not known), and the columns of `tool_calls` that say which call it is.
///
/// # Errors
/// A rule that is no predicate, with its place; the engine's.
pub(crate) async fn matches(
    ctx: &SessionContext,
    config: &Config,
) -> Result<Option<DataFrame>, crate::session::Error> {
    let mut all: Option<DataFrame> = None;
    for rule in &config.rules {
        let matched = predicate(ctx, rule)?;
        // Arguments that are not whole: not captured, cut off, masked, or not kept.
        let args_unknown = col("args")
            .is_null()
            .or(col("args_digest").is_null())
            .or(col("args").like(lit(format!("%{REDACTED}%"))));
        let undecided = matched.clone().is_null().and(args_unknown);
        let mut calls = ctx.table(ToolCalls::NAME).await?;
        let bound = config.policies.iter().find(|p| p.constraint.id == rule.constraint);
        if let Some(p) = bound.filter(|p| !p.agents.is_empty()) {
            let names = p.agents.iter().map(|a| lit(a.as_str())).collect();
            calls = calls.filter(SLUG.call(vec![col("agent")]).in_list(names, false))?;
        }
        let part = calls.filter(matched.clone().is_true().or(undecided))?.select(vec![
            lit(rule.id.as_str()).alias("rule"),
            lit(rule.constraint.as_str()).alias("constraint_id"),
            matched.alias("matched"),
            col("id").alias("call"),
            col("task_id"),
            col("run_id"),
            col("agent"),
            col("handoff_id"),
            col("tool"),
            col("start").alias("time"),
        ])?;
        all = Some(match all {
            Some(a) => a.union(part)?,
            None => part,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(predicate: &str) -> Result<(), String> {
        let quoted = serde_json::to_string(predicate).unwrap_or_default();
        let text = format!(
            "[[constraints]]\nid = \"c\"\ntext = \"t\"\n[[rules]]\nid = \"r\"\nconstraint = \"c\"\nwhere = {quoted}\n"
        );
        let config = Config::parse("baton.toml", &text).map_err(|e| e.to_string())?;
        check(&config).map_err(|e| e.to_string())
    }

    #[test]
    fn a_condition_over_one_call_is_a_rule() {
        for good in [
            "tool = 'issue_refund'",
            "tool = 'issue_refund' AND arg(args, 'days') > 30",
            "CAST(arg(args, 'order.lines.0.amount') AS DOUBLE) BETWEEN 1 AND 2.5",
            "outcome <> 'error' AND arg(args, 'to') NOT IN ('a', 'b')",
            "tool_calls.agent IS NULL OR duration_ns / 1000 > 5",
            "start > '2026-01-01T00:00:00Z'",
            "regexp_like(args, 'DE[0-9]{20}')",
        ] {
            assert_eq!(check_one(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_its_place() {
        for (bad, part) in [
            ("tool = ", "SQL"),
            ("tool = 'a'; DROP TABLE tool_calls", "end of expression"),
            ("tool", "no condition"),
            ("arg(args, 'days') + 1", "no condition"),
            ("nope = 1", "nope"),
            ("nope(tool)", "nope"),
            ("EXISTS (SELECT 1)", "subquery"),
            ("tool IN (SELECT tool FROM tool_calls)", "subquery"),
            ("tool > ALL (SELECT tool FROM tool_calls)", "subquery"),
            ("tool = (SELECT MAX(tool) FROM tool_calls)", "subquery"),
            ("abs((SELECT 1)) = 1", "subquery"),
            ("COUNT(*) > 1", "aggregate"),
            ("random() > 0.5", "another answer"),
            ("tool = $1", "placeholder"),
            ("", "SQL"),
        ] {
            let e = check_one(bad).err().unwrap_or_default();
            assert!(e.starts_with("baton.toml:7:9: rules.where of `r`: ") && e.contains(part), "{bad}: {e}");
        }
    }

    #[test]
    fn arguments_are_read_by_name_and_path() {
        let args =
            r#"{"days":45,"a":{"b":[{"c":"x"}]},"a.b":"dotted","no":null,"iban":"DE [redacted]","ok":true}"#;
        let get = |path: &str| arg(&[Some(args), Some(path)]);
        assert_eq!(get("days").as_deref(), Some("45"));
        assert_eq!(get("a.b.0.c").as_deref(), Some("x"));
        assert_eq!(get("a.b").as_deref(), Some("dotted"));
        assert_eq!(get("a").as_deref(), Some(r#"{"b":[{"c":"x"}]}"#));
        assert_eq!(get("ok").as_deref(), Some("true"));
        // Not there, null, or masked.
        assert_eq!([get("no"), get("gone"), get("iban"), get("days.x")], [None, None, None, None]);
        assert_eq!(arg(&[None, Some("days")]), None);
        assert_eq!(arg(&[Some("{\"days\": 4"), Some("days")]), None);
    }
}
