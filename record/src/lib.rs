//! What Baton records: names, canonical forms, constraints, contracts, fingerprints, and the row
//! that every span becomes. No I/O, no async, no OpenTelemetry SDK, no query engine; only `objects`, which is optional, talks to
//! object stores.

pub mod attr;
pub mod canonical;
pub mod collect;
pub mod config;
pub mod constraint;
pub mod contract;
pub mod json;
pub mod names;
#[cfg(feature = "objects")]
pub mod objects;
pub mod prints;
pub mod pyrepr;
pub mod schema;
pub mod serve;
pub mod span;
