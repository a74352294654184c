//! Keeping a store in order, through the binary: the answers stay the same.

use std::fs;
use std::time::{Duration, SystemTime};

use super::{files, run, stderr, stdout};

/// A store of many small files of one hour.
fn small_files(dir: &std::path::Path) -> String {
    let store = dir.join("store").to_str().unwrap().to_owned();
    for sample in ["sample-traces/baton", "sample-traces/openai-agents", "sample-traces/langgraph"] {
        let o = run(&["import", sample, "--store", &store]);
        assert!(o.status.success(), "{}", stderr(&o));
    }
    store
}

fn report(store: &str) -> String {
    let o = run(&["eval", "--store", store, "--format", "json"]);
    assert!(o.status.success(), "{}", stderr(&o));
    stdout(&o)
}

fn rows(store: &str) -> String {
    stdout(&run(&["sql", "SELECT COUNT(*) FROM spans", "--store", store, "--format", "csv"]))
}

#[test]
fn merging_changes_no_answer_at_any_moment() {
    let dir = tempfile::tempdir().unwrap();
    let store = small_files(dir.path());
    let (before, all) = (report(&store), rows(&store));
    let spans = dir.path().join("store/spans");
    let names = files(&spans);
    let dry = stdout(&run(&["compact", "--store", &store, "--all", "--dry-run"]));
    assert!(dry.contains("would be merged"), "{dry}");
    assert_eq!(files(&spans), names);
    let done = run(&["compact", "--store", &store, "--all"]);
    assert!(
        done.status.success() && stdout(&done).contains("-> 1 file"),
        "{}{}",
        stdout(&done),
        stderr(&done)
    );
    // The merged files and those they replace are both there, and every row counts once.
    assert!(files(&spans).len() > names.len());
    assert_eq!((report(&store), rows(&store)), (before.clone(), all.clone()));
    let checked = run(&["check", "--store", &store]);
    assert!(checked.status.success(), "{}{}", stdout(&checked), stderr(&checked));
    // Some time later they are deleted.
    let old = SystemTime::now() - Duration::from_secs(3600);
    for f in files(&spans).iter().filter(|f| !names.contains(f)) {
        fs::File::options().write(true).open(f).unwrap().set_modified(old).unwrap();
    }
    assert!(run(&["compact", "--store", &store, "--all"]).status.success());
    assert!(files(&spans).len() < names.len());
    assert_eq!((report(&store), rows(&store)), (before, all));
}

#[test]
fn what_is_older_than_kept_goes() {
    let dir = tempfile::tempdir().unwrap();
    let store = small_files(dir.path());
    let all = rows(&store);
    let dry = stdout(&run(&["retain", "--store", &store, "--keep", "1s", "--dry-run"]));
    assert!(dry.contains("would be removed"), "{dry}");
    assert_eq!(rows(&store), all);
    assert!(run(&["retain", "--store", &store, "--keep", "36500d"]).status.success());
    assert_eq!(rows(&store), all);
    assert!(run(&["retain", "--store", &store, "--keep", "1s"]).status.success());
    // Out of every answer at once, although readers that listed them before find the files still there.
    assert_eq!(rows(&store).lines().nth(1), Some("0"));
    assert!(
        files(&dir.path().join("store/spans")).iter().any(|f| f.extension().is_some_and(|e| e == "parquet"))
    );
    let wrong = run(&["retain", "--store", &store, "--keep", "soon"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", stderr(&wrong));
}

#[test]
fn damage_is_found_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = small_files(dir.path());
    let victim = files(&dir.path().join("store/spans")).pop().unwrap();
    let mut bytes = fs::read(&victim).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    fs::write(&victim, bytes).unwrap();
    let o = run(&["check", "--store", &store]);
    assert_eq!(o.status.code(), Some(3));
    let name = victim.file_name().unwrap().to_str().unwrap();
    assert!(stderr(&o).contains(name), "{}", stderr(&o));
}
