//! From rows to answers: assembly, measures in SQL, reports.

pub mod assemble;
pub mod tables;

pub mod group;
pub mod plan;
pub mod session;
pub mod evaluate;
pub mod measures;
pub mod report;
