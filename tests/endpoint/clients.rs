//! What clients send before a person asks anything: each statement as its client sends it, with what the answer must hold.

use super::{Endpoint, rows, told};

/// Grafana's PostgreSQL data source: the version, the tables and columns of its editor. The search path stands in twice.
fn grafana() -> Vec<(String, &'static str)> {
    let path = "quote_ident(table_schema) IN (\n SELECT\n CASE WHEN trim(s[i]) = '\"$user\"' THEN user ELSE trim(s[i]) END\n FROM\n generate_series(\n \
                array_lower(string_to_array(current_setting('search_path'),','),1),\n array_upper(string_to_array(current_setting('search_path'),','),1)\n ) as i,\n \
                string_to_array(current_setting('search_path'),',') s\n )";
    let hidden = "('information_schema', 'pg_catalog', '_timescaledb_cache', '_timescaledb_catalog', '_timescaledb_internal', '_timescaledb_config', \
                  'timescaledb_information', 'timescaledb_experimental')";
    vec![
        ("SELECT current_setting('server_version_num')::int/100 as version".to_owned(), "1600"),
        (
            format!("SELECT schema_name AS \"name\" FROM information_schema.schemata WHERE schema_name NOT IN {hidden} ORDER BY schema_name"),
            "public",
        ),
        (
            format!(
                "SELECT CASE WHEN {path} THEN quote_ident(table_name) ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS \"table\" \
                 FROM information_schema.tables WHERE quote_ident(table_schema) NOT IN {hidden} ORDER BY CASE WHEN {path} THEN 0 ELSE 1 END, 1"
            ),
            // With its schema: the search path is none that a client could set.
            "public.handoffs",
        ),
        (
            "SELECT quote_ident(table_name) AS \"table\" FROM information_schema.tables WHERE quote_ident(table_schema) = 'public' ORDER BY 1".to_owned(),
            "measure_sums",
        ),
        (
            format!(
                "SELECT quote_ident(column_name) AS \"column\", data_type AS \"type\" FROM information_schema.columns WHERE CASE WHEN \
                 array_length(parse_ident('public.handoffs'),1) = 2 THEN quote_ident(table_schema) = (parse_ident('public.handoffs'))[1] AND \
                 quote_ident(table_name) = (parse_ident('public.handoffs'))[2] ELSE quote_ident(table_name) = 'public.handoffs' AND {path} END"
            ),
            "timestamp with time zone",
        ),
    ]
}

/// What macros become, and the questions of variables, annotations and alerts.
const GRAFANA_QUERIES: [&str; 6] = [
    "SELECT floor(extract(epoch from \"time\")/300)*300 AS \"time\", SUM(numerator) * 1.0 / SUM(denominator) AS value FROM measure_sums \
     WHERE \"time\" BETWEEN '2020-01-01T00:00:00Z' AND '2030-01-01T00:00:00.123456789Z' AND measure = 'completeness' GROUP BY 1 ORDER BY 1",
    "SELECT \"time\" AS \"time\", to_agent AS metric, 1 AS value FROM handoffs WHERE \"time\" BETWEEN '2020-01-01T00:00:00Z' AND '2030-01-01T00:00:00Z' ORDER BY 1",
    "SELECT extract(epoch from \"time\") as \"time\", reason AS text, to_agent AS tags FROM handoffs WHERE \"time\" >= '2020-01-01T00:00:00Z'",
    "SELECT DISTINCT COALESCE(service, '(unnamed)') FROM handoffs WHERE COALESCE(to_agent, '(unnamed)') IN ('payments','it''s') OR true ORDER BY 1",
    "SELECT COUNT(*) FROM handoffs WHERE extract(epoch from \"time\") >= 1577836800 AND extract(epoch from \"time\") <= 1893456000",
    "SELECT floor((seq)/60)*60 AS \"time\", COUNT(*) FROM handoffs GROUP BY 1 ORDER BY 1",
];

