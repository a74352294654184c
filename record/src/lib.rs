//! What Baton records: names, canonical forms, constraints, contracts, fingerprints, and the row
//! that every span becomes. No I/O, no async, no OpenTelemetry SDK, no query engine.

pub mod attr;
pub mod canonical;
pub mod collect;
pub mod config;
pub mod constraint;
pub mod contract;
pub mod json;
pub mod names;
pub mod prints;
pub mod pyrepr;
pub mod schema;
pub mod serve;
pub mod span;
