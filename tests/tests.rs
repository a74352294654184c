//! End to end, through the binary and through the libraries as the binary uses them.
//!
//! | module | what it shows |
//! |---|---|
//! | `cases` | recorded runs and small faults give what is to be expected of them; a case is a folder |
//! | `compare` | what got worse is found by comparisons and gates, what did not raises no alarm |
//! | `deploy` | the scheduling files run commands that are taken |
//! | `endpoint` | the SQL endpoint reads, reads only, stays within its bounds and knows its clients |
//! | `docs` | what the READMEs say is what the code says |
//! | `examples` | the examples of the tracing layer: what a weak handoff costs, and that a good one does not |
//! | `golden` | what people read: reports, stories, errors |
//! | `store` | importing, keeping, asking |
//! | `order` | neither order, nor splitting, nor repetition, nor the content mode changes a report |
//! | `refresh` | tables that are brought up to date are those made at once; windows part the tasks |
//! | `policy` | broken rules are found, and each is put down to whoever lost it |
//! | `keep` | keeping a store in order changes no answer |
//! | `live` | what the collector acknowledges is kept, whatever happens to it |
//! | `html` | the HTML report says what the JSON report says, and files appear whole |
//! | `shell` | notes, colour, completions, manual pages |
//! | `review` | a sample is drawn, filled in and given back |
//! | `whatif` | another history filter passes what frameworks pass under it |
//! | `hostile` | no input makes it panic, hang or grow |

// duplicate_mod: each example brings the same support along.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::duplicate_mod)]

mod cases;
mod compare;
mod deploy;
mod docs;
mod endpoint;
mod examples;
mod golden;
mod hostile;
mod html;
mod keep;
mod live;
mod order;
mod policy;
mod refresh;
mod review;
mod shell;
mod store;
mod whatif;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The binary, in the root folder of the project.
fn baton(args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_baton"));
    c.args(args).current_dir(root());
    c
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn run(args: &[&str]) -> Output {
    baton(args).output().expect("the binary runs")
}

fn stdout(o: &Output) -> String {
    String::from_utf8(o.stdout.clone()).expect("output is UTF-8")
}

fn stderr(o: &Output) -> String {
    String::from_utf8(o.stderr.clone()).expect("output is UTF-8")
}

/// All files below a folder, sorted.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for e in std::fs::read_dir(dir).expect("a folder").flatten() {
        if e.path().is_dir() {
            out.extend(files(&e.path()));
        } else {
            out.push(e.path());
        }
    }
    out.sort();
    out
}
