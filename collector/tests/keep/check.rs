//! Finding damage.

use std::fs;

use super::*;

/// A store with two files of one hour; the path of the larger one.
fn store() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let rows: Vec<Span> = (0..3000)
        .map(|n| Span { input: Some(vec![item(i64::from(n), 0)]), ..row(n / 10, n, Some(1)) })
        .collect();
    write(dir.path(), &rows);
    let file = keep::live_files(&dir.path().join("spans")).unwrap().live.remove(0);
    write(dir.path(), &[row(7, 71, Some(2)), row(400, 1, Some(3)), log(row(400, 1, Some(3)))]);
    (dir, file)
}

fn check(store: &Path) -> keep::Checked {
    let was = tree(store);
    let found = keep::check(store, SystemTime::now()).unwrap();
    assert_eq!(tree(store), was);
    found
}

/// What is wrong with a file, by a check that must find all other rows.
fn said(dir: &Path, file: &Path) -> Vec<(Option<String>, String)> {
    let found = check(dir);
    let name = format!("{HOUR}/{}", file.file_name().unwrap().to_string_lossy());
    assert!(found.problems.iter().all(|p| p.file == name), "{:?}", found.problems);
    assert!(!found.is_sound() && found.rows >= 3);
    found.problems.into_iter().map(|p| (p.place, p.reason)).collect()
}

#[test]
fn a_sound_store_is_counted() {
    let (dir, _) = store();
    write(dir.path(), &[row(1, 10, Some(90)), row(500, 1, None)]);
    let found = check(dir.path());
    assert!(found.is_sound(), "{:?}", found.problems);
    // Spans 71 and 10 stand twice; the log record beside its span is no double.
    assert_eq!((found.files, found.rows, found.traces, found.doubles), (4, 3005, 302, 2));
    let folders: Vec<(&str, u64, u64)> =
        found.folders.iter().map(|(n, f)| (n.as_str(), f.files, f.rows)).collect();
    assert_eq!(folders, [(HOUR, 3, 3004), ("date=unknown/hour=00", 1, 1)]);

    // Replaced files are no rows of their own.
    compact(dir.path(), SystemTime::now());
    let merged = check(dir.path());
    assert_eq!((merged.files, merged.rows, merged.traces, merged.doubles), (2, 3005, 302, 2));
    assert_eq!((merged.replaced.len(), merged.gone.len()), (3, 0));
    assert!(serde_json::to_string(&merged).unwrap().contains(r#""problems":[],"#));
}

#[test]
fn bytes_changed_anywhere_are_found() {
    let (dir, file) = store();
    let good = fs::read(&file).unwrap();
    let changed = "damaged or renamed: the name is not that of these bytes";
    let mut located = 0;
    for n in 1..30 {
        let mut bytes = good.clone();
        let at = bytes.len() * n / 30;
        bytes[at..].iter_mut().take(8).for_each(|b| *b = !*b);
        fs::write(&file, bytes).unwrap();
        let said = said(dir.path(), &file);
        assert!(said[0].1.starts_with(changed), "{said:?}");
        located += usize::from(
            said.iter().any(|(place, _)| place.as_ref().is_some_and(|p| p.starts_with("column "))),
        );
    }
    assert!(located > 5, "{located}");
}

#[test]
fn files_cut_off_renamed_and_of_other_layouts_are_found() {
    let (dir, file) = store();
    let folder = file.parent().unwrap();
    let good = fs::read(&file).unwrap();
    fs::write(&file, &good[..good.len() / 2]).unwrap();
    let cut = said(dir.path(), &file);
    assert!(cut.len() == 2 && cut[1].1.starts_with("no Parquet file: "), "{cut:?}");
    fs::write(&file, "").unwrap();
    assert_eq!(said(dir.path(), &file).len(), 2);

    fs::write(&file, &good).unwrap();
    let renamed = folder.join("mine.parquet");
    fs::rename(&file, &renamed).unwrap();
    let reason = "damaged or renamed: the name is not that of these bytes".to_owned();
    assert_eq!(said(dir.path(), &renamed), [(None, reason)]);
    fs::remove_file(&renamed).unwrap();

    let other = write_version(folder, "2", &[row(1, 1, Some(1))]);
    assert_eq!(said(dir.path(), &other), [(None, "layout version 2, expected 1".to_owned())]);
    fs::remove_file(&other).unwrap();
    let unsorted = write_version(folder, "1", &[row(1, 1, Some(1)), row(1, 2, Some(3)), row(1, 3, Some(2))]);
    assert_eq!(said(dir.path(), &unsorted), [(Some("row 2".to_owned()), "not sorted".to_owned())]);
    fs::remove_file(&unsorted).unwrap();
    let strange = other_schema(folder);
    assert_eq!(said(dir.path(), &strange), [(None, "schema differs: column span_id".to_owned())]);
}

/// A file that says to be of this layout, with a column too few.
fn other_schema(dir: &Path) -> PathBuf {
    use parquet::file::{metadata::KeyValue, properties::WriterProperties};
    let batch = baton_record::schema::Encoder::default().encode(&[row(1, 1, Some(1))]).unwrap();
    let columns: Vec<usize> = (0..batch.num_columns()).filter(|i| *i != 1).collect();
    let batch = batch.project(&columns).unwrap();
    let mark = KeyValue::new(baton_record::schema::VERSION_KEY.to_owned(), "1".to_owned());
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![mark])).build();
    let path = dir.join("new");
    let file = fs::File::create(&path).unwrap();
    let mut w = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    w.write(&batch).unwrap();
    w.close().unwrap();
    name_by_bytes(&path)
}

#[test]
fn what_waits_and_what_was_left_is_listed() {
    let (dir, file) = store();
    let (spans, folder) = (dir.path().join("spans"), file.parent().unwrap());
    fs::write(file.with_extension("parquet.gone"), "").unwrap();
    fs::write(folder.join("abc.parquet.gone"), "").unwrap();
    fs::write(folder.join(".writing-old.tmp"), "").unwrap();
    let old = fs::File::options().write(true).open(folder.join(".writing-old.tmp")).unwrap();
    old.set_modified(SystemTime::now() - minutes(61)).unwrap();
    fs::write(folder.join(".writing-new.tmp"), "").unwrap();
    fs::write(folder.join("notes.txt"), "").unwrap();
    fs::write(spans.join("a.parquet"), "").unwrap();
    fs::create_dir(spans.join("date=tomorrow")).unwrap();
    let found = check(dir.path());
    let name = |n: &str| format!("{HOUR}/{n}");
    assert_eq!(found.gone, [name(&file.file_name().unwrap().to_string_lossy())]);
    assert_eq!(found.orphans, [name("abc.parquet.gone")]);
    assert_eq!(found.leftovers, [name(".writing-old.tmp")]);
    assert_eq!(found.unknown, ["a.parquet".to_owned(), name("notes.txt"), "date=tomorrow".to_owned()]);
    // Only the other file counts.
    assert_eq!((found.files, found.rows, found.traces, found.doubles), (1, 3, 2, 0));
}
