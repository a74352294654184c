//! Assembled tables that are brought up to date are those that are made at once, and windows part the tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use proptest::prelude::*;
use serde_json::Value;

use super::order::{framed, pieces, report};
use super::{files, run, stderr, stdout};

fn import(store: &str, path: &str) {
    let o = run(&["import", path, "--store", store]);
    assert!(o.status.success(), "{}", stderr(&o));
}

/// The files of the tables that count, by name, each with its inode.
fn units(store: &Path) -> BTreeMap<String, u64> {
    let tasks = store.join("tables/current/tasks").canonicalize().unwrap();
    let name = |p: &Path| p.file_name().unwrap().to_str().unwrap().to_owned();
    files(&tasks)
        .iter()
        .filter(|p| name(p) != "empty.parquet")
        .map(|p| (name(p), fs::metadata(p).unwrap().ino()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::default() })]
    /// Spans come in parts, in any order, some of them twice; between two parts files are merged or not. What is kept is always
    /// what another store gives that got all at once.
    #[test]
    fn a_refresh_gives_what_making_anew_gives(
        part in proptest::collection::vec(0usize..4, 800),
        twice in proptest::collection::vec(proptest::option::weighted(0.1, 0usize..4), 800),
        merge in proptest::collection::vec(any::<bool>(), 4),
    ) {
        let pieces = pieces();
        prop_assert!(pieces.len() <= part.len());
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let kept = path("kept");
        for (k, merge) in merge.iter().enumerate() {
            let of = |i: &usize| part[*i] == k || twice[*i] == Some(k);
            let bytes = framed((0..pieces.len()).filter(of).map(|i| pieces[i].clone()));
            let file = path(&format!("{k}.bin"));
            fs::write(&file, bytes).unwrap();
            import(&kept, &file);
            if *merge {
                prop_assert!(run(&["compact", "--store", &kept, "--all"]).status.success());
            }
            let tables = report(&["--store", &kept]);
            if k < 3 {
                let known: Value = serde_json::from_str(&tables).unwrap();
                prop_assert!(!known["tasks"].as_array().unwrap().is_empty());
                continue;
            }
            let anew = path("anew");
            (0..=k).for_each(|k| import(&anew, &path(&format!("{k}.bin"))));
            prop_assert_eq!(tables, report(&["--store", &anew]));
            // Log records have no identity, so where one came twice only merging finds it.
            let sql = "SELECT COUNT(*) FROM spans WHERE record = 'span'";
            let spans = |store: &str| stdout(&run(&["sql", sql, "--store", store]));
            prop_assert_eq!(spans(&kept), spans(&anew));
        }
        prop_assert_eq!(report(&["--store", &kept]), report(&["sample-traces"]));
    }
}

/// What the tables stand on may be lost; they are made again then.
#[test]
fn what_is_lost_of_the_tables_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let name = store.to_str().unwrap();
    import(name, "sample-traces/langgraph");
    import(name, "sample-traces/openai-agents");
    let want = report(&["--store", name]);
    let lost = |what: &str| {
        let path = store.join("tables").join(what);
        match what {
            // So a machine leaves them that failed.
            "traces" => fs::read_dir(path).unwrap().for_each(|f| fs::write(f.unwrap().path(), "").unwrap()),
            _ => fs::remove_file(path).unwrap(),
        }
        // Merging takes files away, of which the tables know by what is lost.
        assert!(run(&["compact", "--store", name, "--all"]).status.success());
        import(name, "sample-traces/baton");
        let now = report(&["--store", name]);
        assert!(now.len() > want.len(), "{what}");
        now
    };
    let texts = ["traces", "current/state.json", "current"].map(lost);
    assert!(texts.iter().all(|t| *t == texts[0]));
}

#[test]
fn what_did_not_change_is_not_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let name = store.to_str().unwrap();
    import(name, "sample-traces/langgraph");
    report(&["--store", name]);
    let first = units(&store);
    assert!(!first.is_empty());
    report(&["--store", name]);
    assert_eq!(units(&store), first, "nothing came");
    import(name, "sample-traces/openai-agents");
    report(&["--store", name]);
    let second = units(&store);
    assert!(second.len() > first.len());
    assert!(first.iter().all(|(unit, inode)| second.get(unit) == Some(inode)), "{first:?} {second:?}");
    // Old folders go once nobody reads them any more.
    let generations = || fs::read_dir(store.join("tables")).unwrap().count();
    let before = generations();
    let replaced = fs::read_dir(store.join("tables")).unwrap().flatten().map(|e| e.path().join("replaced"));
    for mark in replaced.filter(|p| p.is_file()) {
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        fs::File::options().write(true).open(mark).unwrap().set_modified(old).unwrap();
    }
    import(name, "sample-traces/deepagents");
    report(&["--store", name]);
    assert_eq!(generations(), before);
}

