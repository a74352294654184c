//! `baton.toml`: everything in it is optional.
//!
//! ```toml
//! content = "redacted"            # none | redacted | full: what text is kept
//! tokenizer = "o200k_base"        # or cl100k_base
//!
//! [redact]
//! patterns = ["CUST-\\d+"]        # masked in kept text, beside credentials
//!
//! [aliases]                       # own names of contract fields
//! auftrag = "intent"
//!
//! [tools]
//! mutating = ["issue_refund", { name = "move_stock", touches = ["get_stock"] }]
//! volatile = ["get_time"]         # a repeat of these is never redundant
//!
//! [[constraints]]                 # the policy catalogue
//! id = "refund-window-30d"
//! text = "Refund only within 30 days of capture"
//! patterns = ["(?i)within 30 days"]
//! agents = ["Refunds Specialist"] # whom it binds; absent: everyone
//!
//! [[rules]]                       # what breaks a constraint: a predicate over the columns of `tool_calls`
//! id = "late-refund"
//! constraint = "refund-window-30d"
//! where = "tool = 'issue_refund' AND arg(args, 'days') > 30"
//! ```
//!
//! `[collect]` is described in [`crate::collect`], `[serve]` in [`crate::serve`].

use std::collections::BTreeMap;
use std::fmt;

use regex::Regex;
use serde::Deserialize;
use toml::Spanned;

use crate::collect::RawCollect;
pub use crate::collect::{Collect, CollectTls};
use crate::constraint::{Constraint, ConstraintKind};
use crate::contract::{Aliases, Field, REQUIRED};
use crate::names::slug;
use crate::serve::{RawServe, Serve};

/// What text is kept in the store. Measures are the same under each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum ContentMode {
    /// No text at all.
    None,
    /// Text with credentials and the configured patterns masked.
    #[default]
    Redacted,
    /// All text.
    Full,
}

/// The tokenizer that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Tokenizer {
    /// The default.
    #[default]
    #[serde(rename = "o200k_base")]
    O200kBase,
    /// The one before.
    #[serde(rename = "cl100k_base")]
    Cl100kBase,
}

impl Tokenizer {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::O200kBase => "o200k_base",
            Self::Cl100kBase => "cl100k_base",
        }
    }
}

/// A tool that changes something, and which tools' results it makes stale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutating {
    /// Slug of the tool.
    pub tool: String,
    /// Slugs of the tools whose repeats it excuses; empty: all.
    pub touches: Vec<String>,
}

/// One rule of the policy catalogue.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The constraint.
    pub constraint: Constraint,
    /// What else shows that a text holds it.
    pub patterns: Vec<Regex>,
    /// Slugs of the agents it binds; empty: everyone.
    pub agents: Vec<String>,
}

/// When a tool call breaks a constraint of the catalogue. That the predicate is one is checked by the analyzer, which can
/// read SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Id, each once.
    pub id: String,
    /// Id of the constraint, which stands in the catalogue.
    pub constraint: String,
    /// A predicate in SQL over one row of `tool_calls`.
    pub predicate: String,
    /// The file it stands in.
    pub file: String,
    /// Line of the predicate, from 1.
    pub line: usize,
    /// Column of the predicate, from 1.
    pub column: usize,
}

impl Rule {
    /// What is wrong with the predicate, with its place.
    pub fn wrong(&self, reason: &str) -> ConfigError {
        ConfigError {
            file: self.file.clone(),
            line: self.line,
            column: self.column,
            reason: format!("rules.where of `{}`: {reason}", self.id),
        }
    }
}

/// The checked configuration.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// What text is kept.
    pub content: ContentMode,
    /// Who counts tokens.
    pub tokenizer: Tokenizer,
    /// Masked in kept text.
    pub redact: Vec<Regex>,
    /// Own names of contract fields.
    pub aliases: Aliases,
    /// Tools that change something.
    pub mutating: Vec<Mutating>,
    /// Slugs of tools whose repeats mean nothing.
    pub volatile: Vec<String>,
    /// The policy catalogue.
    pub policies: Vec<Policy>,
    /// What breaks a constraint of the catalogue.
    pub rules: Vec<Rule>,
    /// The live collector.
    pub collect: Collect,
    /// The SQL endpoint.
    pub serve: Serve,
    /// What it says of spans and tables, as TOML that reads the same: what was computed under another one is stale.
    pub identity: String,
}

/// Why a configuration was refused: file, line, column, key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub file: String,
    /// Line, from 1; 0 where there is none.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// What is wrong.
    pub reason: String,
}

impl ConfigError {
    /// Of what stands at `span` of a file's text.
    pub fn at(file: &str, text: &str, span: Option<std::ops::Range<usize>>, reason: String) -> Self {
        let (line, column) = span.map_or((0, 0), |s| position(text, s.start));
        Self { file: file.to_owned(), line, column, reason }
    }