#[tokio::test(flavor = "multi_thread")]
async fn grafana_checks_browses_and_asks() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::over_samples(folder.path(), "");
    let client = endpoint.connect().await;
    // The check of the data source: an empty statement, over both protocols.
    for empty in ["", ";", "-- ping"] {
        assert!(client.simple_query(empty).await.is_ok(), "{empty:?}");
    }
    assert!(client.execute("", &[]).await.is_ok());
    for (sql, holds) in grafana() {
        let answer = rows(&client, &sql).await;
        assert!(answer.iter().flatten().any(|c| c == holds), "{sql}\n{answer:?}");
    }
    // No time-series extension is announced, so that Grafana does not use its functions.
    let extension = "SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'";
    assert!(rows(&client, extension).await.is_empty());
    for sql in GRAFANA_QUERIES {
        assert!(!rows(&client, sql).await.is_empty(), "{sql}");
    }
    // The newer browser of tables and columns, with parameters.
    let schema = &"public";
    let tables = client
        .query(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = $1 AND table_type IN ('BASE TABLE', 'VIEW') ORDER BY table_name",
            &[schema],
        )
        .await
        .unwrap_or_else(|e| panic!("{}", told(&e)));
    assert!(tables.len() > 40);
    for t in tables {
        let name: &str = t.get(0);
        let columns = client
            .query(
                "SELECT column_name, data_type, udt_name, numeric_precision, numeric_scale FROM information_schema.columns \
                 WHERE table_schema = $1 AND table_name = $2 ORDER BY ordinal_position",
                &[schema, &name],
            )
            .await
            .unwrap_or_else(|e| panic!("{name}: {}", told(&e)));
        assert!(!columns.is_empty(), "{name}");
        for c in columns {
            let (ty, precision): (&str, Option<i32>) = (c.get(2), c.get(3));
            assert!(
                !ty.is_empty() && (ty == "int8") == (precision == Some(64)),
                "{name}: {ty} {precision:?}"
            );
        }
    }
    let values = "SELECT 'to_agent' AS col_name, \"to_agent\"::text AS val FROM (SELECT DISTINCT \"to_agent\" FROM \"public\".\"handoffs\" \
                  WHERE \"to_agent\" IS NOT NULL ORDER BY \"to_agent\" LIMIT 100) sub_0";
    assert!(rows(&client, values).await.len() > 3);
}

/// Other clients' first questions: drivers, DBeaver, Metabase, psql.
const FIRST: [(&str, &str); 19] = [
    ("JDBC", "SET extra_float_digits = 3"),
    ("JDBC", "SET application_name = 'PostgreSQL JDBC Driver'"),
    (
        "JDBC",
        "SELECT nspname AS TABLE_SCHEM, NULL AS TABLE_CATALOG FROM pg_catalog.pg_namespace WHERE nspname <> 'pg_toast' ORDER BY TABLE_SCHEM",
    ),
    ("JDBC", "SHOW TRANSACTION ISOLATION LEVEL"),
    ("DBeaver", "SELECT current_schema(),session_user"),
    ("DBeaver", "SHOW search_path"),
    ("DBeaver", "SELECT db.oid,db.* FROM pg_catalog.pg_database db WHERE datname='baton'"),
    (
        "DBeaver",
        "SELECT n.oid,n.*,d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=n.oid AND d.objsubid=0 ORDER BY nspname",
    ),
    (
        "DBeaver",
        "SELECT c.oid,c.*,d.description FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid=c.oid AND d.objsubid=0 WHERE c.relkind not in ('i','I','c')",
    ),
    ("DBeaver", "SELECT version()"),
    ("Metabase", "SELECT nspname FROM pg_namespace"),
    (
        "Metabase",
        "SELECT c.relname AS name, n.nspname AS schema FROM pg_class c JOIN pg_namespace n ON c.relnamespace = n.oid WHERE c.relkind IN ('r','v','m') AND n.nspname NOT IN ('pg_catalog','information_schema')",
    ),
    ("Metabase", "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"),
    ("asyncpg", "SELECT pg_backend_pid()"),
    (
        "psql",
        "SELECT n.nspname as \"Schema\", c.relname as \"Name\" FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r','p','v','') AND n.nspname <> 'pg_catalog' AND n.nspname !~ '^pg_toast' AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1,2",
    ),
    ("lib/pq", "SELECT t.typname FROM pg_catalog.pg_type t WHERE t.oid = 25"),
    ("SQLAlchemy", "select pg_catalog.version()"),
    ("SQLAlchemy", "show standard_conforming_strings"),
    ("SQLAlchemy", "SELECT 'x' AS some_label"),
];

#[tokio::test(flavor = "multi_thread")]
async fn other_clients_start_up() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::over_samples(folder.path(), "");
    let client = endpoint.connect().await;
    let mut failed = Vec::new();
    for (who, sql) in FIRST {
        if let Err(e) = client.simple_query(sql).await {
            failed.push(format!("{who}: {sql}: {}", told(&e)));
        }
        // Drivers prepare nearly everything.
        if let Err(e) = client.query(sql, &[]).await {
            failed.push(format!("{who}, prepared: {sql}: {}", told(&e)));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    // Transactions, cursors and errors inside of one.
    client.batch_execute("BEGIN READ ONLY; DECLARE c CURSOR FOR SELECT task_id FROM tasks ORDER BY task_id; FETCH 2 FROM c; CLOSE c; COMMIT").await.unwrap();
    client.batch_execute("BEGIN").await.unwrap();
    assert!(client.simple_query("SELECT nothing FROM nowhere").await.is_err());
    client.batch_execute("ROLLBACK").await.unwrap();
    // Codes that clients decide by.
    for (sql, code) in [
        ("SELEC 1", "42601"),
        ("SELECT * FROM nowhere", "42P01"),
        ("SELECT nothing FROM tasks", "42703"),
        ("SELECT nothing(1)", "42883"),
    ] {
        let e = super::refusal(&client, sql).await;
        assert!(e.starts_with(code), "{sql}: {e}");
    }
}
