//! From rows to answers: assembly, measures in SQL, reports.

pub mod assemble;
pub mod tables;
pub mod window;

pub mod aside;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod compare;
pub mod engine;
pub mod evaluate;
mod files;
pub mod gates;
pub mod group;
mod kept;
pub mod labels;
pub mod measures;
mod place;
pub mod plan;
pub mod report;
pub mod rules;
pub mod session;
pub mod sums;
mod units;
pub mod violations;
pub mod wire;
mod work;
