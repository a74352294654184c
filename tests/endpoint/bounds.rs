//! One statement, one client, or many of them cannot take the server away from the others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tokio_postgres::NoTls;

use super::{Endpoint, connect, refusal, rows, told, until};

/// Runs for minutes where nothing ends it.
const LONG: &str =
    "SELECT SUM(a.value * b.value) FROM generate_series(1, 10000000) a, generate_series(1, 1000000) b";
const MEMORY_HUNGRY: &str = "SELECT COUNT(*) FROM (SELECT a.value AS x, b.value AS y, repeat('x', 1000) || a.value AS t FROM generate_series(1, 100000) a, \
                             generate_series(1, 1000) b ORDER BY t, y LIMIT 100000000) s JOIN (SELECT value AS v, repeat('y', 1000) || value AS u FROM \
                             generate_series(1, 10000000)) r ON s.t = r.u";

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_ends_at_the_servers_limit_and_at_the_clients() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::over_samples(folder.path(), "statement_timeout = \"3s\"\n");
    let client = endpoint.connect().await;
    let began = Instant::now();
    let end = refusal(&client, LONG).await;
    assert!(end.starts_with("57014") && end.contains("3s"), "{end}");
    assert!(began.elapsed() >= Duration::from_secs(3));
    // Not more than the server allows, with or without a number.
    for asked in ["10min", "0"] {
        client.batch_execute(&format!("SET statement_timeout = '{asked}'")).await.unwrap();
        assert!(refusal(&client, LONG).await.contains("3s"));
    }
    client.batch_execute("SET statement_timeout = '300ms'").await.unwrap();
    let extended = told(&client.query(LONG, &[]).await.unwrap_err());
    assert!(extended.starts_with("57014") && extended.contains("300ms"), "{extended}");
    // Nothing goes on in the background.
    idle(&endpoint).await;
    assert_eq!(rows(&client, "SELECT 1").await, [["1"]]);
}

/// Waits until the process works no more.
async fn idle(endpoint: &Endpoint) {
    until("the process rests", Duration::from_secs(30), async || {
        let before = endpoint.worked();
        tokio::time::sleep(Duration::from_millis(500)).await;
        endpoint.worked() - before < Duration::from_millis(150)
    })
    .await;
}

