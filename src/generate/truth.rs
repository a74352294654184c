//! What the generated runs contain, counted while they are made and by other means than the analyzer's.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Sums over everything generated.
#[derive(Debug, Default)]
pub(super) struct Truth {
    /// Tasks.
    pub(super) tasks: i64,
    /// Tool calls.
    pub(super) tool_calls: i64,
    /// Transfers by outcome.
    pub(super) outcomes: BTreeMap<&'static str, i64>,
    /// Numerator and denominator by measure.
    measures: BTreeMap<&'static str, (i64, i64)>,
}

impl Truth {
    /// Adds to a measure.
    pub(super) fn add(&mut self, measure: &'static str, numerator: usize, denominator: usize) {
        let m = self.measures.entry(measure).or_default();
        m.0 += numerator as i64;
        m.1 += denominator as i64;
    }

    /// Transfers of every outcome.
    pub(super) fn handoffs(&self) -> i64 {
        self.outcomes.values().sum()
    }

    /// In the form of the report's `measures`.
    pub(super) fn json(&self) -> Value {
        let measures: Vec<Value> = self
            .measures
            .iter()
            .map(|(name, (n, d))| json!({"name": name, "numerator": n, "denominator": d}))
            .collect();
        json!({"tasks": self.tasks, "tool_calls": self.tool_calls, "handoffs": self.outcomes, "measures": measures})
    }
}
