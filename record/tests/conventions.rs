//! The conventions are data: `model/*.yaml`, in the registry format of OpenTelemetry Weaver. Constants in Rust and in Python and
//! the reference page are written from it. `UPDATE_GOLDEN=1` writes them anew; without it this test fails where one is stale.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// One file of the model. Unknown keys are mistakes, or parts of the format that nothing here understands.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    id: String,
    #[serde(rename = "type")]
    kind: Kind,
    span_kind: Option<String>,
    display_name: Option<String>,
    stability: String,
    brief: String,
    note: Option<String>,
    attributes: Vec<Entry>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Kind {
    AttributeGroup,
    Span,
}

/// A definition, or a reference to one.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Entry {
    Attribute(Attribute),
    Reference(Reference),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Attribute {
    id: String,
    #[serde(rename = "type")]
    kind: Type,
    stability: String,
    brief: String,
    note: Option<String>,
    #[serde(default)]
    examples: Vec<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Type {
    Name(String),
    Enum { members: Vec<Member> },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Member {
    id: String,
    value: String,
    stability: String,
    brief: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reference {
    #[serde(rename = "ref")]
    id: String,
    requirement_level: Level,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Required,
    Recommended,
    OptIn,
    ConditionallyRequired(String),
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The groups of all files, in the order of the files' names.
fn model() -> Vec<Group> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(here().join("model")).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| !f.ends_with("manifest.yaml"));
    files.sort();
    let mut groups = Vec::new();
    for f in files {
        let text = fs::read_to_string(&f).unwrap();
        let file: File = serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", f.display()));
        groups.extend(file.groups);
    }
    groups
}

impl Group {
    fn definitions(&self) -> impl Iterator<Item = &Attribute> {
        self.attributes.iter().filter_map(|e| match e {
            Entry::Attribute(a) => Some(a),
            Entry::Reference(_) => None,
        })
    }
}

impl Attribute {
    fn constant(&self) -> String {
        self.id.to_uppercase().replace('.', "_")
    }

    fn type_name(&self) -> &str {
        match &self.kind {
            Type::Name(n) => n,
            Type::Enum { .. } => "string",
        }
    }

    fn members(&self) -> &[Member] {
        match &self.kind {
            Type::Name(_) => &[],
            Type::Enum { members } => members,
        }
    }

    fn doc(&self) -> String {
        let mut doc = format!("{} Type: {}.", one_line(&self.brief), self.type_name());
        if let Some(n) = &self.note {
            doc += &format!(" {}", one_line(n));
        }
        doc
    }
}

fn one_line(s: &str) -> String {
    s.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Words in lines of at most `width` characters.
fn wrap(text: &str, width: usize, prefix: &str) -> String {
    let mut out = String::new();
    let mut line = prefix.to_owned();
    for word in text.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > width && line != prefix {
            out += &line;
            out.push('\n');
            prefix.clone_into(&mut line);
        }
        line.push(' ');
        line += word;
    }
    out + &line + "\n"
}

const ABOUT: &str = "Names of attributes, written from `record/model/`. Change them there.";

fn rust(groups: &[Group]) -> String {
    let mut out = format!("//! {ABOUT}\n\n/// What the names of Baton's own attributes start with.\n");
    out += "pub const PREFIX: &str = \"baton.\";\n";
    for a in groups.iter().flat_map(Group::definitions) {
        out += &wrap(&a.doc(), 120, "///");
        writeln!(out, "pub const {}: &str = \"{}\";", a.constant(), a.id).unwrap();
        for m in a.members() {
            out += &wrap(&format!("A value of [`{}`]: {}", a.constant(), m.brief), 120, "///");
            let name = format!("{}_{}", a.constant(), m.id.to_uppercase());
            writeln!(out, "pub const {name}: &str = \"{}\";", m.value).unwrap();
        }
    }
    out
}

fn python(groups: &[Group]) -> String {
    let mut out = format!("\"\"\"{ABOUT}\"\"\"\n\nfrom typing import Final\n");
    for a in groups.iter().flat_map(Group::definitions) {
        out.push('\n');
        out += &wrap(&a.doc(), 88, "#");
        writeln!(out, "{}: Final = \"{}\"", a.constant(), a.id).unwrap();
        for m in a.members() {
            let name = format!("{}_{}", a.constant(), m.id.to_uppercase());
            writeln!(out, "{name}: Final = \"{}\"", m.value).unwrap();
        }
    }
    out
}

fn page(groups: &[Group]) -> String {
    let mut out = String::from("# Attributes\n\n");
    out += "<!-- Written from `model/`. Change it there. -->\n\n";
    out += "What Baton's tracing layers write on spans. The registry in [model/](model/) is in the format of OpenTelemetry Weaver.\n";
    for g in groups.iter().filter(|g| g.kind == Kind::AttributeGroup) {
        let name = g.display_name.as_deref().expect("an attribute group has a display name");
        writeln!(out, "\n## {name}\n\n{}\n", one_line(&g.brief)).unwrap();
        out += "| attribute | type | meaning | example |\n|---|---|---|---|\n";
        for a in g.definitions() {
            let mut meaning = one_line(&a.brief);
            for m in a.members() {
                write!(meaning, " `{}`: {}", m.value, one_line(&m.brief)).unwrap();
            }
            if let Some(n) = &a.note {
                write!(meaning, " {}", one_line(n)).unwrap();
            }
            let example = a.examples.first().map(|e| match e {
                serde_json::Value::String(s) => format!("`{s}`"),
                other => format!("`{other}`"),
            });
            let example = example.unwrap_or_default();
            writeln!(out, "| `{}` | {} | {meaning} | {example} |", a.id, a.type_name()).unwrap();
        }
    }
    for g in groups.iter().filter(|g| g.kind == Kind::Span) {
        let kind = g.span_kind.as_deref().expect("a span has a kind");
        writeln!(out, "\n## `{}`\n\n{} Span kind: {kind}.", g.id, one_line(&g.brief)).unwrap();
        if let Some(n) = &g.note {
            writeln!(out, "{}", one_line(n)).unwrap();
        }
        out += "\n| attribute | when |\n|---|---|\n";
        for e in &g.attributes {
            let Entry::Reference(r) = e else { continue };
            let when = match &r.requirement_level {
                Level::Required => "always".to_owned(),
                Level::Recommended => "where it is known".to_owned(),
                Level::OptIn => "where the application asks for it".to_owned(),
                Level::ConditionallyRequired(c) => format!("where this holds: {}", one_line(c)),
            };
            writeln!(out, "| `{}` | {when} |", r.id).unwrap();
        }
    }
    out
}

#[test]
fn constants_and_the_reference_page_are_those_of_the_model() {
    let groups = model();
    let files = [
        (here().join("src/attr.rs"), rust(&groups)),
        (here().join("../sdk/python/src/baton_handoff/_attributes.py"), python(&groups)),
        (here().join("ATTRIBUTES.md"), page(&groups)),
    ];
    for (path, want) in files {
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &want).unwrap();
        }
        let is = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(is, want, "{} is stale; UPDATE_GOLDEN=1 writes it anew", path.display());
    }
}