/// A join that finds nothing, and rows that come of rows: neither ever gives anything back.
const NEVER: [&str; 3] = [
    "SELECT COUNT(*) FROM generate_series(1, 10000000) a, generate_series(1, 1000000) b WHERE a.value * b.value < 0",
    "SELECT COUNT(*) FROM generate_series(1, 10000000) a LEFT JOIN generate_series(1, 1000000) b ON a.value * b.value < 0 WHERE b.value > 0",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT COUNT(*) FROM t",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_gives_nothing_back_ends_too() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::over_samples(folder.path(), "");
    let client = endpoint.connect().await;
    client.batch_execute("SET statement_timeout = '500ms'").await.unwrap();
    for sql in NEVER {
        let end = refusal(&client, sql).await;
        assert!(end.starts_with("57014"), "{sql}: {end}");
        idle(&endpoint).await;
    }
    // The next one is not mistaken for one that was ended.
    let pairs = "SELECT COUNT(*) FROM generate_series(1, 10) a, generate_series(1, 10) b WHERE a.value + b.value > 15";
    assert_eq!(rows(&client, pairs).await, [["15"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_that_make_much_of_little_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::over_samples(folder.path(), "");
    let client = endpoint.connect().await;
    let before = endpoint.memory();
    for sql in [
        "SELECT repeat('x', 2000000000)",
        "SELECT length(repeat(task_id, 1000000000)) FROM tasks",
        "SELECT lpad('x', 2000000000)",
        "SELECT rpad('x', 2000000000, 'y')",
        "SELECT array_repeat(1, 2000000000)",
        "SELECT array_length(range(1, 100000000000))",
        "SELECT COUNT(*) FROM unnest(range(1, 1000000000))",
    ] {
        let end = refusal(&client, sql).await;
        assert!(end.starts_with("53200"), "{sql}: {end}");
    }
    assert!(endpoint.memory() < before + 300, "{} and then {} MiB", before, endpoint.memory());
    let small = "SELECT repeat('ab', 2), lpad('x', 3), rpad('x', 3, 'y'), array_repeat(1, 2), range(1, 4), array_length(range(5))";
    assert_eq!(rows(&client, small).await, [["abab", "  x", "xyy", "{1,1}", "{1,2,3}", "5"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_ends_where_it_is_cancelled_and_where_the_client_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::over_samples(folder.path(), "");
    let client = endpoint.connect().await;
    let cancel = client.cancel_token();
    let running = tokio::spawn(async move {
        let end = told(&client.simple_query(LONG).await.unwrap_err());
        (client, end)
    });
    tokio::time::sleep(Duration::from_millis(700)).await;
    cancel.cancel_query(NoTls).await.unwrap();
    let (client, end) = tokio::time::timeout(Duration::from_secs(10), running).await.unwrap().unwrap();
    assert_eq!(end, "57014 canceling statement due to user request");
    assert_eq!(rows(&client, "SELECT 1").await, [["1"]]);
    idle(&endpoint).await;

    // A client that goes away in the middle.
    let (gone, connection) = endpoint.config().connect(NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let asking = tokio::spawn(async move { gone.simple_query(LONG).await.map(|_| ()) });
    tokio::time::sleep(Duration::from_millis(700)).await;
    connection.abort();
    asking.abort();
    idle(&endpoint).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heavy_statement_neither_fills_the_memory_nor_starves_others() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint =
        Endpoint::over_samples(folder.path(), "statement_timeout = \"12s\"\nmemory_limit = \"64MiB\"\n");
    let heavy = endpoint.connect().await;
    let heavy = tokio::spawn(async move { told(&heavy.simple_query(MEMORY_HUNGRY).await.unwrap_err()) });
    let light = endpoint.connect().await;
    let (mut most, mut meanwhile) = (0, 0);
    while !heavy.is_finished() {
        assert_eq!(rows(&light, "SELECT COUNT(*) FROM tasks").await, [["16"]]);
        most = most.max(endpoint.memory());
        meanwhile += u32::from(!heavy.is_finished());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let end = heavy.await.unwrap();
    assert!(end.starts_with("53200") || end.starts_with("57014"), "{end}");
    // Others were answered while it ran. How often depends on the machine.
    assert!(meanwhile > 0);
    assert!(most < 700, "{most} MiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_are_bounded_and_the_others_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::over_samples(folder.path(), "connections = 50\n");
    let mut held = Vec::new();
    let mut refused = Vec::new();
    for _ in 0..1000 {
        match connect(&endpoint.config()).await {
            Ok(c) => held.push(c),
            Err(e) => refused.push(told(&e)),
        }
    }
    assert_eq!((held.len(), refused.len()), (50, 950));
    assert!(refused.iter().all(|r| r.starts_with("53300 too many connections")), "{:?}", refused[0]);
    assert!(endpoint.memory() < 500, "{} MiB", endpoint.memory());
    assert_eq!(rows(&held[0], "SELECT 1").await, [["1"]]);
    // A place that is given back is taken again.
    held.truncate(10);
    until("there is room", Duration::from_secs(10), async || connect(&endpoint.config()).await.is_ok()).await;
    assert_eq!(endpoint.said().matches("all 50 connections are taken").count(), 1, "{}", endpoint.said());
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_too_long_or_no_messages_end_the_connection_alone() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::over_samples(folder.path(), "");
    let long = format!("SELECT '{}'", "x".repeat(8 << 20));
    let client = endpoint.connect().await;
    assert!(client.simple_query(&long).await.is_err());
    // A length that is promised and never comes is not waited for in memory.
    let mut raw = TcpStream::connect(endpoint.sql).unwrap();
    raw.write_all(&[0x16, 3, 1, 255, 255]).unwrap();
    raw.write_all(&[0; 64]).unwrap();
    raw.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    let mut end = Vec::new();
    let _ = raw.read_to_end(&mut end);
    // Deep and wide statements are told to be wrong, not died of.
    let client = endpoint.connect().await;
    let deep = format!("SELECT {}1{}", "(".repeat(20_000), ")".repeat(20_000));
    let told = refusal(&client, &deep).await;
    assert!(told.starts_with("42601"), "{told}");
    let wide = format!("SELECT 1 WHERE 1 IN ({})", vec!["1"; 100_000].join(","));
    assert_eq!(rows(&client, &wide).await, [["1"]]);
    assert!(endpoint.memory() < 700, "{} MiB", endpoint.memory());
}

#[test]
fn who_says_nothing_is_not_waited_for_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::over_samples(folder.path(), "");
    let mut silent = TcpStream::connect(endpoint.sql).unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let began = Instant::now();
    assert_eq!(silent.read(&mut [0; 16]).unwrap_or(0), 0);
    assert!(began.elapsed() < Duration::from_secs(25));
}