#[test]
fn a_task_that_goes_on_is_told_once_and_whole() {
    let pieces = pieces();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let store = path("store");
    // Every trace is cut in two.
    for k in 0..2 {
        let file = path(&format!("{k}.bin"));
        let half = pieces.iter().enumerate().filter(|(i, _)| i % 2 == k).map(|(_, p)| p.clone());
        fs::write(&file, framed(half)).unwrap();
        import(&store, &file);
        report(&["--store", &store]);
    }
    let tasks = stdout(&run(&["sql", "SELECT task_id FROM tasks", "--store", &store, "--format", "csv"]));
    let tasks: Vec<&str> = tasks.lines().skip(1).collect();
    assert_eq!(tasks.len(), tasks.iter().collect::<BTreeSet<_>>().len());
    assert_eq!(report(&["--store", &store]), report(&["sample-traces"]));
    assert_eq!(
        units(Path::new(&store)).keys().filter(|u| u.starts_with("1-")).count(),
        0,
        "no old task is left"
    );
}

#[test]
fn windows_part_the_tasks() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store").to_str().unwrap().to_owned();
    import(&store, "sample-traces");
    let sql = "SELECT last_activity AS t, COUNT(*) AS n FROM tasks GROUP BY 1 ORDER BY 1";
    let ends: Vec<Value> =
        serde_json::from_str(&stdout(&run(&["sql", sql, "--store", &store, "--format", "json"]))).unwrap();
    assert!(ends.len() > 3);
    let middle = ends[ends.len() / 2]["t"].as_str().unwrap().to_owned();
    let ids = |report: &Value, table: &str, id: &str| -> Vec<String> {
        report[table].as_array().unwrap().iter().map(|x| x[id].as_str().unwrap().to_owned()).collect()
    };
    let of = |args: &[&str]| -> Value {
        serde_json::from_str(&report(&[&["--store", &store], args].concat())).unwrap()
    };
    let (all, early, late) = (of(&[]), of(&["--until", &middle]), of(&["--since", &middle]));
    for (table, id) in [("tasks", "task_id"), ("handoffs", "handoff_id"), ("tool_calls", "id")] {
        let (a, b) = (ids(&early, table, id), ids(&late, table, id));
        assert!(!a.is_empty() && !b.is_empty(), "{table}");
        let mut both = [a, b].concat();
        both.sort();
        let mut whole = ids(&all, table, id);
        whole.sort();
        assert_eq!(both, whole, "{table}");
    }
    // The window is what was asked for, to the nanosecond: the task that ends at its start is in it, at its end is not.
    assert_eq!(
        ids(&early, "tasks", "task_id").len() as u64,
        ends[..ends.len() / 2].iter().map(|e| e["n"].as_u64().unwrap()).sum::<u64>()
    );
    assert!(
        early["window"]["until"].as_str().unwrap().starts_with(middle.trim_end_matches('Z')),
        "{}",
        early["window"]
    );
    assert_eq!(of(&["--since", "2001-01-01", "--until", "2001-01-02"])["tasks"], Value::Array(Vec::new()));
    let wrong = run(&["eval", "--store", &store, "--since", "tomorrow"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("`tomorrow` is no time"), "{}", stderr(&wrong));
}

#[test]
fn files_are_known_again_whatever_their_folders_are_called() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let name = store.to_str().unwrap();
    // As paths `a/…` stands before `a-b/…`, as texts behind it.
    for (sample, folder) in [("sample-traces/langgraph", "a"), ("sample-traces/openai-agents", "a-b")] {
        import(name, sample);
        let to = store.join("spans").join(folder);
        fs::create_dir_all(&to).unwrap();
        let moved = |f: &Path| ["a", "a-b"].iter().any(|d| f.starts_with(store.join("spans").join(d)));
        for f in files(&store.join("spans")).iter().filter(|f| !moved(f)) {
            fs::rename(f, to.join(f.file_name().unwrap())).unwrap();
        }
    }
    let seen = || (report(&["--store", name]), fs::read_link(store.join("tables/current")).unwrap());
    assert_eq!(seen(), seen(), "nothing came, so nothing is made again");
    import(name, "sample-traces/deepagents");
    let anew = dir.path().join("anew").to_str().unwrap().to_owned();
    for sample in ["langgraph", "openai-agents", "deepagents"] {
        import(&anew, &format!("sample-traces/{sample}"));
    }
    assert_eq!(report(&["--store", name]), report(&["--store", &anew]));
}
