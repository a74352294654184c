//! What the terminal is to see beside the answer: notes, progress, colour.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::Duration;

use baton_analyzer::report::document::Document;
use clap::ColorChoice;
use indicatif::{ProgressBar, ProgressStyle};

/// What the user asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Terminal {
    /// No progress and no notes.
    pub(crate) quiet: bool,
    /// Also what is done meanwhile.
    pub(crate) verbose: bool,
    /// When to use colour.
    pub(crate) color: ColorChoice,
}

static TERMINAL: OnceLock<Terminal> = OnceLock::new();

/// Set once, before anything is done.
pub(crate) fn set(terminal: Terminal) {
    // Only main sets it, so it is not set yet.
    let _ = TERMINAL.set(terminal);
}

fn get() -> Terminal {
    TERMINAL.get().copied().unwrap_or_default()
}

/// True where the user wants to know what is done meanwhile.
#[cfg(feature = "cluster")]
pub(crate) fn is_verbose() -> bool {
    get().verbose
}

/// Says something on standard error that is good to know.
pub(crate) fn note(text: &str) {
    if !get().quiet {
        eprintln!("note: {text}");
    }
}

/// Says on standard error what is being done, where the user wants to know.
pub(crate) fn detail(text: impl FnOnce() -> String) {
    if get().verbose {
        eprintln!("{}", text());
    }
}

fn progress(bar: ProgressBar, style: &str) -> ProgressBar {
    if get().quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

/// A bar for work of known length in bytes.
pub(crate) fn bar(bytes: u64) -> ProgressBar {
    progress(ProgressBar::new(bytes), "{bar:30} {bytes}/{total_bytes} {msg}")
}

/// Something that turns while work of unknown length goes on.
pub(crate) fn spinner(what: &'static str) -> ProgressBar {
    let s = progress(ProgressBar::new_spinner(), "{spinner} {msg} {elapsed}");
    s.set_message(what);
    if !s.is_hidden() {
        s.enable_steady_tick(Duration::from_millis(120));
    }
    s
}

/// A report as text, in colour where it goes to a terminal that has it, or where the user asks for it.
pub(crate) fn text(doc: &Document, to_file: bool) -> String {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    let color = match get().color {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            let able = set("NO_COLOR").is_none() && set("TERM").is_none_or(|t| t != OsStr::new("dumb"));
            able && !to_file && std::io::stdout().is_terminal()
        }
    };
    if color { doc.terminal_in_color() } else { doc.terminal() }
}
