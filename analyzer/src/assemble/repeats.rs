//! Which calls repeat an earlier one: redundant, a retry of a known failure, or the run's own repeat
//! (METRICS.md section 2, redundant_tool_calls).

use baton_record::names::{bare_tool_name, slug};

use super::Rules;
use super::calls::Call;

/// What a call repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Repeat {
    pub earlier: usize,
    pub kind: Kind,
}

/// How.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Redundant,
    KnownFailure,
    Own,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Redundant => "redundant",
            Self::KnownFailure => "known_failure",
            Self::Own => "self",
        }
    }
}

/// Tools that change files or code, and tools that read, search or run: the one built-in relation.
pub(super) fn changes_files(tool: &str) -> bool {
    let t = slug(bare_tool_name(tool));
    matches!(
        t.as_str(),
        "apply_patch"
            | "applypatch"
            | "write"
            | "write_file"
            | "writefile"
            | "edit"
            | "multiedit"
            | "multi_edit"
            | "edit_file"
            | "create_file"
            | "delete_file"
            | "move_file"
            | "rename_file"
            | "remove_file"
            | "copy_file"
            | "insert"
            | "patch"
            | "git_apply"
            | "git_commit"
            | "git_checkout"
            | "git_reset"
            | "git_merge"
            | "git_rebase"
            | "git_revert"
            | "git_stash"
            | "notebook_edit"
            | "notebookedit"
            | "save_file"
            | "append_file"
    ) || ["edit_", "str_replace", "write_", "apply_patch_", "replace_in_", "modify_file", "update_file"]
        .iter()
        .any(|p| t.starts_with(p))
}

fn reads_or_runs(tool: &str) -> bool {
    let t = slug(bare_tool_name(tool));
    matches!(
        t.as_str(),
        "ls" | "glob"
            | "grep"
            | "bash"
            | "shell"
            | "cat"
            | "read"
            | "find"
            | "tree"
            | "pytest"
            | "terminal"
            | "view"
            | "diff"
            | "lint"
            | "build"
            | "compile"
    ) || [
        "read_",
        "readfile",
        "search",
        "run",
        "test",
        "execute",
        "exec",
        "list_",
        "grep_",
        "find_",
        "open_file",
        "view_",
        "git_diff",
        "git_status",
        "git_log",
        "git_show",
        "pytest",
        "lint_",
        "build_",
        "bash_",
        "shell_",
    ]
    .iter()
    .any(|p| t.starts_with(p))
}

/// True where the first call makes a repeat of the second worth while.
fn touches(rules: &Rules, changing: &Call<'_>, repeated: &str) -> bool {
    if changing.error {
        return false;
    }
    let name = slug(bare_tool_name(changing.name));
    if let Some(m) = rules.mutating.iter().find(|m| m.tool == name) {
        return m.touches.is_empty() || m.touches.contains(&slug(bare_tool_name(repeated)));
    }
    changes_files(changing.name) && reads_or_runs(repeated)
}

/// The repeats among the calls, which are in order. `before`: when the transfer that the call counts under was made.
pub(super) fn find(
    rules: &Rules,
    calls: &[Call<'_>],
    is_tool: &[bool],
    before: &[Option<i64>],
) -> Vec<Option<Repeat>> {
    let mut out = vec![None; calls.len()];
    for i in 0..calls.len() {
        let c = &calls[i];
        let bare = slug(bare_tool_name(c.name));
        if !is_tool[i] || c.digest.is_none() || !c.comparable || rules.volatile.contains(&bare) {
            continue;
        }
        // Earlier calls of this form since something relevant changed.
        let mut same: Vec<usize> = Vec::new();
        for j in (0..i).rev() {
            let e = &calls[j];
            if !is_tool[j] {
                continue;
            }
            if touches(rules, e, c.name) {
                break;
            }
            if e.digest == c.digest && slug(bare_tool_name(e.name)) == bare {
                same.push(j);
            }
        }
        // Identical to one of its own run: a self repeat, whatever others did.
        if let Some(&j) = same.iter().find(|j| calls[**j].run == c.run) {
            out[i] = Some(Repeat { earlier: j, kind: Kind::Own });
            continue;
        }
        let Some(t) = before[i] else { continue };
        let earlier: Vec<usize> = same.into_iter().filter(|j| calls[*j].order < t).collect();
        if let Some(&j) = earlier.iter().find(|j| !calls[**j].error) {
            out[i] = Some(Repeat { earlier: j, kind: Kind::Redundant });
        } else if let Some(&j) = earlier.first() {
            out[i] = Some(Repeat { earlier: j, kind: Kind::KnownFailure });
        }
    }
    out
}

/// Why repeats among the calls cannot be known, if they cannot.
pub(super) fn unknown(calls: &[Call<'_>], is_tool: &[bool], under: &[usize]) -> Option<&'static str> {
    let tools: Vec<usize> = (0..calls.len()).filter(|i| is_tool[*i]).collect();
    if !tools.is_empty() && tools.iter().all(|i| !calls[*i].comparable) {
        let masked =
            tools.iter().any(|i| calls[*i].item.is_some_and(|x| x.args == baton_record::span::Args::Masked));
        return Some(if masked { "arguments are masked" } else { "arguments not captured" });
    }
    // A call of the receiver with unknown arguments, or an earlier one of the same tool, may be the repeat.
    for &i in under {
        let bare = slug(bare_tool_name(calls[i].name));
        let earlier = tools.iter().filter(|j| **j < i && slug(bare_tool_name(calls[**j].name)) == bare);
        for &j in earlier {
            if !calls[i].comparable || !calls[j].comparable {
                return Some("arguments of a call of the same tool are not known");
            }
        }
    }
    None
}
