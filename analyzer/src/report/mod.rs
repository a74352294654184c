//! Reports: JSON, terminal, Markdown, HTML, the story of one task, and what another filter would have done.

pub mod answer;
pub mod comparison;
pub mod document;
pub mod explain;
pub mod gates;
pub mod html;
pub mod json;
pub mod labels;
pub mod sample;
pub mod scores;
mod spool;
pub mod summary;
pub mod text;
mod violations;
pub mod whatif;

/// A time as RFC 3339 in UTC with nanoseconds.
pub fn rfc3339(ns: i64) -> String {
    use datafusion::arrow::temporal_conversions::timestamp_ns_to_datetime;
    timestamp_ns_to_datetime(ns).map_or_else(String::new, |t| t.format("%Y-%m-%dT%H:%M:%S%.9fZ").to_string())
}
