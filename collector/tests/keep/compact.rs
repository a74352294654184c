//! Merging.

use std::fs;

use super::*;

/// Five files of an hour, one of the next, one without time. Traces go on from file to file, and their items are sent again.
fn store() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..5u32 {
        let rows: Vec<Span> = (0..3u32)
            .map(|t| Span {
                input: Some((0..=n).map(|i| item(i64::from(t * 10 + i), 0)).collect()),
                otel_kind: 3,
                ..row(t, n, Some(i64::from(10 * n + t)))
            })
            .collect();
        write(dir.path(), &rows);
    }
    write(dir.path(), &[row(9, 1, Some(3700))]);
    write(dir.path(), &[row(8, 1, None)]);
    dir
}

#[test]
fn files_of_an_hour_become_one_with_the_same_rows() {
    let dir = store();
    let before = live_rows(dir.path());
    // 17 rows, and what 15 items hold.
    assert_eq!(before.len(), 32);
    let done = compact(dir.path(), SystemTime::now());
    assert_eq!((done.merged.len(), done.deleted.len(), done.waiting, done.problems.len()), (1, 0, 5, 0));
    let merge = &done.merged[0];
    assert_eq!((merge.folder.as_str(), merge.files, merge.rows), (HOUR, 5, 15));
    let into = merge.into.as_ref().unwrap();
    assert_eq!(into.rows, 15);
    assert!(into.bytes < merge.bytes, "{into:?} {merge:?}");

    // Merged, nothing deleted: each row counts once.
    let spans = dir.path().join("spans");
    assert_eq!(names(&spans.join(HOUR)).len(), 6);
    let files = keep::live_files(&spans).unwrap();
    assert_eq!((files.live.len(), files.replaced.len(), files.gone.len()), (3, 5, 0));
    assert!(files.live.contains(&spans.join(&into.file)));
    assert_eq!(live_rows(dir.path()), before);

    // Again, at once: nothing to do.
    let was = tree(dir.path());
    let again = compact(dir.path(), SystemTime::now());
    assert_eq!((again.merged.len(), again.deleted.len(), again.waiting), (0, 0, 5));
    assert_eq!(tree(dir.path()), was);

    // When the grace period is over, what was replaced is deleted; then nothing changes any more.
    let third = compact(dir.path(), later());
    assert_eq!((third.merged.len(), third.deleted.len(), third.waiting), (0, 5, 0));
    assert_eq!(names(&spans.join(HOUR)).len(), 1);
    assert_eq!(live_rows(dir.path()), before);
    let was = tree(dir.path());
    assert_eq!(compact(dir.path(), later()), keep::Compacted::default());
    assert_eq!(tree(dir.path()), was);
    assert_eq!(keep::check(dir.path(), later()).unwrap().problems, []);
}

#[test]
fn an_hour_is_merged_when_it_has_ended_a_while_ago() {
    let dir = store();
    let settings = CompactSettings { dry_run: true, ..CompactSettings::default() };
    let merges = |settings: &CompactSettings, seconds| {
        keep::compact(dir.path(), settings, clock(seconds)).unwrap().merged.len()
    };
    assert_eq!(merges(&settings, 4199), 0);
    assert_eq!(merges(&settings, 4200), 1);
    assert_eq!(merges(&CompactSettings { all: true, ..settings }, 30), 1);
}

#[test]
fn what_is_only_looked_at_is_not_changed() {
    let dir = store();
    let was = tree(dir.path());
    let settings = CompactSettings { dry_run: true, ..CompactSettings::default() };
    let would = keep::compact(dir.path(), &settings, SystemTime::now()).unwrap();
    assert_eq!(tree(dir.path()), was);
    let done = compact(dir.path(), SystemTime::now());
    let without = |m: &keep::Merge| keep::Merge { into: None, ..m.clone() };
    assert_eq!(would.merged, done.merged.iter().map(without).collect::<Vec<_>>());
    let was = tree(dir.path());
    assert_eq!(keep::compact(dir.path(), &settings, later()).unwrap().deleted.len(), 5);
    assert_eq!(tree(dir.path()), was);
}