    /// Of a text that is no TOML, or not of the form that is expected.
    pub fn toml(file: &str, text: &str, e: &toml::de::Error) -> Self {
        Self::at(file, text, e.span(), e.message().trim().replace('\n', " "))
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.reason)
    }
}

impl std::error::Error for ConfigError {}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    content: ContentMode,
    tokenizer: Tokenizer,
    redact: RawRedact,
    aliases: BTreeMap<String, Spanned<String>>,
    tools: RawTools,
    constraints: Vec<RawPolicy>,
    rules: Vec<RawRule>,
    collect: RawCollect,
    serve: RawServe,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawRedact {
    patterns: Vec<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawTools {
    mutating: Vec<RawMutating>,
    volatile: Vec<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawMutating {
    Name(String),
    Touching(RawTouching),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTouching {
    name: String,
    #[serde(default)]
    touches: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPolicy {
    id: Spanned<String>,
    text: Option<String>,
    #[serde(default)]
    kind: ConstraintKind,
    #[serde(default)]
    patterns: Vec<Spanned<String>>,
    #[serde(default)]
    agents: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    id: Spanned<String>,
    constraint: Spanned<String>,
    r#where: Spanned<String>,
}

/// What a configuration says of spans and tables: where the collector and the SQL endpoint listen, and comments, say nothing of them.
fn identity(text: &str) -> String {
    // It was read already, so it is a table.
    let mut table: toml::Table = toml::from_str(text).unwrap_or_default();
    table.remove("collect");
    table.remove("serve");
    table.to_string()
}

impl Config {
    /// Reads and checks a configuration. `file` is only for messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let fail = |span, reason| ConfigError::at(file, text, span, reason);
        let raw: Raw = toml::from_str(text).map_err(|e| ConfigError::toml(file, text, &e))?;
        let regex = |key: &str, p: &Spanned<String>| {
            Regex::new(p.get_ref()).map_err(|e| {
                fail(
                    Some(p.span()),
                    format!("{key}: no valid regular expression: {}", e.to_string().replace('\n', " ")),
                )
            })
        };
        let mut config = Self {
            collect: raw.collect.check().map_err(|(at, reason)| fail(Some(at), reason))?,
            serve: raw.serve.check().map_err(|(at, reason)| fail(Some(at), reason))?,
            content: raw.content,
            tokenizer: raw.tokenizer,
            identity: identity(text),
            ..Self::default()
        };
        for p in &raw.redact.patterns {
            config.redact.push(regex("redact.patterns", p)?);
        }
        for (key, field) in &raw.aliases {
            let f = Field::from_name(field.get_ref()).filter(|f| REQUIRED.contains(f)).ok_or_else(|| {
                let known: Vec<&str> = REQUIRED.iter().map(|f| f.name()).collect();
                fail(
                    Some(field.span()),
                    format!(
                        "aliases.{key}: `{}` is no contract field; use one of {}",
                        field.get_ref(),
                        known.join(", ")
                    ),
                )
            })?;
            config.aliases.add(key, f);
        }
        for m in raw.tools.mutating {
            config.mutating.push(match m {
                RawMutating::Name(n) => Mutating { tool: slug(&n), touches: Vec::new() },
                RawMutating::Touching(t) => {
                    Mutating { tool: slug(&t.name), touches: t.touches.iter().map(|t| slug(t)).collect() }
                }
            });
        }
        config.volatile = raw.tools.volatile.iter().map(|t| slug(t)).collect();
        for p in &raw.constraints {
            let id = p.id.get_ref();
            if id.trim().is_empty() {
                return Err(fail(Some(p.id.span()), "constraints.id: is empty".to_owned()));
            }
            if config.policies.iter().any(|x| x.constraint.id == *id) {
                return Err(fail(Some(p.id.span()), format!("constraints.id: `{id}` stands twice")));
            }
            if p.text.is_none() && p.patterns.is_empty() {
                return Err(fail(
                    Some(p.id.span()),
                    format!("constraints: `{id}` has neither text nor patterns"),
                ));
            }
            let mut constraint = Constraint::new(id, p.text.as_deref().unwrap_or_default(), p.kind);
            constraint.text.clone_from(&p.text);
            let patterns =
                p.patterns.iter().map(|x| regex("constraints.patterns", x)).collect::<Result<_, _>>()?;
            config.policies.push(Policy {
                constraint,
                patterns,
                agents: p.agents.iter().map(|a| slug(a)).collect(),
            });
        }
        for r in raw.rules {
            let (id, constraint) = (r.id.get_ref(), r.constraint.get_ref());
            if id.trim().is_empty() {
                return Err(fail(Some(r.id.span()), "rules.id: is empty".to_owned()));
            }
            if config.rules.iter().any(|x| x.id == *id) {
                return Err(fail(Some(r.id.span()), format!("rules.id: `{id}` stands twice")));
            }
            if !config.policies.iter().any(|p| p.constraint.id == *constraint) {
                let reason = format!("rules.constraint: no [[constraints]] has the id `{constraint}`");
                return Err(fail(Some(r.constraint.span()), reason));
            }
            let (line, column) = position(text, r.r#where.span().start);
            config.rules.push(Rule {
                id: id.clone(),
                constraint: constraint.clone(),
                predicate: r.r#where.into_inner(),
                file: file.to_owned(),
                line,
                column,
            });
        }
        Ok(config)
    }

    /// Ids of the policies whose patterns a text matches. Ids and texts of policies are found through
    /// fingerprints; this is for what only patterns can tell.
    pub fn policies_in<'a>(&'a self, text: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.policies
            .iter()
            .filter(move |p| p.patterns.iter().any(|r| r.is_match(text)))
            .map(|p| p.constraint.id.as_str())
    }
}

fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at.min(text.len())];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_concerns_tables_is_in_the_identity() {
        let of = |text: &str| Config::parse("f", text).map(|c| c.identity).map_err(|e| e.to_string());
        let rules = "content = 'none'\n[[constraints]]\nid = 'a'\ntext = 'b'\n";
        let more = format!(
            "# what we agreed on\n{rules}\n[collect]\nvisible_after = '1s'\n[serve]\nrefresh = '3s'\n"
        );
        let same = of(rules).unwrap();
        assert_eq!(of(&more).as_ref(), Ok(&same));
        assert_ne!(of("content = 'full'").as_ref(), Ok(&same));
        // It reads as what it was made from.
        let again = Config::parse("f", &same).unwrap();
        assert_eq!((again.content, again.policies.len(), again.identity), (ContentMode::None, 1, same));
    }

    #[test]
    fn the_example_in_the_docs_is_accepted() {
        let doc = include_str!("config.rs");
        let toml: String = doc
            .lines()
            .skip_while(|l| !l.contains("```toml"))
            .skip(1)
            .take_while(|l| !l.contains("```"))
            .map(|l| l.trim_start_matches("//!").trim_start().to_owned() + "\n")
            .collect();
        let c = Config::parse("baton.toml", &toml).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((c.policies.len(), c.rules.len()), (1, 1));
        assert_eq!(c.mutating[1].touches, ["get_stock"]);
        assert_eq!(c.policies_in("only within 30 Days, please").collect::<Vec<_>>(), ["refund-window-30d"]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let cases = [
            ("content = \"ful\"\n", 1, "ful"),
            ("\n[tools]\nmutatng = []\n", 3, "mutatng"),
            ("[aliases]\ngoal2 = \"intents\"\n", 2, "intents"),
            ("[redact]\npatterns = [\"(\"]\n", 2, "regular expression"),
            (
                "[[constraints]]\nid = \"a\"\ntext = \"b\"\n[[constraints]]\nid = \"a\"\ntext = \"b\"\n",
                5,
                "twice",
            ),
            ("[[constraints]]\nid = \"a\"\n", 2, "neither"),
            ("[[rules]]\nid = \"r\"\nconstraint = \"a\"\nwhere = \"true\"\n", 3, "`a`"),
            ("[[rules]]\nid = \"r\"\nconstraint = \"a\"\n", 1, "where"),
        ];
        for (text, line, part) in cases {
            let e = Config::parse("baton.toml", text).err();
            assert!(
                e.as_ref().is_some_and(|e| e.line == line && e.to_string().contains(part)),
                "{text}: {e:?}"
            );
        }
    }

    #[test]
    fn a_rule_knows_its_place() {
        let text = "[[constraints]]\nid = \"a\"\ntext = \"b\"\n\n[[rules]]\nid = \"r\"\nconstraint = \"a\"\nwhere = \"tool = 'x'\"\n";
        let c = Config::parse("p.toml", text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((c.rules[0].predicate.as_str(), c.rules[0].line, c.rules[0].column), ("tool = 'x'", 8, 9));
        assert_eq!(c.rules[0].wrong("no").to_string(), "p.toml:8:9: rules.where of `r`: no");
        let twice = format!("{text}[[rules]]\nid = \"r\"\nconstraint = \"a\"\nwhere = \"true\"\n");
        assert!(Config::parse("p.toml", &twice).is_err_and(|e| e.line == 10));
    }

    #[test]
    fn nothing_is_a_configuration() {
        let c = Config::parse("baton.toml", "").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((c.content, c.tokenizer.name()), (ContentMode::Redacted, "o200k_base"));
    }
}
