//! What clients ask a Postgres server about itself: the catalog of `datafusion-postgres`, with what it lacks.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider, MemorySchemaProvider, SchemaProvider};
use datafusion::common::ScalarValue;
use datafusion::common::cast::as_string_array;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_postgres::datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_postgres::datafusion_pg_catalog::pg_catalog::setup_pg_catalog;

use super::fresh::Fresh;
use super::{DATABASE, bounds};
use crate::rules;
use crate::session::{Limits, Result};

/// The Postgres whose protocol and catalog are spoken.
pub(super) const SERVER_VERSION: &str = "16.6";
const SERVER_VERSION_NUM: &str = "160006";
const INFORMATION_SCHEMA: &str = "information_schema";

const SCHEMATA: &str = "\
SELECT 'baton' AS catalog_name, nspname AS schema_name, 'baton' AS schema_owner,
       CAST(NULL AS TEXT) AS default_character_set_catalog, CAST(NULL AS TEXT) AS sql_path
FROM pg_catalog.pg_namespace";

const TABLES: &str = "\
SELECT 'baton' AS table_catalog, n.nspname AS table_schema, c.relname AS table_name,
       CASE WHEN c.relkind = 'v' THEN 'VIEW' ELSE 'BASE TABLE' END AS table_type, 'NO' AS is_insertable_into
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v')";

const COLUMNS: &str = "\
SELECT 'baton' AS table_catalog, n.nspname AS table_schema, c.relname AS table_name, a.attname AS column_name,
       CAST(a.attnum AS INT) AS ordinal_position, CAST(NULL AS TEXT) AS column_default,
       CASE WHEN a.attnotnull THEN 'NO' ELSE 'YES' END AS is_nullable,
       format_type(a.atttypid, a.atttypmod) AS data_type, 'pg_catalog' AS udt_schema, t.typname AS udt_name,
       CAST(NULL AS INT) AS character_maximum_length,
       CAST(CASE t.typname WHEN 'int2' THEN 16 WHEN 'int4' THEN 32 WHEN 'int8' THEN 64 WHEN 'float4' THEN 24 WHEN 'float8' THEN 53 END AS INT) AS numeric_precision,
       CAST(CASE WHEN t.typname IN ('int2', 'int4', 'int8') THEN 0 END AS INT) AS numeric_scale,
       CAST(CASE WHEN t.typname LIKE 'time%' THEN 6 END AS INT) AS datetime_precision
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE a.attnum > 0 AND c.relkind IN ('r', 'v')";

/// A context over tables that may change, as clients of Postgres expect one.
pub(super) async fn context(
    runtime: Arc<RuntimeEnv>,
    limits: Limits,
    tables: Arc<Fresh>,
) -> Result<SessionContext> {
    let mut settings = SessionConfig::new()
        .with_target_partitions(limits.partitions)
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(DATABASE, "public");
    settings.options_mut().execution.collect_statistics = false;
    settings.options_mut().execution.parquet.pushdown_filters = true;
    let ctx = SessionContext::new_with_config_rt(settings, runtime);
    let catalog = Arc::new(MemoryCatalogProvider::new());
    catalog.register_schema("public", tables)?;
    ctx.register_catalog(DATABASE, catalog.clone());
    setup_pg_catalog(&ctx, DATABASE, EmptyContextProvider).map_err(|e| *e)?;
    ctx.register_udf(current_setting());
    for name in ["pg_advisory_unlock_all", "pg_advisory_unlock_shared"] {
        ctx.register_udf(nothing(name));
    }
    rules::register_functions(&ctx);
    bounds::bound_functions(&ctx);
    let views = Arc::new(MemorySchemaProvider::new());
    for (name, sql) in [("schemata", SCHEMATA), ("tables", TABLES), ("columns", COLUMNS)] {
        views.register_table(name.to_owned(), ctx.sql(sql).await?.into_view())?;
    }
    catalog.register_schema(INFORMATION_SCHEMA, views)?;
    Ok(ctx)
}

/// A function that pools of connections call to give back what was never taken.
fn nothing(name: &str) -> ScalarUDF {
    let none = |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(ScalarValue::Utf8(None)));
    create_udf(name, Vec::new(), DataType::Utf8, Volatility::Stable, Arc::new(none))
}

/// `current_setting(name)`: what drivers and Grafana ask for.
fn current_setting() -> ScalarUDF {
    let answer = |name: &str| match name {
        "server_version" => Some(SERVER_VERSION),
        "server_version_num" => Some(SERVER_VERSION_NUM),
        "search_path" => Some("public"),
        "TimeZone" | "timezone" => Some("UTC"),
        "server_encoding" | "client_encoding" => Some("UTF8"),
        "default_transaction_read_only" | "transaction_read_only" | "standard_conforming_strings" => {
            Some("on")
        }
        _ => None,
    };
    create_udf(
        "current_setting",
        vec![DataType::Utf8],
        DataType::Utf8,
        Volatility::Stable,
        Arc::new(move |args: &[ColumnarValue]| {
            let arrays = ColumnarValue::values_to_arrays(args)?;
            let [names] = arrays.as_slice() else {
                return datafusion::common::exec_err!("current_setting takes one name");
            };
            let out: StringArray = as_string_array(names)?.iter().map(|n| n.and_then(answer)).collect();
            Ok(ColumnarValue::Array(Arc::new(out) as ArrayRef))
        }),
    )
}
