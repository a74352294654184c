//! What people read. A case is a folder of `tests/golden` with `args` (one argument per line), `stdout.txt`, `stderr.txt` where
//! something is said there, and `exit` where it is not 0. `UPDATE_GOLDEN=1` rewrites them; read the difference.

use std::fs;

use super::{root, run, stderr, stdout};

#[test]
fn reports_stories_and_errors_read_as_agreed() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut failed = Vec::new();
    let mut cases: Vec<_> =
        fs::read_dir(root().join("tests/golden")).unwrap().flatten().map(|e| e.path()).collect();
    cases.sort();
    assert!(!cases.is_empty());
    for dir in cases {
        let args = fs::read_to_string(dir.join("args")).unwrap();
        let o = run(&args.lines().collect::<Vec<_>>());
        let exit = o.status.code().unwrap_or(-1);
        let found = [
            ("stdout.txt", stdout(&o)),
            ("stderr.txt", stderr(&o)),
            ("exit", if exit == 0 { String::new() } else { format!("{exit}\n") }),
        ];
        for (name, text) in found {
            let path = dir.join(name);
            let want = fs::read_to_string(&path).unwrap_or_default();
            if want == text {
                continue;
            }
            if update && text.is_empty() {
                fs::remove_file(&path).unwrap();
            } else if update {
                fs::write(&path, &text).unwrap();
            } else {
                let at = want.lines().zip(text.lines()).position(|(a, b)| a != b);
                let at = at.unwrap_or_else(|| want.lines().count().min(text.lines().count()));
                failed.push(format!(
                    "{}, line {}:\n  expected {:?}\n  got      {:?}",
                    path.display(),
                    at + 1,
                    want.lines().nth(at).unwrap_or_default(),
                    text.lines().nth(at).unwrap_or_default()
                ));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
