//! From OTLP to rows on disk: reading OTLP, the dialects of the instrumentations, and the store.
//! No query engine.

pub mod dialect;
pub mod handoff;
pub mod import;
pub mod keep;
#[cfg(feature = "server")]
pub mod live;
mod memo;
pub mod messages;
pub mod otlp;
pub mod processor;
pub mod raw;
pub mod reading;
pub mod said;
pub mod store;

/// The programs in the README are run as they stand there.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
