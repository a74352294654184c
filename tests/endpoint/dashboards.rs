//! Every statement of the dashboards, as Grafana would send it with all values chosen. `dashboards/check.py` looks at the answers closely;
//! this one needs nothing but the tests' own driver.

use std::collections::BTreeSet;

use regex::{Captures, Regex};
use serde_json::Value;

use super::{Endpoint, root, rows, told};

/// Statements below a value of a dashboard: of panels, variables and annotations.
fn statements(value: &Value, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, inner) in fields {
                match inner.as_str() {
                    Some(sql) if key == "rawSql" || (key == "query" && sql.contains("SELECT")) => {
                        out.insert(sql.to_owned());
                    }
                    _ => statements(inner, out),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|v| statements(v, out)),
        _ => {}
    }
}

/// As Grafana expands macros and variables, over all times.
fn expanded(sql: &str, handoff: &str) -> String {
    let replace = |pattern: &str, text: String, with: &dyn Fn(&Captures<'_>) -> String| {
        Regex::new(pattern).unwrap().replace_all(&text, |c: &Captures<'_>| with(c)).into_owned()
    };
    let (from, to) = ("'2020-01-01T00:00:00Z'", "'2030-01-01T00:00:00.5Z'");
    let mut out = sql.replace("$__interval_ms", "300000").replace("$__interval", "5m");
    out = replace(r"\$__timeFilter\(([^)]*)\)", out, &|c| format!("{} BETWEEN {from} AND {to}", &c[1]));
    out = replace(r"\$__timeGroup(Alias)?\(([^,)]*),[^)]*\)", out, &|c| {
        let alias = if c.get(1).is_some() { " AS \"time\"" } else { "" };
        format!("floor(extract(epoch from {})/300)*300{alias}", &c[2])
    });
    out = replace(r"\$__timeFrom\(\)", out, &|_| from.to_owned());
    out = replace(r"\$__timeTo\(\)", out, &|_| to.to_owned());
    out = replace(r"\$\{__(from|to)[^}]*\}", out, &|c| {
        if &c[1] == "from" { "1577836800000" } else { "1893456000000" }.to_owned()
    });
    out = replace(r"\$\{\w+:sqlstring\}", out, &|_| format!("'{handoff}'"));
    replace(r"\$\{?(\w+)\}?", out, &|_| "'(all)'".to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_is_answered_over_both_protocols() {
    let mut all = BTreeSet::new();
    let mut boards = 0;
    for file in std::fs::read_dir(root().join("dashboards/grafana/dashboards")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        statements(&serde_json::from_str(&text).unwrap(), &mut all);
        boards += 1;
    }
    assert!(boards == 5 && all.len() > 50, "{boards} dashboards, {} statements", all.len());
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::over_samples(folder.path(), "");
    let client = endpoint.connect().await;
    let handoff = rows(&client, "SELECT handoff_id FROM leaks ORDER BY 1 LIMIT 1").await[0][0].clone();
    let (mut failed, mut answered) = (Vec::new(), 0);
    for sql in all.iter().filter(|s| s.contains("SELECT")) {
        let sql = expanded(sql, &handoff);
        match (client.simple_query(&sql).await, client.query(&sql, &[]).await) {
            (Ok(_), Ok(r)) => answered += usize::from(!r.is_empty()),
            (Err(e), _) | (_, Err(e)) => failed.push(format!("{}\n{sql}", told(&e))),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    assert!(answered * 3 > all.len() * 2, "{answered} of {} have rows", all.len());
}
