//! From rows to answers: assembly, measures in SQL, reports.

pub mod assemble;
pub mod tables;

pub mod aside;
pub mod evaluate;
pub mod files;
pub mod group;
pub mod labels;
pub mod measures;
pub mod plan;
pub mod report;
pub mod session;
