//! A report as sections of text and tables, and its two forms: for a terminal and as Markdown.
//!
//! Cells hold raw text; both forms escape it.

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table as Grid};

use super::text;

/// Width of tables where no terminal gives one.
const WIDTH: u16 = 140;

/// A report.
#[derive(Debug, Clone, Default)]
pub struct Document {
    /// Heading.
    pub title: String,
    /// Parts, in order.
    pub sections: Vec<Section>,
}

/// A part with its heading.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// Heading; empty: none.
    pub title: String,
    /// Lines before the table.
    pub lines: Vec<String>,
    /// A table.
    pub table: Option<Table>,
}

/// A table.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Column headings; one that starts with `>` is of numbers.
    pub head: Vec<&'static str>,
    /// Cells. A line end inside a cell is a new line of it.
    pub rows: Vec<Vec<String>>,
}

impl Document {
    /// For a terminal.
    pub fn terminal(&self) -> String {
        self.shown(false)
    }

    /// For a terminal that has colour. What colour says, the words say too.
    pub fn terminal_in_color(&self) -> String {
        self.shown(true)
    }

    fn shown(&self, color: bool) -> String {
        let heading = |t: &str| {
            if color {
                format!("\u{1b}[1m{}\u{1b}[0m\n", text::plain(t))
            } else {
                format!("{}\n", text::plain(t))
            }
        };
        let mut out = heading(&self.title);
        for s in &self.sections {
            out.push('\n');
            if !s.title.is_empty() {
                out.push_str(&heading(&s.title));
            }
            for l in &s.lines {
                out.push_str(&format!("  {}\n", text::plain(l)));
            }
            if let Some(t) = &s.table {
                out.push_str(&t.terminal(color));
            }
        }
        out
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let mut out = format!("# {}\n", text::markdown(&self.title));
        for s in &self.sections {
            if !s.title.is_empty() {
                out.push_str(&format!("\n## {}\n", text::markdown(&s.title)));
            }
            if !s.lines.is_empty() {
                out.push('\n');
            }
            for l in &s.lines {
                out.push_str(&format!("- {}\n", text::markdown(l)));
            }
            if let Some(t) = &s.table {
                out.push_str(&t.markdown());
            }
        }
        out
    }
}

fn heading(h: &str) -> (&str, bool) {
    h.strip_prefix('>').map_or((h, false), |h| (h, true))
}

/// Cell lines, each escaped by `f`.
fn lines(cell: &str, f: impl Fn(&str) -> String, join: &str) -> String {
    cell.split('\n').map(f).collect::<Vec<_>>().join(join)
}

impl Table {
    fn terminal(&self, color: bool) -> String {
        let mut grid = Grid::new();
        if color {
            grid.enforce_styling();
        }
        grid.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        if !grid.is_tty() {
            grid.set_width(WIDTH);
        }
        let align = |h: &str, c: Cell| {
            if heading(h).1 { c.set_alignment(CellAlignment::Right) } else { c }
        };
        let paint = |c: Cell, text: &str| match text {
            "error" | "failed" | "worse" if color => c.fg(Color::Red),
            "warning" if color => c.fg(Color::Yellow),
            _ => c,
        };
        let head = |h: &str| {
            let c = align(h, Cell::new(heading(h).0));
            if color { c.add_attribute(Attribute::Bold) } else { c }
        };
        grid.set_header(self.head.iter().map(|h| head(h)));
        for r in &self.rows {
            grid.add_row(
                self.head
                    .iter()
                    .zip(r)
                    .map(|(h, c)| paint(align(h, Cell::new(lines(c, text::plain, "\n"))), c)),
            );
        }
        let mut out = String::new();
        for l in grid.lines() {
            out.push_str(&format!(" {}\n", l.trim_end()));
        }
        out
    }

    fn markdown(&self) -> String {
        let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut out = String::from("\n");
        out.push_str(&row(self.head.iter().map(|h| heading(h).0.to_owned()).collect()));
        out.push_str(&row(self
            .head
            .iter()
            .map(|h| if heading(h).1 { "---:" } else { "---" }.to_owned())
            .collect()));
        for r in &self.rows {
            out.push_str(&row(r.iter().map(|c| lines(c, text::markdown, "<br>")).collect()));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doc() -> Document {
        let table = Table {
            head: vec!["agent", ">calls"],
            rows: vec![
                vec!["<script>|\u{1b}[2J".to_owned(), "3".to_owned()],
                vec!["two\nlines".to_owned(), "12".to_owned()],
            ],
        };
        let section =
            Section { title: "Agents".to_owned(), lines: vec!["a *line*".to_owned()], table: Some(table) };
        Document { title: "Report".to_owned(), sections: vec![section] }
    }

    #[test]
    fn the_terminal_form_has_aligned_columns_and_no_escape_codes() {
        let t = doc().terminal();
        assert!(!t.contains('\u{1b}') && t.contains("\\u{1b}[2J"), "{t}");
        assert!(t.contains("     3\n") && t.contains("    12\n"), "{t}");
    }

    #[test]
    fn colour_adds_nothing_but_colour() {
        let mut d = doc();
        if let Some(t) = &mut d.sections[0].table {
            t.rows.push(vec!["error".to_owned(), "1".to_owned()]);
        }
        let colored = d.terminal_in_color();
        assert!(colored.starts_with("\u{1b}[1mReport\u{1b}[0m\n"), "{colored}");
        assert_eq!(colored.matches("error").count(), 1);
        let codes = regex::Regex::new("\u{1b}\\[[0-9;]*m").map(|r| r.replace_all(&colored, "").into_owned());
        let trimmed = |t: &str| t.lines().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>();
        assert_eq!(codes.map(|t| trimmed(&t)), Ok(trimmed(&d.terminal())));
    }

    #[test]
    fn the_markdown_form_has_no_live_markup() {
        let m = doc().markdown();
        assert!(m.contains("| &lt;script&gt;\\|\\\\u\\{1b\\}\\[2J | 3 |"), "{m}");
        assert!(m.contains("| two<br>lines | 12 |") && m.contains("- a \\*line\\*"), "{m}");
    }
}
