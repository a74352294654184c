//! Names and texts from traces as data: nothing in them may act on a terminal, a page or a spreadsheet.

use std::fmt::Write;

/// Characters that are shown as an escape: controls, line and paragraph separators, and marks that turn the
/// direction of text or are not seen.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// The text on one line, with hidden characters escaped. Joiners inside emoji are kept.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{200d}' => out.push(c),
            c if is_hidden(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// On one line and of at most `limit` characters, with `…` for the rest.
pub fn short(text: &str, limit: usize) -> String {
    let mut out: String =
        text.chars().take(limit).map(|c| if matches!(c, '\n' | '\r' | '\t') { ' ' } else { c }).collect();
    if out.len() < text.len() {
        out.pop();
        out.push('…');
    }
    out
}

/// The text as Markdown that shows exactly it: no markup, no HTML, no link, no table cell that ends early.
pub fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in plain(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '#' | '|' | '!' | '~' | '@' | ':' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

/// The text for HTML, between tags or in a quoted attribute: it shows exactly it, and makes no element.
pub fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in plain(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// The text for XML, between tags or in a quoted attribute.
pub fn xml(text: &str) -> String {
    // No XML document may hold these two, not even as a reference.
    html(text).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}

/// A text cell for a CSV file: a leading `=`, `+`, `-`, `@`, tab or line end would be a formula in a spreadsheet, so
/// a `'` goes in front.
pub fn csv(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) {
        format!("'{text}")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_hidden_reaches_the_terminal() {
        assert_eq!(plain("a\u{1b}[31mb\nc\u{202e}d\u{0}\u{85}"), "a\\u{1b}[31mb\\nc\\u{202e}d\\u{0}\\u{85}");
        assert_eq!(plain("Zürich 👩‍💻"), "Zürich 👩‍💻");
    }

    #[test]
    fn markdown_shows_markup_as_text() {
        assert_eq!(markdown("<b>|x|</b> [a](b)"), "&lt;b&gt;\\|x\\|&lt;/b&gt; \\[a\\](b)");
        assert_eq!(markdown("https://x.y"), "https\\://x.y");
    }

    #[test]
    fn html_shows_markup_as_text() {
        assert_eq!(
            html("<b a=\"x\" c='y'>&amp;\u{202e}"),
            "&lt;b a=&quot;x&quot; c=&#39;y&#39;&gt;&amp;amp;\\u{202e}"
        );
    }

    #[test]
    fn xml_holds_nothing_that_xml_forbids() {
        assert_eq!(xml("<a>&\u{0}\u{ffff}"), "&lt;a&gt;&amp;\\u{0}\u{fffd}");
    }

    #[test]
    fn a_formula_is_disarmed_in_csv() {
        assert_eq!([csv("=1+1"), csv("@x"), csv("a=b")], ["'=1+1", "'@x", "a=b"]);
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        assert_eq!(short("äöüß", 3), "äö…");
        assert_eq!(short("äöü", 3), "äöü");
        assert_eq!(short("a\nb", 9), "a b");
    }
}
