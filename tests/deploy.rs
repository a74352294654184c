//! The files of `deploy/` run commands that Baton takes.

use std::fs;

use super::{files, root, run, stderr};

/// The arguments after `baton`, from each file that has a command.
fn commands() -> Vec<(String, Vec<String>)> {
    let words = |line: &str| -> Option<Vec<String>> {
        let at = line.find("/usr/local/bin/baton ")? + "/usr/local/bin/baton ".len();
        Some(line[at..].split_whitespace().map(str::to_owned).collect())
    };
    let mut out = Vec::new();
    for f in files(&root().join("deploy")) {
        let kind = f.extension().and_then(|e| e.to_str());
        // The manifests of a whole cluster, `.yml`, have a check of their own.
        if !matches!(kind, Some("service" | "yaml") | None) {
            continue;
        }
        let text = fs::read_to_string(&f).unwrap();
        let lines = text.lines().map(str::trim).filter(|l| !l.starts_with('#'));
        let found: Vec<Vec<String>> = match kind {
            Some("service") => lines.filter_map(|l| words(l.strip_prefix("ExecStart=")?)).collect(),
            Some("yaml") => {
                assert!(text.contains("command: [\"baton\"]"));
                lines.filter_map(|l| serde_json::from_str(l.strip_prefix("args: ")?).ok()).collect()
            }
            _ => lines.filter_map(words).collect(),
        };
        let name = f.strip_prefix(root()).unwrap().display().to_string();
        assert_eq!(found.len(), 1, "{name} runs one command");
        out.extend(found.into_iter().map(|c| (name.clone(), c)));
    }
    out
}

#[test]
fn every_command_of_the_scheduling_files_runs() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let store = store.to_str().unwrap();
    let o = run(&["import", "sample-traces/baton", "--store", store]);
    assert!(o.status.success(), "{}", stderr(&o));
    let commands = commands();
    assert_eq!(commands.len(), 3);
    for (name, command) in commands {
        let page = dir.path().join(name.replace('/', "-"));
        let after = |flag: &str| command.iter().position(|w| w == flag).map(|i| i + 1);
        let (at_store, at_page) = (after("--store").expect("a store"), after("-o").expect("a file"));
        assert!(command[at_page].ends_with("handoffs.html"), "{name}");
        let mut mine = command.clone();
        mine[at_store] = store.to_owned();
        mine[at_page] = page.to_str().unwrap().to_owned();
        let o = run(&mine.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(o.status.success(), "{name}: {}", stderr(&o));
        assert!(fs::read_to_string(&page).unwrap().starts_with("<!DOCTYPE html>"), "{name}");
    }
}

/// All three run at the same time of day.
#[test]
fn the_schedules_agree() {
    let read = |f: &str| fs::read_to_string(root().join("deploy").join(f)).unwrap();
    assert!(read("systemd/baton-eval.timer").contains("OnCalendar=*-*-* 00:20:00 UTC\n"));
    assert!(read("kubernetes/baton-eval.yaml").contains("schedule: \"20 0 * * *\"\n  timeZone: Etc/UTC\n"));
    assert!(read("cron/baton-eval").contains("\n20 0 * * * baton /usr/local/bin/baton "));
}
