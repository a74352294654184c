//! Markup under construction. Tags come from literals alone and everything else is escaped, so no name from a trace can
//! become an element or an attribute.

use super::super::document::Table;
use super::super::text;

/// Characters of a name that are shown.
const NAME: usize = 40;

/// A piece of a page.
#[derive(Debug, Default)]
pub(super) struct Html(String);

impl Html {
    /// Markup.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Text, between tags or in a quoted attribute.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.0.push_str(&text::html(text));
        self
    }

    /// A name, cut to a length that fits, and kept apart from the text around it where it is written from the right.
    pub(super) fn name(&mut self, name: &str) -> &mut Self {
        self.raw("<bdi>").text(&text::short(name, NAME)).raw("</bdi>")
    }

    /// Two ends of a transfer.
    pub(super) fn ends(&mut self, from: &str, to: &str) -> &mut Self {
        self.name(from).raw(" → ").name(to)
    }

    /// A whole number.
    pub(super) fn int(&mut self, n: i64) -> &mut Self {
        self.text(&n.to_string())
    }

    /// A part of the width of a drawing, from 0 to 1.
    pub(super) fn part(&mut self, share: f64) -> &mut Self {
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        self.text(&format!("{:.2}%", share * 100.0))
    }

    /// A finished piece.
    pub(super) fn append(&mut self, other: &Self) -> &mut Self {
        self.0.push_str(&other.0);
        self
    }

    /// A list of texts, of which the first `limit` are shown.
    pub(super) fn list(&mut self, lines: &[String], limit: usize) -> &mut Self {
        self.raw("<ul>");
        for l in lines.iter().take(limit) {
            // A line below the one before.
            match l.strip_prefix("- ") {
                Some(l) => self.raw("<li class=\"below\">").text(l),
                None => self.raw("<li>").text(l),
            };
            self.raw("</li>");
        }
        if lines.len() > limit {
            let more = lines.len() - limit;
            self.raw("<li class=\"note\">")
                .text(&format!("and {more} more lines: `baton explain` tells all"))
                .raw("</li>");
        }
        self.raw("</ul>")
    }

    /// A table in a frame of its own that scrolls where it is too wide; `about` names it for those who do not see it.
    pub(super) fn table(&mut self, about: &'static str, table: &Table) -> &mut Self {
        self.frame(about).raw("<table><thead><tr>");
        for h in &table.head {
            match h.strip_prefix('>') {
                Some(h) => self.raw("<th scope=\"col\" class=\"n\">").text(h),
                None => self.raw("<th scope=\"col\">").text(h),
            };
            self.raw("</th>");
        }
        self.raw("</tr></thead><tbody>");
        for r in &table.rows {
            self.raw("<tr>");
            for (h, c) in table.head.iter().zip(r) {
                self.raw(if h.starts_with('>') { "<td class=\"n\">" } else { "<td>" });
                for (i, line) in c.split('\n').enumerate() {
                    if i > 0 {
                        self.raw("<br>");
                    }
                    self.text(line);
                }
                self.raw("</td>");
            }
            self.raw("</tr>");
        }
        self.raw("</tbody></table></div>")
    }

    /// Opens the frame of a table; a `</div>` closes it. The keyboard reaches it, so that it can be scrolled.
    pub(super) fn frame(&mut self, about: &'static str) -> &mut Self {
        self.raw("<div class=\"frame\" tabindex=\"0\" role=\"region\" aria-label=\"").raw(about).raw("\">")
    }

    /// A bar for a share, which the text beside it says too; with a line where the share was before.
    pub(super) fn bar(&mut self, share: f64, before: Option<f64>) -> &mut Self {
        self.raw(
            "<svg class=\"bar\" aria-hidden=\"true\"><rect class=\"track\" width=\"100%\" height=\"100%\"/>",
        )
        .raw("<rect class=\"fill\" height=\"100%\" width=\"")
        .part(share)
        .raw("\"/>");
        if let Some(b) = before {
            self.raw("<line class=\"was\" y1=\"0\" y2=\"100%\" x1=\"")
                .part(b)
                .raw("\" x2=\"")
                .part(b)
                .raw("\"/>");
        }
        self.raw("</svg>")
    }

    /// The markup.
    pub(super) fn into_string(self) -> String {
        self.0
    }

    #[cfg(test)]
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_make_no_element_and_leave_no_attribute() {
        let mut h = Html::default();
        h.raw("<p title=\"")
            .text("\" onclick=\"x")
            .raw("\">")
            .name("<img src=x onerror=alert(1)>")
            .raw("</p>");
        let want = "<p title=\"&quot; onclick=&quot;x\"><bdi>&lt;img src=x onerror=alert(1)&gt;</bdi></p>";
        assert_eq!(h.as_str(), want);
    }

    #[test]
    fn a_bar_stays_in_its_frame() {
        for (share, width) in [(0.5, "50.00%"), (7.0, "100.00%"), (-1.0, "0.00%"), (f64::NAN, "0.00%")] {
            let mut h = Html::default();
            h.bar(share, None);
            assert!(
                h.as_str().contains(&format!("class=\"fill\" height=\"100%\" width=\"{width}\"")),
                "{share}"
            );
        }
    }
}
