//! What a collector stores can be asked for soon, over connections that were there before.

use std::time::Duration;

use super::{Endpoint, rows, run, stdout, until};

#[tokio::test(flavor = "multi_thread")]
async fn new_spans_are_seen_within_fifteen_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let endpoint = Endpoint::start("up", &store, "", &[]);
    let client = endpoint.connect().await;
    let prepared = client.prepare("SELECT COUNT(*) FROM spans").await.unwrap();
    let count = async || client.query_one(&prepared, &[]).await.map_or(-1, |r| r.get::<_, i64>(0));
    assert_eq!(count().await, 0);
    let to = format!("grpc://{}", endpoint.grpc.unwrap());
    let mut sent = 0;
    for seed in ["1", "2"] {
        let out = run(&["generate", "--spans", "500", "--seed", seed, "--to", &to]);
        assert!(out.status.success(), "{out:?}");
        sent += stdout(&out).split_whitespace().next().and_then(|n| n.parse::<i64>().ok()).unwrap();
        until("the spans are there", Duration::from_secs(15), async || {
            rows(&client, "SELECT COUNT(*) FROM spans").await == [[sent.to_string()]]
        })
        .await;
    }
    let [tasks, sums] =
        ["SELECT COUNT(*) FROM tasks", "SELECT SUM(subjects) FROM measure_sums WHERE measure = 'partial'"]
            .map(|sql| rows(&client, sql));
    let (tasks, sums) = (tasks.await, sums.await);
    assert!(tasks == sums && tasks[0][0] != "0", "{tasks:?} {sums:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_others_made_anew_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::over_samples(folder.path(), "refresh = \"1s\"\n");
    let client = endpoint.connect().await;
    assert_eq!(rows(&client, "SELECT COUNT(*) FROM tasks").await, [["16"]]);
    let store = folder.path().join("store");
    std::fs::remove_dir_all(store.join("tables")).unwrap();
    // Seen by itself, and where somebody else was faster.
    assert!(run(&["sql", "--store", store.to_str().unwrap(), "SELECT 1"]).status.success());
    until("the tables are read again", Duration::from_secs(30), async || {
        client.simple_query("SELECT MIN(start) FROM tasks").await.is_ok()
    })
    .await;
    assert_eq!(rows(&client, "SELECT COUNT(*) FROM tasks").await, [["16"]]);
}
