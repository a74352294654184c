//! Importing, keeping, asking.

use std::fs;

use super::{baton, files, root, run, stderr, stdout};

const SAMPLE: &str = "sample-traces/openai-agents/refund-weak.openllmetry.otlp.pb";

#[test]
fn importing_a_file_twice_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let store = store.to_str().unwrap();
    let spans = |o: &std::process::Output| stdout(o);
    let first = run(&["import", SAMPLE, "--store", store]);
    assert!(spans(&first).contains("1 new files written"), "{}", stdout(&first));
    let before = files(&dir.path().join("store/spans"));
    let report = stdout(&run(&["eval", "--store", store, "--format", "json"]));
    // Again, and again beside another file.
    run(&["import", SAMPLE, "--store", store]);
    assert_eq!(files(&dir.path().join("store/spans")), before);
    assert_eq!(stdout(&run(&["eval", "--store", store, "--format", "json"])), report);
    run(&["import", SAMPLE, "sample-traces/baton", "--store", store]);
    assert_eq!(files(&dir.path().join("store/spans")).len(), before.len() + 1);
}

#[test]
fn a_store_and_its_files_give_the_same_report() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().to_str().unwrap();
    run(&["import", "sample-traces", "--store", store]);
    let of_store = run(&["eval", "--store", store, "--format", "json"]);
    let of_files = run(&["eval", "sample-traces", "--format", "json"]);
    assert!(of_files.status.success() && stdout(&of_store) == stdout(&of_files));
    // The tables are kept and used again; a changed configuration makes them anew.
    let mark = dir.path().join("tables/current/state.json");
    let first = fs::read(&mark).unwrap();
    run(&["eval", "--store", store]);
    assert_eq!(fs::read(&mark).unwrap(), first);
    let config = dir.path().join("b.toml");
    fs::write(&config, "[tools]\nvolatile = [\"lookup_order\"]\n").unwrap();
    run(&["eval", "--store", store, "--config", config.to_str().unwrap()]);
    assert_ne!(fs::read(&mark).unwrap(), first);
}

#[test]
fn the_key_of_a_store_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    run(&["import", SAMPLE, "--store", dir.path().to_str().unwrap()]);
    let mode = fs::metadata(dir.path().join("key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn standard_input_folders_and_globs_are_read() {
    let piped = |args: &[&str]| {
        let input = fs::File::open(root().join(SAMPLE)).unwrap();
        baton(args).stdin(input).output().unwrap()
    };
    let query = "SELECT COUNT(*) AS n FROM spans";
    let count = |o: &std::process::Output| stdout(o).lines().nth(1).unwrap_or_default().to_owned();
    let of_file = count(&run(&["sql", query, SAMPLE, "--format", "csv"]));
    assert_eq!(count(&piped(&["sql", query, "-", "--format", "csv"])), of_file);
    let glob = "sample-traces/openai-agents/refund-w*";
    assert_eq!(count(&run(&["sql", query, glob, "--format", "csv"])), of_file);
    let folder = count(&run(&["sql", query, "sample-traces/openai-agents", "--format", "csv"]));
    assert!(folder.parse::<u64>().unwrap() > of_file.parse::<u64>().unwrap());
}

#[test]
fn sql_only_reads() {
    for query in [
        "CREATE TABLE x AS SELECT 1",
        "COPY tasks TO '/tmp/x.csv'",
        "INSERT INTO tasks SELECT * FROM tasks",
        "SET a.b = 1",
    ] {
        let o = run(&["sql", query, SAMPLE]);
        assert_eq!(o.status.code(), Some(1), "{query}");
        assert!(stderr(&o).contains("not supported"), "{}", stderr(&o));
    }
}

#[test]
fn configuration_faults_name_file_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("b.toml");
    for (text, line, key) in [
        ("content = \"none\"\nnonsense = 1\n", ":2:", "nonsense"),
        ("\n\ncontent = \"some\"\n", ":3:", "some"),
        ("[redact]\npatterns = [\"(\"]\n", ":2:", "redact.patterns"),
    ] {
        fs::write(&path, text).unwrap();
        let o = run(&["eval", SAMPLE, "--config", path.to_str().unwrap()]);
        assert_eq!(o.status.code(), Some(2));
        let said = stderr(&o);
        assert!(said.contains("b.toml") && said.contains(line) && said.contains(key), "{said}");
    }
}

#[test]
fn a_layout_of_another_version_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("spans")).unwrap();
    run(&["import", SAMPLE, "--store", dir.path().to_str().unwrap()]);
    let other = dir.path().join("spans/other.parquet");
    run(&["eval", "--store", dir.path().to_str().unwrap()]);
    let table =
        fs::read_dir(dir.path().join("tables/current/tasks")).unwrap().flatten().next().unwrap().path();
    fs::copy(table, &other).unwrap();
    let o = run(&["eval", "--store", dir.path().to_str().unwrap()]);
    assert_eq!(o.status.code(), Some(1));
    assert!(stderr(&o).contains("other.parquet") && stderr(&o).contains("layout"), "{}", stderr(&o));
}
