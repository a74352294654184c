//! `gates.toml`: what must hold for a run to pass.
//!
//! ```toml
//! min_handoffs = 50                       # with fewer transfers a gate is neither passed nor failed
//!
//! [[gate]]
//! rule = "constraint_retention >= 0.98"   # a measure of `baton measures`, one of >= <= > <, a number; shares are from 0 to 1
//!
//! [[gate]]
//! rule = "redundant_tool_calls <= 0.05"
//! from = "Triage"                         # only transfers of this sender,
//! to = "Refunds"                          # to this receiver,
//! service = "returns-desk"                # of this service
//! min_handoffs = 20                       # of this gate alone
//!
//! [baseline]                              # no measure may be worse than there, beyond chance
//! before = "7d"                           # the days before the run; or against = "STORE", as `baton compare` takes it
//! measures = ["constraint_retention"]     # absent: all that have a good direction
//! level = 0.01                            # chance of even one false alarm; this where absent
//! ```

use std::time::Duration;

use baton_record::collect::duration;
use baton_record::config::ConfigError;
use baton_record::names::slug;
use serde::Deserialize;
use toml::Spanned;

use crate::compare::{LEVEL, LEVELS};
use crate::measures::{ALL, Direction, Measure, Subject};

/// How a value is held against a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparator {
    /// `>=`
    AtLeast,
    /// `<=`
    AtMost,
    /// `>`
    Above,
    /// `<`
    Below,
}

impl Comparator {
    /// The longer ones first, as they are looked for.
    const ALL: [Self; 4] = [Self::AtLeast, Self::AtMost, Self::Above, Self::Below];

    /// As it is written.
    pub fn sign(self) -> &'static str {
        match self {
            Self::AtLeast => ">=",
            Self::AtMost => "<=",
            Self::Above => ">",
            Self::Below => "<",
        }
    }

    /// Whether it holds.
    pub fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::AtLeast => value >= limit,
            Self::AtMost => value <= limit,
            Self::Above => value > limit,
            Self::Below => value < limit,
        }
    }
}

/// A limit for a measure, over everything or a part.
#[derive(Debug, Clone)]
pub struct Limit {
    /// The measure.
    pub measure: &'static Measure,
    /// How it is held against the limit.
    pub comparator: Comparator,
    /// The limit, in the measure's unit.
    pub limit: f64,
    /// Only transfers of this sender, named as in the file. Names are compared by slug.
    pub from: Option<String>,
    /// Only transfers to this receiver.
    pub to: Option<String>,
    /// Only this service.
    pub service: Option<String>,
    /// With fewer transfers there is not enough data.
    pub min_handoffs: i64,
}

impl Limit {
    /// As it is written: `constraint_retention >= 0.98`.
    pub fn rule(&self) -> String {
        format!("{} {} {}", self.measure.name, self.comparator.sign(), self.limit)
    }

    /// Whether a transfer or a task with these names is meant. A task has neither sender nor receiver.
    pub(super) fn covers(&self, from: Option<&str>, to: Option<&str>, service: Option<&str>) -> bool {
        let agent = |want: &Option<String>, is: Option<&str>| {
            want.as_ref().is_none_or(|w| is.is_some_and(|is| slug(is) == slug(w)))
        };
        agent(&self.from, from)
            && agent(&self.to, to)
            && self.service.as_deref().is_none_or(|s| Some(s) == service)
    }
}

/// Where a baseline is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Against {
    /// As `baton compare` takes it.
    Named(String),
    /// In the same place, this long before the run.
    Before(Duration),
}

/// What a run is compared with.
#[derive(Debug, Clone)]
pub struct Baseline {
    /// Where it is.
    pub against: Against,
    /// What must not be worse.
    pub measures: Vec<&'static Measure>,
    /// These were asked for by name, so that missing data must be told.
    pub named: bool,
    /// The chance of even one false alarm.
    pub level: f64,
}