#[test]
fn a_crash_at_any_point_leaves_the_same_rows() {
    let dir = store();
    let folder = dir.path().join("spans").join(HOUR);
    let before = live_rows(dir.path());
    // While the merged file is being written.
    fs::write(folder.join(".writing-abc.tmp"), "PAR1").unwrap();
    assert_eq!(live_rows(dir.path()), before);
    compact(dir.path(), SystemTime::now());
    // One file more, merged with the merged one.
    write(dir.path(), &[row(1, 77, Some(99))]);
    let before = live_rows(dir.path());
    let second = compact(dir.path(), SystemTime::now());
    assert_eq!((second.merged[0].files, second.merged[0].rows), (2, 16));
    assert_eq!(live_rows(dir.path()), before);
    // The second merge names what the first one named, so the first may go before its inputs.
    let files = keep::live_files(&dir.path().join("spans")).unwrap();
    assert_eq!(files.replaced.len(), 7);
    let last = dir.path().join("spans").join(&second.merged[0].into.as_ref().unwrap().file);
    // Before the second merge.
    let kept = fs::read(&last).unwrap();
    fs::remove_file(&last).unwrap();
    assert_eq!(live_rows(dir.path()), before);
    fs::write(&last, kept).unwrap();
    // While replaced files are deleted, whichever went first.
    for f in &files.replaced {
        let kept = fs::read(f).unwrap();
        fs::remove_file(f).unwrap();
        assert_eq!(live_rows(dir.path()), before);
        fs::write(f, kept).unwrap();
    }
    for f in &files.replaced {
        fs::remove_file(f).unwrap();
        assert_eq!(live_rows(dir.path()), before);
    }
    // What was left half written goes when nobody can be writing it any more.
    assert!(folder.join(".writing-abc.tmp").exists());
    let cleaned = compact(dir.path(), SystemTime::now() + minutes(61));
    assert_eq!(cleaned.deleted, [format!("{HOUR}/.writing-abc.tmp")]);
    assert_eq!(live_rows(dir.path()), before);
}

#[test]
fn one_at_a_time() {
    let dir = store();
    let lock = fs::File::create(dir.path().join("compact.lock")).unwrap();
    lock.lock().unwrap();
    let was = tree(dir.path());
    let said = keep::compact(dir.path(), &CompactSettings::default(), SystemTime::now()).unwrap_err();
    assert!(matches!(said, keep::Error::Busy(_)) && said.to_string().contains("nothing was done"), "{said}");
    let said = keep::retain(dir.path(), &keep::RetainSettings::new(minutes(1)), later()).unwrap_err();
    assert!(matches!(said, keep::Error::Busy(_)));
    assert_eq!(tree(dir.path()), was);
    drop(lock);
    assert_eq!(compact(dir.path(), SystemTime::now()).merged.len(), 1);
}

