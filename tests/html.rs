//! The HTML report says what the JSON report says, is bounded, and holds names as text. `tests/interop/report.py` opens it in a browser.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{root, run, stderr, stdout};

fn html(args: &[&str]) -> String {
    let o = run(&[&["eval", "--format", "html"], args].concat());
    assert!(o.status.success(), "{}", stderr(&o));
    stdout(&o)
}

/// What stands between two texts.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let rest = &text[text.find(from)? + from.len()..];
    rest.get(..rest.find(to)?)
}

/// The exact values in a piece of the page.
fn values(piece: &str) -> Vec<Option<f64>> {
    let values = piece.split(" value=\"").skip(1).filter_map(|v| v.split('"').next());
    values.map(|v| (v != "unknown").then(|| v.parse().unwrap())).collect()
}

#[test]
fn every_measure_has_the_value_of_the_json_report() {
    let page = html(&["sample-traces", "tests/cases/faults"]);
    let o = run(&["eval", "--format", "json", "sample-traces", "tests/cases/faults"]);
    let report: Value = serde_json::from_str(&stdout(&o)).unwrap();
    let measures = report["measures"].as_array().unwrap();
    assert!(measures.len() > 30 && measures.iter().any(|m| m["unknown"].as_i64() > Some(0)));
    for m in measures {
        let name = m["name"].as_str().unwrap();
        let row = between(&page, &format!("<tr id=\"m-{name}\">"), "</tr>").expect(name);
        assert_eq!(values(row), [m["value"].as_f64()], "{name}");
        let of = match m["denominator"].as_i64() {
            Some(d) => format!(" / {d}</td>"),
            None => "nothing known</td>".to_owned(),
        };
        assert!(row.contains(&of), "{name}: {of} is not in {row}");
        assert!(row.contains(&format!("<td class=\"n\">{}</td>", m["unknown"])), "{name}: {row}");
        // Where it is among the first, its card says the same.
        let card = format!("<li><h3>{}</h3>", name.trim_end_matches("_ms").replace('_', " "));
        if let Some(card) = between(&page, &card, "</li>") {
            assert_eq!(values(card), [m["value"].as_f64()], "the card of {name}");
        }
    }
    let cards = between(&page, "<ul class=\"tiles\">", "</ul>").unwrap();
    assert_eq!(values(cards).len(), 8);
}

#[test]
fn repeated_calls_by_tool_add_up_to_the_measures() {
    let page = html(&["sample-traces/openai-agents"]);
    let table = between(&page, "<h2 id=\"tools\">", "</section>").unwrap();
    let numbers = |row: &str| -> Vec<i64> {
        row.split("<td class=\"n\">").skip(1).filter_map(|c| c.split('<').next()?.parse().ok()).collect()
    };
    let body = between(table, "<tbody>", "</tbody>").unwrap();
    let rows: Vec<Vec<i64>> = body.split("<tr>").skip(1).map(numbers).collect();
    let sums: Vec<i64> = (0..4).map(|i| rows.iter().map(|r| r[i]).sum()).collect();
    let last = numbers(between(table, "<tfoot>", "</tfoot>").unwrap());
    // The samples have no more tools than are shown.
    assert!(!table.contains("Cut:"), "{table}");
    assert_eq!(sums, last);
    assert!(last[0] > 0);
}

/// What the page may show is bounded, whatever the store holds.
#[test]
fn a_large_store_makes_no_large_page() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let store = store.to_str().unwrap();
    let o = run(&["generate", "--spans", "3000", "--store", store]);
    assert!(o.status.success(), "{}", stderr(&o));
    let page = html(&["--store", store]);
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    let worst = between(&page, "<h2 id=\"worst\">", "</section>").unwrap();
    assert_eq!(worst.matches("<details>").count(), 10);
    assert!(worst.contains("Cut: the 10 worst"));
    let timelines = between(&page, "<h2 id=\"timelines\">", "</section>").unwrap();
    assert_eq!(timelines.matches("<article").count(), 10);
    assert!(timelines.contains("Cut: 10 of "), "the cut is told");
}

#[test]
fn names_make_no_element() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("names.otlp.json");
    let sample = fs::read_to_string(root().join("sample-traces/baton/claims-contract.otlp.json")).unwrap();
    let name = "\\\"'><script>alert(1)</script><img src=x onerror=y>";
    let sample = sample
        .replace("{\"stringValue\":\"claims\"}", &format!("{{\"stringValue\":\"{name}\"}}"))
        .replace("claim-5521", name);
    fs::write(&file, sample).unwrap();
    let page = html(&[file.to_str().unwrap()]);
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    for live in ["<script", "<img", "onerror=y>"] {
        assert!(!page.contains(live), "{live}");
    }
}