/// The checked file.
#[derive(Debug, Clone)]
pub struct Gates {
    /// With fewer transfers there is not enough data.
    pub min_handoffs: i64,
    /// Limits.
    pub limits: Vec<Limit>,
    /// What must not be worse than before.
    pub baseline: Option<Baseline>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default)]
    min_handoffs: u32,
    #[serde(default)]
    gate: Vec<RawGate>,
    baseline: Option<Spanned<RawBaseline>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGate {
    rule: Spanned<String>,
    from: Option<Spanned<String>>,
    to: Option<Spanned<String>>,
    service: Option<String>,
    min_handoffs: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBaseline {
    against: Option<String>,
    before: Option<Spanned<String>>,
    measures: Option<Vec<Spanned<String>>>,
    level: Option<Spanned<f64>>,
}

impl Gates {
    /// Reads and checks a file. `file` is only for messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let raw: Raw = toml::from_str(text).map_err(|e| ConfigError::toml(file, text, &e))?;
        let fail = |span, reason| ConfigError::at(file, text, Some(span), reason);
        let mut limits = Vec::new();
        for g in raw.gate {
            let (measure, comparator, limit) =
                rule(g.rule.get_ref()).map_err(|why| fail(g.rule.span(), format!("gate.rule: {why}")))?;
            if let Some(agent) =
                g.from.as_ref().or(g.to.as_ref()).filter(|_| measure.subject == Subject::Task)
            {
                let why =
                    format!("gate: {} is a measure of tasks, which have no sender or receiver", measure.name);
                return Err(fail(agent.span(), why));
            }
            let min_handoffs = i64::from(g.min_handoffs.unwrap_or(raw.min_handoffs));
            let [from, to] = [g.from, g.to].map(|n| n.map(Spanned::into_inner));
            limits.push(Limit { measure, comparator, limit, from, to, service: g.service, min_handoffs });
        }
        let mut baseline = None;
        if let Some(b) = raw.baseline {
            let (span, b) = (b.span(), b.into_inner());
            let against = match (b.against, b.before) {
                (Some(name), None) => Against::Named(name),
                (None, Some(text)) => {
                    let long = duration(text.get_ref()).filter(|d| !d.is_zero());
                    let why = || {
                        format!("baseline.before: `{}` is no length of time; say 7d or 24h", text.get_ref())
                    };
                    Against::Before(long.ok_or_else(|| fail(text.span(), why()))?)
                }
                _ => return Err(fail(span, "baseline: say either against or before".to_owned())),
            };
            let mut named = Vec::new();
            for m in b.measures.iter().flatten() {
                let found = measure(m.get_ref()).and_then(|found| match found.direction {
                    Direction::Neutral => {
                        Err(format!("{} is neither good nor bad, so it has no worse", found.name))
                    }
                    _ => Ok(found),
                });
                named.push(found.map_err(|why| fail(m.span(), format!("baseline.measures: {why}")))?);
            }
            if let Some(level) = b.level.as_ref().filter(|l| !LEVELS.contains(l.get_ref())) {
                let why = format!("baseline.level: must be from {} to {}", LEVELS.start(), LEVELS.end());
                return Err(fail(level.span(), why));
            }
            let directed = || ALL.iter().filter(|m| m.direction != Direction::Neutral).collect();
            baseline = Some(Baseline {
                against,
                named: !named.is_empty(),
                measures: if named.is_empty() { directed() } else { named },
                level: b.level.map_or(LEVEL, Spanned::into_inner),
            });
        }
        if limits.is_empty() && baseline.is_none() {
            return Err(ConfigError::at(
                file,
                text,
                None,
                "holds neither a [[gate]] nor a [baseline]".to_owned(),
            ));
        }
        Ok(Self { min_handoffs: i64::from(raw.min_handoffs), limits, baseline })
    }
}

/// A measure by its name, or by the name that the share of redundant calls goes by.
fn measure(name: &str) -> Result<&'static Measure, String> {
    let full = if name == "redundant_rate" { "redundant_tool_calls" } else { name };
    Measure::by_name(full)
        .ok_or_else(|| format!("no measure is called `{name}`; `baton measures` lists them"))
}

fn rule(text: &str) -> Result<(&'static Measure, Comparator, f64), String> {
    let Some((comparator, (name, limit))) =
        Comparator::ALL.into_iter().find_map(|c| text.split_once(c.sign()).map(|parts| (c, parts)))
    else {
        return Err(
            "say a measure, one of >= <= > <, and a number: \"constraint_retention >= 0.98\"".to_owned()
        );
    };
    let measure = measure(name.trim())?;
    let number: f64 = limit
        .trim()
        .parse()
        .ok()
        .filter(|n: &f64| n.is_finite())
        .ok_or_else(|| format!("`{}` is no number", limit.trim()))?;
    if measure.unit == "share" && !(0.0..=1.0).contains(&number) {
        return Err(format!("{} is a share, from 0 to 1", measure.name));
    }
    Ok((measure, comparator, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_in_the_docs_is_accepted() {
        let toml: String = include_str!("file.rs")
            .lines()
            .skip_while(|l| !l.contains("```toml"))
            .skip(1)
            .take_while(|l| !l.contains("```"))
            .map(|l| l.trim_start_matches("//!").to_owned() + "\n")
            .collect();
        let g = Gates::parse("gates.toml", &toml).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(g.limits.iter().map(|l| l.min_handoffs).collect::<Vec<_>>(), [50, 20]);
        assert_eq!(g.limits[0].rule(), "constraint_retention >= 0.98");
        assert!(g.limits[1].covers(Some("triage"), Some("REFUNDS"), Some("returns-desk")));
        assert!(!g.limits[1].covers(Some("triage"), None, Some("returns-desk")));
        assert!(g.baseline.is_some_and(|b| b.named && b.measures.len() == 1));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let cases = [
            ("", 0, "neither"),
            ("min_handoffs = -1\n", 1, "-1"),
            ("[[gate]]\nrule = \"leaks <= 0\"\nform = \"a\"\n", 3, "form"),
            ("[[gate]]\nrule = \"leak <= 0\"\n", 2, "no measure is called `leak`"),
            ("[[gate]]\nrule = \"leaks = 0\"\n", 2, "one of"),
            ("[[gate]]\nrule = \"leaks <= none\"\n", 2, "`none` is no number"),
            ("[[gate]]\nrule = \"leaks <= inf\"\n", 2, "`inf` is no number"),
            ("[[gate]]\nrule = \"completeness >= 98\"\n", 2, "from 0 to 1"),
            ("[[gate]]\nrule = \"bounces <= 1\"\nto = \"a\"\n", 3, "measure of tasks"),
            ("[baseline]\nagainst = \"x\"\nmeasures = [\"payload_tokens\"]\n", 3, "neither good nor bad"),
            ("\n[baseline]\nlevel = 0.01\n", 2, "either against or before"),
            ("[baseline]\nagainst = \"x\"\nbefore = \"7d\"\n", 1, "either against or before"),
            ("[baseline]\nbefore = \"a week\"\n", 2, "`a week` is no length"),
            ("[baseline]\nagainst = \"x\"\nlevel = 0.5\n", 3, "baseline.level"),
        ];
        for (text, line, part) in cases {
            let e = Gates::parse("gates.toml", text).err();
            assert!(
                e.as_ref().is_some_and(|e| e.line == line && e.to_string().contains(part)),
                "{text}: {e:?}"
            );
        }
    }
}