#[test]
fn what_items_hold_stands_once_and_outlives_the_row_that_had_it() {
    let dir = tempfile::tempdir().unwrap();
    let with = |s: Span, items: &[Item]| Span { input: Some(items.to_vec()), ..s };
    // In the second file the double of span 1 is the only row that spells item 5 in another way and has item 6; in both files
    // the first row of a trace has its contents.
    let double = |spelling| with(row(1, 1, Some(1)), &[item(5, spelling), item(6, 0)]);
    write(
        dir.path(),
        &[double(0), with(row(1, 2, Some(2)), &[item(5, 0)]), with(row(2, 1, Some(3)), &[item(5, 0)])],
    );
    write(dir.path(), &[double(1), with(row(1, 3, Some(4)), &[item(6, 0), item(8, 0)])]);
    write(dir.path(), &[with(row(1, 4, Some(5)), &[item(5, 0), item(8, 0)])]);
    let before = different_rows(dir.path());
    let done = compact(dir.path(), SystemTime::now());
    assert_eq!((done.merged[0].rows, done.merged[0].into.as_ref().unwrap().rows), (6, 5));
    assert_eq!(live_rows(dir.path()), before);

    let spans = dir.path().join("spans");
    let file = fs::File::open(&keep::live_files(&spans).unwrap().live[0]).unwrap();
    let mut reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    let columns = SpanColumns::new(&reader.next().unwrap().unwrap()).unwrap();
    let held: Vec<(String, Vec<(i64, String)>)> = (0..columns.len())
        .map(|i| columns.span(i))
        .map(|s| {
            let contents = s.contents().map(|c| (c.hash, c.text.unwrap_or_default()[50..].to_owned()));
            (s.span_id.trim_start_matches('0').to_owned(), contents.collect())
        })
        .collect();
    let e = |hash: i64, spelling: u32| (hash, item(hash, spelling).text.unwrap()[50..].to_owned());
    assert_eq!(
        held,
        [
            ("1".to_owned(), vec![e(5, 0), e(6, 0), e(5, 1)]),
            ("2".to_owned(), vec![]),
            ("3".to_owned(), vec![e(8, 0)]),
            ("4".to_owned(), vec![]),
            ("1".to_owned(), vec![e(5, 0)]),
        ]
    );
}

#[test]
fn files_larger_than_what_is_read_at_once_are_merged() {
    let dir = tempfile::tempdir().unwrap();
    // Three files of long traces that lie in one another; each third row is in two files, and one trace is only such rows.
    let mut files: [Vec<Span>; 3] = Default::default();
    for n in 0..6000u32 {
        let trace = if n % 3 == 0 { 3 } else { n / 2500 };
        let s = Span {
            output: Some(vec![item(i64::from(n % 40), n % 2)]),
            ..row(trace, n, Some(i64::from(n % 3599)))
        };
        files[n as usize % 3].push(s.clone());
        if n % 3 == 0 {
            files[1].push(s);
        }
    }
    files.iter().for_each(|rows| write(dir.path(), rows));
    let before = different_rows(dir.path());
    let done = compact(dir.path(), SystemTime::now());
    assert_eq!((done.merged[0].rows, done.merged[0].into.as_ref().unwrap().rows), (8000, 6000));
    assert_eq!(live_rows(dir.path()), before);
    // What 40 items hold, in two spellings at most, in each of four traces.
    let spans = dir.path().join("spans");
    let file = fs::File::open(&keep::live_files(&spans).unwrap().live[0]).unwrap();
    let mut held = std::collections::HashSet::new();
    for batch in ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap() {
        let columns = SpanColumns::new(&batch.unwrap()).unwrap();
        for s in (0..columns.len()).map(|i| columns.span(i)) {
            for c in s.contents() {
                assert!(held.insert(format!("{} {c:?}", s.trace_id)), "twice: {c:?}");
            }
        }
    }
    assert_eq!(held.len(), 160);
    assert_eq!(keep::check(dir.path(), later()).unwrap().problems, []);
}

#[test]
fn rows_of_equal_ids_that_differ_are_all_kept() {
    let dir = tempfile::tempdir().unwrap();
    let named = |name: &str| Span { name: name.into(), ..row(1, 1, Some(1)) };
    write(dir.path(), &[named("a"), log(named("a")), log(named("b"))]);
    write(dir.path(), &[named("b"), log(named("b")), row(1, 1, Some(2))]);
    write(dir.path(), &[Span { end: Some(5), ..named("a") }, row(1, 1, Some(2))]);
    let before = different_rows(dir.path());
    assert_eq!(before.len(), 6);
    compact(dir.path(), SystemTime::now());
    assert_eq!(live_rows(dir.path()), before);
}

