//! From rows to answers: assembly, measures in SQL, reports.

pub mod assemble;
pub mod tables;
pub mod window;

pub mod aside;
pub mod compare;
pub mod evaluate;
pub mod files;
pub mod gates;
pub mod group;
mod kept;
pub mod labels;
pub mod measures;
pub mod plan;
pub mod report;
pub mod rules;
pub mod session;
pub mod sums;
mod units;
pub mod violations;
pub mod wire;
