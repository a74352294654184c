//! What the command line does beside its answer: notes, colour, completions, manual pages.

use std::io::Write;
use std::process::{Command, Stdio};

use super::{run, stderr, stdout};

const SAMPLE: &str = "sample-traces/baton";

#[test]
fn colour_is_used_where_it_is_asked_for_and_changes_no_word() {
    let plain = stdout(&run(&["eval", SAMPLE, "--color", "never"]));
    assert!(!plain.contains('\u{1b}'));
    // Not a terminal.
    assert_eq!(stdout(&run(&["eval", SAMPLE])), plain);
    let colored = stdout(&run(&["--color=always", "eval", SAMPLE]));
    assert!(colored.contains("\u{1b}[1mHandoff report\u{1b}[0m"));
    // Also what the command line itself says.
    assert!(stderr(&run(&["eval", "--color=always", "--no-such"])).contains('\u{1b}'));
    assert!(!stderr(&run(&["eval", "--color", "never", "--no-such"])).contains('\u{1b}'));
}

#[test]
fn quiet_and_verbose_change_only_what_is_said_beside() {
    let normal = run(&["eval", SAMPLE]);
    let quiet = run(&["eval", SAMPLE, "--quiet"]);
    let verbose = run(&["eval", SAMPLE, "-v"]);
    assert_eq!([stderr(&normal), stderr(&quiet)], ["", ""]);
    assert!(stderr(&verbose).contains("files 1, spans ") && stderr(&verbose).contains("tasks ready after"));
    assert!(stdout(&normal) == stdout(&quiet) && stdout(&normal) == stdout(&verbose));
    assert_eq!(run(&["eval", SAMPLE, "-q", "-v"]).status.code(), Some(2));
    // What could not be read is told all the same.
    let o = run(&["eval", "Cargo.toml", "--quiet"]);
    assert!(o.status.code() == Some(3) && stderr(&o).contains("not read"), "{}", stderr(&o));
}

#[test]
fn every_shell_has_completions_and_bash_reads_its_own() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let o = run(&["completions", shell]);
        let script = stdout(&o);
        for word in ["explain", "completions", "format"] {
            assert!(script.contains(word), "{shell} does not complete {word}");
        }
        if shell == "bash" {
            let ask = "\nCOMP_WORDS=(baton eval --format ''); COMP_CWORD=3; _baton baton '' --format; echo \"${COMPREPLY[@]}\"";
            let mut bash = Command::new("bash").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            bash.stdin.take().unwrap().write_all(format!("{script}{ask}").as_bytes()).unwrap();
            let said = stdout(&bash.wait_with_output().unwrap());
            assert_eq!(said.trim(), "terminal json markdown html junit");
        }
    }
    assert_eq!(run(&["completions", "no-such-shell"]).status.code(), Some(2));
}

#[test]
fn every_subcommand_has_a_manual_page() {
    let first = stdout(&run(&["man"]));
    assert!(first.contains(".TH baton 1") && first.contains("baton\\-explain(1)"), "{first}");
    let help = stdout(&run(&["--help"]));
    let commands = help.lines().skip_while(|l| !l.starts_with("Commands:")).skip(1);
    let commands: Vec<&str> = commands
        .take_while(|l| !l.is_empty())
        .filter(|l| l.starts_with("  ") && !l.starts_with("   "))
        .collect();
    assert!(commands.len() > 10, "{commands:?}");
    for name in commands.iter().filter_map(|l| l.split_whitespace().next()).filter(|n| *n != "help") {
        let page = stdout(&run(&["man", name]));
        assert!(
            page.contains(&format!(".TH baton-{name} 1")) && page.contains("\\-\\-quiet"),
            "{name}: {page}"
        );
    }
    assert_eq!(run(&["man", "no-such"]).status.code(), Some(2));
}
