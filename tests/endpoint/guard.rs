//! Only reading, whatever a statement is wrapped in.

use super::{Endpoint, refusal, rows, told};

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_read_is_refused_over_both_protocols() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::over_samples(folder.path(), "");
    let client = endpoint.connect().await;
    let file = folder.path().join("out.csv");
    let copy = format!("COPY (SELECT 1) TO '{}'", file.display());
    let statements = [
        ("25006", copy.as_str()),
        ("25006", "COPY tasks FROM '/etc/passwd'"),
        ("25006", "INSERT INTO tasks SELECT * FROM tasks"),
        ("25006", "UPDATE tasks SET service = 'x'"),
        ("25006", "DELETE FROM handoffs"),
        ("25006", "TRUNCATE handoffs"),
        ("25006", "DROP TABLE handoffs"),
        ("25006", "ALTER TABLE handoffs ADD COLUMN x int"),
        ("25006", "CREATE TABLE x AS SELECT 1"),
        ("25006", "CREATE VIEW x AS SELECT 1"),
        ("25006", "CREATE SCHEMA x"),
        ("25006", "CREATE DATABASE x"),
        ("25006", "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'select 1'"),
        ("25006", "SELECT * INTO x FROM tasks"),
        ("25006", "WITH x AS (DELETE FROM tasks RETURNING 1) SELECT * FROM x"),
        ("25006", "WITH x AS (INSERT INTO tasks SELECT * FROM tasks RETURNING 1) SELECT * FROM x"),
        ("25006", "EXPLAIN ANALYZE DELETE FROM tasks"),
        ("25006", "EXPLAIN SELECT * INTO x FROM tasks"),
        ("25006", "DECLARE c CURSOR FOR SELECT * INTO x FROM tasks"),
        ("25006", "PREPARE p AS DELETE FROM tasks"),
        ("25006", "GRANT ALL ON tasks TO reader"),
        ("42501", "SET datafusion.runtime.memory_limit = '100G'"),
        ("42501", "SET datafusion.runtime.temp_directory = '/tmp/x'"),
        ("42501", "SET \"datafusion\".\"catalog\".\"location\" = '/'"),
        ("42501", "SET SESSION datafusion.execution.target_partitions = 1000"),
    ];
    for (code, sql) in statements {
        let simple = refusal(&client, sql).await;
        assert!(simple.starts_with(code), "{sql}: {simple}");
        let extended = told(&client.prepare(sql).await.err().unwrap_or_else(|| panic!("{sql}: was taken")));
        assert!(extended.starts_with(code), "{sql}: {extended}");
    }
    // Two statements in one: the second is looked at too.
    assert!(refusal(&client, "SELECT 1; DROP TABLE tasks").await.starts_with("25006"));
    assert!(!file.exists());
    assert_eq!(rows(&client, "SELECT COUNT(*) FROM tasks").await, [["16"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outside_of_the_store_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::over_samples(folder.path(), "");
    let client = endpoint.connect().await;
    let csv = folder.path().join("secret.csv");
    std::fs::write(&csv, "a,b\n1,2\n").unwrap();
    let parquet = folder.path().join("store/tables/current/tasks/empty.parquet");
    assert!(parquet.exists());
    for sql in [
        format!("SELECT * FROM '{}'", csv.display()),
        format!("SELECT * FROM \"{}\"", csv.display()),
        format!("SELECT * FROM '{}'", parquet.display()),
        format!("SELECT * FROM read_csv('{}')", csv.display()),
        format!("SELECT * FROM parquet_metadata('{}')", parquet.display()),
        format!("SELECT pg_read_file('{}')", csv.display()),
        format!("SELECT * FROM pg_ls_dir('{}')", folder.path().display()),
        "SELECT * FROM '/proc/self/environ'".to_owned(),
        format!("CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '{}'", csv.display()),
        "LOAD '/tmp/x.so'".to_owned(),
    ] {
        let told = refusal(&client, &sql).await;
        assert!(!told.contains("1,2"), "{sql}: {told}");
    }
    // Settings of the engine, with its paths, are not shown either.
    assert!(client.simple_query("SELECT * FROM information_schema.df_settings").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_connection_sets_is_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::over_samples(folder.path(), "");
    let (a, b) = (endpoint.connect().await, endpoint.connect().await);
    a.batch_execute("SET statement_timeout = '1500ms'; SET application_name = 'a'; SET TIME ZONE 'UTC'")
        .await
        .unwrap();
    assert_eq!(rows(&a, "SHOW statement_timeout").await, [["1500ms"]]);
    assert_ne!(rows(&b, "SHOW statement_timeout").await, [["1500ms"]]);
    // What pools send between two uses.
    a.batch_execute("RESET ALL").await.unwrap();
    a.batch_execute("DISCARD ALL").await.unwrap();
    a.batch_execute("CLOSE ALL").await.unwrap();
}
