//! Bytes as a segment of the journal, and as damage to a whole one.
#![no_main]

use std::sync::OnceLock;

use baton_collector::live::segment::read_bytes;
use baton_fuzz::{ROWS, segment, span_ids};
use libfuzzer_sys::fuzz_target;

/// A whole segment, and where its batches end.
static WHOLE: OnceLock<(Vec<u8>, Vec<usize>)> = OnceLock::new();

/// Reading catches what damage makes of Arrow's decoder, as the collector does; libFuzzer's hook would end the process before.
fn let_arrow_panic() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.location().is_some_and(|l| l.file().contains("/arrow-")) {
            hook(info);
        }
    }));
}

fuzz_target!(init: let_arrow_panic(), |bytes: &[u8]| {
    read_bytes(bytes.to_vec());

    let (whole, ends) = WHOLE.get_or_init(segment);
    let mut hurt = whole.clone();
    let mut first = whole.len();
    // Each four bytes: where, what is to be done, and with what.
    for change in bytes.chunks_exact(4).take(16) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % whole.len();
        if at >= hurt.len() {
            continue;
        }
        match change[2] % 4 {
            0 => hurt[at] ^= change[3],
            1 => hurt[at] = change[3],
            2 => hurt.truncate(at),
            _ => hurt.insert(at, change[3]),
        }
        first = first.min(at);
    }
    let read = read_bytes(hurt);
    // What stands whole before the first damage is there.
    let before: usize = ends.iter().zip(ROWS).filter(|(end, _)| **end <= first).map(|(_, n)| n).sum();
    let found = span_ids(&read);
    assert!(found.len() >= before, "{} rows of {before}", found.len());
    let right = (0..before).map(|id| format!("{id:016x}"));
    assert!(found.iter().take(before).cloned().eq(right));
});
