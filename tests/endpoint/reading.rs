//! Tables, types and numbers.

use std::time::SystemTime;

use serde_json::Value;

use super::{Endpoint, root, rows, run, stdout};

#[tokio::test(flavor = "multi_thread")]
async fn the_sums_give_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::over_samples(folder.path(), "");
    let client = endpoint.connect().await;
    let report: Value =
        serde_json::from_str(&stdout(&run(&["eval", "sample-traces", "--format", "json"]))).unwrap();
    let measures: Value = serde_json::from_str(&stdout(&run(&["measures", "--format", "json"]))).unwrap();
    let measures = measures["measures"].as_array().unwrap();
    assert_eq!(measures.len(), report["measures"].as_array().unwrap().len());
    for (m, told) in measures.iter().zip(report["measures"].as_array().unwrap()) {
        let name = m["name"].as_str().unwrap();
        assert_eq!(told["name"], m["name"]);
        let sums = rows(
            &client,
            &format!(
                "SELECT SUM(numerator), SUM(denominator), SUM(CASE WHEN unknown IS NOT NULL THEN subjects ELSE 0 END) \
                 FROM measure_sums WHERE measure = '{name}'"
            ),
        )
        .await;
        let view = rows(
            &client,
            &format!(
                "SELECT SUM(CASE WHEN unknown IS NULL THEN numerator END), SUM(CASE WHEN unknown IS NULL THEN denominator END), \
                 SUM(CASE WHEN unknown IS NOT NULL THEN 1 ELSE 0 END) FROM measure_{name} WHERE rated"
            ),
        )
        .await;
        assert_eq!(sums, view, "{name}");
        let [numerator, denominator, unknown] = [0, 1, 2].map(|i| sums[0][i].parse::<f64>().unwrap_or(0.0));
        let scale = m["scale"].as_f64().unwrap();
        assert_eq!(told["unknown"].as_f64().unwrap(), unknown, "{name}");
        assert_eq!(told["denominator"].as_f64().unwrap_or(0.0), denominator, "{name}");
        if denominator > 0.0 {
            let got = told["numerator"].as_f64().unwrap();
            assert!((got - numerator * scale).abs() < 1e-9 * got.abs().max(1.0), "{name}: {got} {numerator}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_table_has_columns_whose_types_clients_know() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::over_samples(folder.path(), "");
    let client = endpoint.connect().await;
    let tables = rows(
        &client,
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1",
    )
    .await;
    assert!(tables.len() > 40, "{tables:?}");
    for t in tables {
        let sql = format!("SELECT * FROM {} LIMIT 3", t[0]);
        let prepared = client.prepare(&sql).await.unwrap_or_else(|e| panic!("{sql}: {}", super::told(&e)));
        let known =
            ["text", "int8", "float8", "bool", "timestamptz", "_text", "int4", "bytea", "varchar", "_int8"];
        for c in prepared.columns() {
            let ty = c.type_().name();
            assert!(
                known.contains(&ty) || ty.starts_with('_') || t[0] == "spans",
                "{}.{}: {ty}",
                t[0],
                c.name()
            );
        }
        let binary =
            client.query(&prepared, &[]).await.unwrap_or_else(|e| panic!("{sql}: {}", super::told(&e)));
        assert_eq!(binary.len(), rows(&client, &sql).await.len(), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_come_as_what_they_are_in_text_and_binary() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::over_samples(folder.path(), "");
    let client = endpoint.connect().await;
    let row = client
        .query_one(
            "SELECT task_id, agents, start, completed, handoffs FROM tasks WHERE task_id = $1",
            &[&rows(&client, "SELECT task_id FROM tasks WHERE handoffs > 0 ORDER BY task_id LIMIT 1").await
                [0][0]],
        )
        .await
        .unwrap();
    let text = rows(
        &client,
        &format!(
            "SELECT agents, handoffs, completed FROM tasks WHERE task_id = '{}'",
            row.get::<_, String>(0)
        ),
    )
    .await;
    let agents: Vec<String> = row.get(1);
    assert!(
        !agents.is_empty() && agents.iter().all(|a| text[0][0].contains(a.as_str())),
        "{agents:?} {text:?}"
    );
    assert!(row.get::<_, SystemTime>(2) > SystemTime::UNIX_EPOCH);
    assert_eq!(
        (row.get::<_, i64>(4).to_string(), row.get::<_, bool>(3)),
        (text[0][1].clone(), text[0][2] == "t")
    );
    // Parameters of other kinds.
    let n = client
        .query_one(
            "SELECT COUNT(*) FROM handoffs WHERE time > $1 AND seq >= $2",
            &[&SystemTime::UNIX_EPOCH, &0i64],
        )
        .await
        .unwrap();
    assert_eq!(n.get::<_, i64>(0), 22);
}

#[test]
fn the_measures_as_json_are_those_of_the_table() {
    let json: Value = serde_json::from_str(&stdout(&run(&["measures", "--format", "json"]))).unwrap();
    for m in json["measures"].as_array().unwrap() {
        let name = m["name"].as_str().unwrap();
        let file = root().join(format!("analyzer/src/measures/{name}.sql"));
        assert_eq!(std::fs::read_to_string(file).unwrap(), m["sql"], "{name}");
        for key in ["subject", "good", "unit", "description"] {
            assert!(m[key].as_str().is_some_and(|t| !t.is_empty()), "{name}.{key}");
        }
    }
}
