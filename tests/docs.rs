//! What the READMEs say is what the code says.

use std::fs;

use super::root;

/// Parts of READMEs that are written from the code. `UPDATE_GOLDEN=1` writes them anew.
#[test]
fn generated_parts_of_readmes_are_up_to_date() {
    let parts = [
        ("record/README.md", "schema", baton_record::schema::markdown()),
        ("collector/README.md", "dialects", baton_collector::dialect::markdown()),
        ("analyzer/README.md", "measures", baton_analyzer::measures::markdown()),
        ("analyzer/README.md", "tables", baton_analyzer::tables::markdown()),
    ];
    for (file, name, text) in parts {
        let path = root().join(file);
        let readme = fs::read_to_string(&path).unwrap();
        let open = format!("<!-- generated: {name} -->\n");
        let from = readme.find(&open).expect("the marker stands in the README") + open.len();
        let to = from + readme[from..].find("<!-- end -->").expect("the end stands in the README");
        let want = format!("\n{}\n\n", text.trim());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, format!("{}{want}{}", &readme[..from], &readme[to..])).unwrap();
        } else {
            assert_eq!(readme[from..to], want, "{file}: the part `{name}` is out of date");
        }
    }
}

/// The commands at the top of the README are those that `.ci/run` and the tests use.
#[test]
fn the_readme_names_the_commands_that_are_checked() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
    let test = "cargo test --workspace --features cluster";
    assert!(readme.contains(test) && ci.lines().any(|l| l == test));
    assert!(readme.contains("eval sample-traces"));
}

/// Every sample trace is described, and no other.
#[test]
fn every_sample_trace_is_described() {
    let samples = root().join("sample-traces");
    let text = fs::read_to_string(samples.join("README.md")).unwrap();
    for f in super::files(&samples).iter().filter(|f| f.extension().is_some_and(|e| e != "md")) {
        let name = f.strip_prefix(&samples).unwrap().to_str().unwrap();
        let short = name.split(".otlp").next().unwrap().trim_end_matches(".logs");
        assert!(text.contains(short), "{name} is not described");
    }
    for name in text.lines().filter_map(|l| l.strip_prefix("| `")).filter_map(|l| l.split('`').next()) {
        let (dir, stem) = name.split_once('/').expect("folder and name");
        let found = fs::read_dir(samples.join(dir))
            .unwrap()
            .flatten()
            .any(|e| e.file_name().to_str().is_some_and(|n| n.starts_with(stem)));
        assert!(found, "{name} is described and not there");
    }
}
