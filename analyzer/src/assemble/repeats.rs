//! Which calls repeat an earlier one: redundant, a retry of a known failure, or the run's own repeat
//! (METRICS.md section 2, redundant_tool_calls).

use foldhash::HashMap;

use baton_record::names::{bare_tool_name, slug_of};

use super::Rules;
use super::calls::{Call, same_tool};

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
    let t = slug_of(bare_tool_name(tool));
    matches!(
        t.as_ref(),
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
    let t = slug_of(bare_tool_name(tool));
    matches!(
        t.as_ref(),
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

/// True where a call of the first tool makes a repeat of the second worth while.
fn touches(rules: &Rules, changing: &str, repeated: &str) -> bool {
    let name = slug_of(bare_tool_name(changing));
    if let Some(m) = rules.mutating.iter().find(|m| m.tool == name) {
        return m.touches.is_empty() || m.touches.iter().any(|t| *t == slug_of(bare_tool_name(repeated)));
    }
    changes_files(changing) && reads_or_runs(repeated)
}

/// The repeats among the calls, which are in order. `before`: when the transfer that the call counts under was made.
pub(super) fn find(
    rules: &Rules,
    calls: &[Call<'_>],
    is_tool: &[bool],
    before: &[Option<i64>],
) -> Vec<Option<Repeat>> {
    let mut out = vec![None; calls.len()];
    // The task's tools, each once, with the last call that changed what they see.
    let mut tools: Vec<(&str, Option<usize>)> = Vec::new();
    // The last call of each form, and for each call the one of its form before it.
    let mut last: HashMap<(usize, &str), usize> = HashMap::default();
    let mut same: Vec<Option<usize>> = vec![None; calls.len()];
    let own: Vec<usize> = calls
        .iter()
        .map(|c| {
            tools.iter().position(|(t, _)| same_tool(t, c.name)).unwrap_or_else(|| {
                tools.push((c.name, None));
                tools.len() - 1
            })
        })
        .collect();
    // touched[a]: the tools whose repeats a call of tool a excuses.
    let touched: Vec<Vec<usize>> = tools
        .iter()
        .map(|(a, _)| (0..tools.len()).filter(|b| touches(rules, a, tools[*b].0)).collect())
        .collect();
    for (i, c) in calls.iter().enumerate() {
        if !is_tool[i] {
            continue;
        }
        if let Some(digest) = c.digest {
            same[i] = last.insert((own[i], digest), i);
            let since = tools[own[i]].1;
            let fresh = |j: &usize| since.is_none_or(|s| *j > s);
            if c.comparable && !rules.volatile.iter().any(|v| *v == slug_of(bare_tool_name(c.name))) {
                let earlier = std::iter::successors(same[i], |j| same[*j]);
                out[i] = repeat(calls, i, before[i], earlier.take_while(fresh));
            }
        }
        if !c.error {
            for &t in &touched[own[i]] {
                tools[t].1 = Some(i);
            }
        }
    }
    out
}

/// What a call repeats of the earlier ones of its form, the latest first.
fn repeat(
    calls: &[Call<'_>],
    i: usize,
    before: Option<i64>,
    same: impl Iterator<Item = usize>,
) -> Option<Repeat> {
    let mut failed: Option<usize> = None;
    let mut done: Option<usize> = None;
    for j in same {
        // Identical to one of its own run: a self repeat, whatever others did.
        if calls[j].run == calls[i].run {
            return Some(Repeat { earlier: j, kind: Kind::Own });
        }
        if before.is_some_and(|t| calls[j].order < t) {
            let first = if calls[j].error { &mut failed } else { &mut done };
            first.get_or_insert(j);
        }
    }
    match (done, failed) {
        (Some(j), _) => Some(Repeat { earlier: j, kind: Kind::Redundant }),
        (None, Some(j)) => Some(Repeat { earlier: j, kind: Kind::KnownFailure }),
        (None, None) => None,
    }
}

/// Why repeats among the calls cannot be known, if they cannot.
pub(super) fn unknown(calls: &[Call<'_>], is_tool: &[bool], under: &[usize]) -> Option<&'static str> {
    let tools = || (0..calls.len()).filter(|i| is_tool[*i]);
    if tools().next().is_some() && tools().all(|i| !calls[i].comparable) {
        let masked =
            tools().any(|i| calls[i].item.is_some_and(|x| x.args == baton_record::span::Args::Masked));
        return Some(if masked { "arguments are masked" } else { "arguments not captured" });
    }
    // A call of the receiver with unknown arguments, or an earlier one of the same tool, may be the repeat.
    for &i in under {
        let unclear = |j: &usize| !calls[i].comparable || !calls[*j].comparable;
        if tools().take_while(|j| *j < i).filter(unclear).any(|j| same_tool(calls[j].name, calls[i].name)) {
            return Some("arguments of a call of the same tool are not known");
        }
    }
    None
}