#[test]
fn nothing_to_report_is_a_page_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("empty.json");
    fs::write(&file, "{}").unwrap();
    let page = html(&[file.to_str().unwrap()]);
    let row = between(&page, "<tr id=\"m-constraint_retention\">", "</tr>").unwrap();
    assert!(values(row) == [None] && row.contains(">unknown</data>"), "{row}");
}

/// Everything in a folder.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().flatten().map(|e| e.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_gets_what_standard_output_would() {
    let dir = tempfile::tempdir().unwrap();
    let sample = "sample-traces/baton";
    for format in ["terminal", "html"] {
        let file = dir.path().join(format);
        let o = run(&["eval", sample, "--format", format, "-o", file.to_str().unwrap()]);
        assert!(o.status.success() && o.stdout.is_empty(), "{}", stderr(&o));
        let printed = stdout(&run(&["eval", sample, "--format", format]));
        assert_eq!(fs::read_to_string(&file).unwrap(), printed, "{format}");
    }
    assert_eq!(names(dir.path()), ["html", "terminal"]);
}

#[test]
fn a_report_that_fails_leaves_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.html");
    fs::write(&file, "the old one").unwrap();
    let o = run(&["eval", "--store", "no-such-store", "--format", "html", "-o", file.to_str().unwrap()]);
    assert_eq!(o.status.code(), Some(1));
    assert_eq!(fs::read_to_string(&file).unwrap(), "the old one");
    assert_eq!(names(dir.path()), ["report.html"]);
    let o = run(&["eval", "sample-traces/baton", "-o", dir.path().to_str().unwrap()]);
    assert_eq!(o.status.code(), Some(2), "{}", stderr(&o));
    let missing = dir.path().join("missing/report.html");
    let o = run(&["eval", "sample-traces/baton", "-o", missing.to_str().unwrap()]);
    assert!(o.status.code() == Some(1) && stderr(&o).contains("missing/report.html cannot be written"));
}

#[cfg(unix)]
#[test]
fn a_report_is_as_readable_as_any_new_file_and_goes_through_links() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = tempfile::tempdir().unwrap();
    let (file, link) = (dir.path().join("report"), dir.path().join("latest"));
    fs::write(&file, "the old one").unwrap();
    symlink(&file, &link).unwrap();
    let o = run(&["eval", "sample-traces/baton", "-o", link.to_str().unwrap()]);
    assert!(o.status.success(), "{}", stderr(&o));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read_to_string(&file).unwrap().starts_with("Handoff report"));
    let other = dir.path().join("other");
    fs::write(&other, "").unwrap();
    let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&file), mode(&other));
    // A device is written to and not replaced.
    let o = run(&["eval", "sample-traces/baton", "-o", "/dev/null"]);
    assert!(o.status.success(), "{}", stderr(&o));
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn gates_and_broken_rules_have_their_parts() {
    let dir = tempfile::tempdir().unwrap();
    let (config, gates) = (dir.path().join("baton.toml"), dir.path().join("gates.toml"));
    let constraint = "[[constraints]]\nid = \"no-<b>lookups\"\ntext = \"No look-ups of the policy\"\n";
    let rule =
        "[[rules]]\nid = \"lookup\"\nconstraint = \"no-<b>lookups\"\nwhere = \"tool = 'get_policy'\"\n";
    fs::write(&config, format!("{constraint}{rule}")).unwrap();
    fs::write(&gates, "[[gate]]\nrule = \"completeness >= 0.99\"\n[[gate]]\nrule = \"partial <= 0.5\"\n")
        .unwrap();
    let [config, gates] = [&config, &gates].map(|p| p.to_str().unwrap());
    let args = |form| ["--config", config, "eval", "sample-traces", "--gate", gates, "--format", form];
    let o = run(&args("html"));
    assert_eq!(o.status.code(), Some(1), "{}", stderr(&o));
    let page = stdout(&o);
    let report: Value = serde_json::from_str(&stdout(&run(&args("json")))).unwrap();
    let total = report["violation_counts"]["by_rule"][0]["total"].as_i64().unwrap();
    assert!(total > 0);
    let part = between(&page, "<h2 id=\"rules\">", "</section>").unwrap();
    assert!(part.contains("no-&lt;b&gt;lookups") && !part.contains("<b>"), "{part}");
    assert!(part.contains(&format!("<td class=\"n\">{total}</td>")), "{total} is not in {part}");
    let part = between(&page, "<h2 id=\"gates\">", "</section>").unwrap();
    assert!(part.contains("completeness") && part.contains("failed") && part.contains("passed"), "{part}");
    // First, since it is what whoever opens the page wants to know; and neither part where nobody asked.
    assert!(page.find("<h2 id=\"gates\">") < page.find("<h2 id=\"measures\">"));
    let plain = html(&["sample-traces/openai-agents"]);
    assert!(!plain.contains("id=\"gates\"") && !plain.contains("id=\"rules\""));
}
