//! Something that gets worse on one day for one pair of agents: what a comparison has to find, and nothing else.

use super::script::AGENTS;

/// What gets worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The sender fills all fields but two with placeholders.
    Completeness,
    /// The handover's text leaves out the constraints that the contract states. Receivers further on miss them too.
    ConstraintRetention,
    /// The handover's text quotes a result that was filtered out.
    Leaks,
}

/// On which day, between whom, and what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Regression {
    /// From 1.
    pub(super) day: u64,
    /// Places in [`AGENTS`].
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) fault: Fault,
}

impl std::str::FromStr for Regression {
    type Err = String;

    /// `DAY:FROM->TO:MEASURE`
    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "must be DAY:FROM->TO:MEASURE".to_owned();
        let mut parts = text.splitn(3, ':');
        let (Some(day), Some(pair), Some(measure)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(form());
        };
        let (from, to) = pair.split_once("->").ok_or_else(form)?;
        let agent = |name: &str| {
            AGENTS
                .iter()
                .position(|a| *a == name.trim())
                .ok_or_else(|| format!("no agent `{}`; there are {}", name.trim(), AGENTS.join(", ")))
        };
        let fault = match measure {
            "completeness" => Fault::Completeness,
            "constraint_retention" => Fault::ConstraintRetention,
            "leaks" => Fault::Leaks,
            other => {
                return Err(format!(
                    "`{other}` cannot get worse; completeness, constraint_retention and leaks can"
                ));
            }
        };
        let day = day
            .parse()
            .ok()
            .filter(|d| *d > 0)
            .ok_or_else(|| format!("`{day}` is no day; the first is 1"))?;
        Ok(Self { day, from: agent(from)?, to: agent(to)?, fault })
    }
}
