//! Bytes as an OTLP request in JSON.
#![no_main]

use baton_collector::live::ingest::Form;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| baton_fuzz::take(Form::Json, bytes));