#[test]
fn bad_files_are_named_and_left_alone() {
    let dir = store();
    let folder = dir.path().join("spans").join(HOUR);
    let good = live_rows(dir.path());
    // Damaged in the middle; no Parquet at all; another layout; renamed.
    write(dir.path(), &[row(50, 1, Some(1)), row(51, 1, Some(2))]);
    let files = names(&folder);
    let damaged = folder.join(
        files
            .iter()
            .find(|f| rows_of(&[folder.join(f)]).iter().any(|r| r.contains(&format!("{:032x}", 50))))
            .unwrap(),
    );
    let mut bytes = fs::read(&damaged).unwrap();
    bytes[100] ^= 0xff;
    fs::write(&damaged, bytes).unwrap();
    fs::write(folder.join("text.parquet"), "no parquet").unwrap();
    let foreign = write_version(&folder, "99", &[row(60, 1, Some(1))]);
    write(dir.path(), &[row(70, 1, Some(1))]);
    let fresh = names(&folder)
        .into_iter()
        .find(|f| !files.contains(f) && f.len() > 12 && !foreign.ends_with(f))
        .unwrap();
    fs::rename(folder.join(&fresh), folder.join("mine.parquet")).unwrap();
    let unsorted = write_version(&folder, "1", &[row(81, 1, Some(1)), row(80, 1, Some(2))]);
    let bad = [damaged, folder.join("text.parquet"), foreign, folder.join("mine.parquet"), unsorted];
    let was: Vec<Vec<u8>> = bad.iter().map(|f| fs::read(f).unwrap()).collect();

    let done = compact(dir.path(), SystemTime::now());
    assert_eq!(done.merged.iter().map(|m| m.rows).sum::<u64>(), 15, "{done:?}");
    let mut said: Vec<String> = done.problems.iter().map(ToString::to_string).collect();
    said.sort();
    let name = |p: &PathBuf| format!("{HOUR}/{}", p.file_name().unwrap().to_string_lossy());
    let mut expected = vec![
        format!("{}: damaged or renamed; left alone", name(&bad[0])),
        format!("{}: no Parquet file: ", name(&bad[1])),
        format!("{}: layout version 99, expected 1", name(&bad[2])),
        format!("{}: damaged or renamed; left alone", name(&bad[3])),
        format!("{}: rows are not sorted", name(&bad[4])),
    ];
    expected.sort();
    assert_eq!(said.len(), 5, "{said:?}");
    assert!(said.iter().zip(&expected).all(|(s, e)| s.starts_with(e.as_str())), "{said:?} {expected:?}");
    assert_eq!(bad.iter().map(|f| fs::read(f).unwrap()).collect::<Vec<_>>(), was);
    // A reader still gets them, and says itself what is wrong.
    let live = keep::live_files(&dir.path().join("spans")).unwrap().live;
    assert!(bad.iter().all(|b| live.contains(b)));
    let rest: Vec<PathBuf> = live.into_iter().filter(|f| !bad.contains(f)).collect();
    assert_eq!(rows_of(&rest), good);
}

#[test]
fn nothing_is_deleted_on_the_word_of_a_damaged_file() {
    let dir = store();
    let done = compact(dir.path(), SystemTime::now());
    let merged = &done.merged[0].into.as_ref().unwrap().file;
    let path = dir.path().join("spans").join(merged);
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 1;
    fs::write(&path, bytes).unwrap();
    let next = compact(dir.path(), later());
    assert_eq!((next.deleted.len(), next.waiting), (0, 5));
    assert_eq!(
        next.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [format!("{merged}: damaged or renamed; what it replaces is kept")]
    );
}

#[test]
fn no_store_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let said = keep::compact(dir.path(), &CompactSettings::default(), SystemTime::now());
    assert!(matches!(said, Err(keep::Error::NoStore(_))));
    assert!(keep::live_files(&dir.path().join("spans")).is_err());
    assert_eq!(names(dir.path()), Vec::<String>::new());
}