#[test]
fn the_model_is_a_registry_that_resolves() {
    let groups = model();
    let mut defined: BTreeMap<&str, &Attribute> = BTreeMap::new();
    for g in &groups {
        assert!(!g.brief.trim().is_empty() && !g.stability.is_empty(), "{}", g.id);
        for a in g.definitions() {
            assert!(g.kind == Kind::AttributeGroup, "{}: defined in a span", a.id);
            assert!(defined.insert(&a.id, a).is_none(), "{} is defined twice", a.id);
            assert!(a.brief.ends_with('.') && !a.stability.is_empty(), "{}", a.id);
            assert!(!a.examples.is_empty() || !a.members().is_empty(), "{} has no example", a.id);
            assert!(matches!(a.type_name(), "string" | "int" | "string[]"), "{}: {}", a.id, a.type_name());
            for e in &a.examples {
                let fits = match a.type_name() {
                    "int" => e.is_i64(),
                    "string[]" => e.as_array().is_some_and(|l| l.iter().all(serde_json::Value::is_string)),
                    _ => e.is_string(),
                };
                assert!(fits, "{}: {e} is no {}", a.id, a.type_name());
            }
            for m in a.members() {
                assert!(!m.stability.is_empty() && m.id == m.value, "{}: {}", a.id, m.id);
            }
            let foreign = g.id == "registry.foreign";
            assert_eq!(a.id.starts_with("baton."), !foreign, "{} stands in the wrong file", a.id);
        }
    }
    let mut used: Vec<&str> = Vec::new();
    for g in groups.iter().filter(|g| g.kind == Kind::Span) {
        for e in &g.attributes {
            let Entry::Reference(r) = e else { panic!("{} defines attributes", g.id) };
            assert!(defined.contains_key(r.id.as_str()), "{}: {} is not defined", g.id, r.id);
            used.push(&r.id);
        }
    }
    for id in defined.keys() {
        assert!(used.contains(id), "{id} is on no span");
    }
}
