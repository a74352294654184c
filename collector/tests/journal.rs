//! Journals of collectors that ended, taken over by the next one.
#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton_collector::live::journal::{Event, Journal, Settings};
use baton_collector::live::segment::{Entry, Segment};
use baton_record::span::Span;

/// A segment of three batches of two rows.
fn segment(path: &Path) {
    let mut s = Segment::create(path).unwrap();
    for n in 0..3 {
        let row = |k| Span { span_id: format!("{:016x}", 2 * n + k), ..Span::default() };
        s.append(&[Entry::encode(vec![row(0), row(1)]).unwrap()], true).unwrap();
    }
}

fn cut(path: &Path, bytes: u64) {
    let f = fs::File::options().write(true).open(path).unwrap();
    f.set_len(f.metadata().unwrap().len() - bytes).unwrap();
}

/// Rows kept, and what was said of damage, when a journal is opened and closed again.
fn taken_over(root: &Path) -> (usize, Vec<String>) {
    let (rows, said) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (kept, told) = (rows.clone(), said.clone());
    let journal = Journal::open(
        Settings::new(root.to_owned()),
        Box::new(move |_, batches| {
            *kept.lock().unwrap() += batches.iter().map(|b| b.num_rows()).sum::<usize>();
            Ok(1)
        }),
        Arc::new(move |event: Event<'_>| {
            if let Event::Damaged { reason, .. } = event {
                told.lock().unwrap().push(reason.to_owned());
            }
        }),
    );
    assert!(journal.unwrap().close(Duration::from_secs(10)));
    (*rows.lock().unwrap(), said.lock().unwrap().clone())
}

#[test]
fn a_torn_tail_is_no_damage_where_a_crash_can_leave_one() {
    let dir = tempfile::tempdir().unwrap();
    let ended = dir.path().join("ended");
    fs::create_dir(&ended).unwrap();
    let (first, last) = (ended.join("0000000000.arrows"), ended.join("0000000001.arrows"));
    segment(&first);
    segment(&last);
    cut(&last, 100);
    assert_eq!(taken_over(dir.path()), (10, Vec::new()));
    assert!(!ended.exists() && !dir.path().join("damaged").exists());
}

#[test]
fn an_end_that_no_crash_left_is_damage_and_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let ended = dir.path().join("ended");
    fs::create_dir(&ended).unwrap();
    let (first, last) = (ended.join("0000000000.arrows"), ended.join("0000000001.arrows"));
    segment(&first);
    segment(&last);
    // It was closed before the next one was begun: all of it was acknowledged.
    cut(&first, 100);
    let (rows, said) = taken_over(dir.path());
    assert_eq!((rows, said.len()), (10, 1), "{said:?}");
    assert!(said[0].contains("no whole batch"), "{said:?}");
    assert_eq!(fs::read_dir(dir.path().join("damaged")).unwrap().count(), 1);
}
