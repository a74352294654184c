//! What shows in a text that it was masked, blanked or told again, and what is never kept of it.

use std::sync::LazyLock;

use memchr::memmem;
use regex::Regex;

/// A value that the sender masked whole, or in part so that nothing can be compared.
pub fn is_masked(text: &str) -> bool {
    let t = text.trim();
    matches!(t, "__REDACTED__" | "[REDACTED]" | "<redacted>" | "REDACTED" | "***" | "[Filtered]")
        || (t.len() < 400_000 && holds(t, "[Scrubbed due to"))
}

fn holds(text: &str, part: &str) -> bool {
    memmem::find(text.as_bytes(), part.as_bytes()).is_some()
}

/// A value of which nothing is left: not captured rather than masked in part.
pub fn is_absent(text: &str) -> bool {
    matches!(text.trim(), "" | "__REDACTED__")
}

/// Content that was blanked in place (`[cleared]`).
pub(super) fn is_blanked(text: &str) -> bool {
    let t = text.trim();
    t.len() < 80 && t.starts_with('[') && t.ends_with(']') && !t.starts_with("[{") && {
        let t = t.to_ascii_lowercase();
        ["cleared", "removed", "omitted", "elided", "trimmed"].iter().any(|w| t.contains(w))
    }
}

/// A transcript that a framework re-tells as one text: between markers, or another agent's turns quoted.
pub(super) fn is_retold(text: &str) -> bool {
    let head: String = text.chars().take(200).collect::<String>().to_ascii_lowercase();
    (holds(text, "<CONVERSATION HISTORY>") && holds(text, "</CONVERSATION HISTORY>"))
        || holds(text, "<conversation_history>")
        || head.starts_with("for context:")
        || (head.starts_with("for context, here is") && head.contains("conversation"))
        || (head.starts_with('[')
            && (head.contains("] said:") || head.contains("] called tool") || head.contains("] `")))
}

/// Credentials that are never kept under `redacted`.
pub(super) static CREDENTIALS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    [
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----",
        r"\bAKIA[0-9A-Z]{16}\b",
        r"\bgh[pousr]_[A-Za-z0-9]{20,}\b",
        r"\bsk-[A-Za-z0-9_-]{16,}\b",
        r"\bxox[abpr]-[A-Za-z0-9-]{10,}\b",
        r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\b",
        r"(?i)\bbearer\s+[A-Za-z0-9._~+/=-]{16,}",
        r#"(?i)\b(?:password|passwd|secret|api[_-]?key|access[_-]?token)\b["']?\s*[:=]\s*["']?[^\s"',;}]{6,}"#,
    ]
    .iter()
    .filter_map(|p| Regex::new(p).ok())
    .collect()
});
