//! Removing old hours.

use std::fs;

use keep::{RetainSettings, Retained};

use super::*;

fn retain(store: &Path, keep: Duration, now: SystemTime) -> Retained {
    keep::retain(store, &RetainSettings::new(keep), now).unwrap()
}

/// Two files of the first hour, one of the third, one of the next day.
fn store() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (n, start) in [(1, 10), (2, 3599), (3, 7200), (4, 86_400)] {
        write(dir.path(), &[row(n, 1, Some(start))]);
    }
    dir
}

#[test]
fn an_hour_is_old_exactly_when_its_end_is() {
    let dir = store();
    let dry = RetainSettings { dry_run: true, ..RetainSettings::new(minutes(30)) };
    let was = tree(dir.path());
    let hidden = |now| keep::retain(dir.path(), &dry, now).unwrap().hidden.len();
    assert_eq!(hidden(clock(3600 + 1800) - Duration::from_nanos(1)), 0);
    assert_eq!(hidden(clock(3600 + 1800)), 2);
    assert_eq!(hidden(clock(3 * 3600 + 1800) - Duration::from_nanos(1)), 2);
    assert_eq!(hidden(clock(3 * 3600 + 1800)), 3);
    assert_eq!(hidden(clock(86_400 + 3600 + 1800)), 4);
    // A period longer than time itself keeps everything.
    let forever = RetainSettings { keep: Duration::MAX, ..dry.clone() };
    assert_eq!(keep::retain(dir.path(), &forever, SystemTime::now()).unwrap().hidden.len(), 0);
    assert_eq!(tree(dir.path()), was);
}

#[test]
fn files_are_hidden_first_and_deleted_later() {
    let dir = store();
    let spans = dir.path().join("spans");
    // Kept so long that the next day is not old, whatever today is.
    let keep = SystemTime::now().duration_since(clock(86_400)).unwrap();
    let all = live_rows(dir.path());
    let listed = keep::live_files(&spans).unwrap().live;
    let first = retain(dir.path(), keep, SystemTime::now());
    assert_eq!((first.hidden.len(), first.deleted.len(), first.waiting, first.folders.len()), (3, 0, 3, 0));
    assert_eq!(first.hidden_bytes, listed[..3].iter().map(|f| f.metadata().unwrap().len()).sum::<u64>());
    // Who listed the files before can read them; who lists them now does not see them.
    assert_eq!(rows_of(&listed), all);
    let files = keep::live_files(&spans).unwrap();
    assert_eq!((files.live.as_slice(), files.gone.as_slice()), (&listed[3..], &listed[..3]));

    // Again at once: nothing. Merging does not touch them.
    let was = tree(dir.path());
    let again = retain(dir.path(), keep, SystemTime::now());
    assert_eq!((again.hidden.len(), again.deleted.len(), again.waiting), (0, 0, 3));
    let merged = compact(dir.path(), SystemTime::now());
    assert_eq!((merged.merged.len(), merged.deleted.len()), (0, 0));
    assert_eq!(tree(dir.path()), was);

    let last = retain(dir.path(), keep, later());
    assert_eq!((last.hidden.len(), last.waiting), (0, 0));
    assert_eq!(last.deleted, first.hidden);
    assert_eq!(last.folders, ["date=2020-01-01/hour=00", "date=2020-01-01/hour=02", "date=2020-01-01"],);
    assert_eq!(keep::live_files(&spans).unwrap().live, listed[3..]);
    assert_eq!(names(&spans), ["date=2020-01-02"]);
    assert_eq!(retain(dir.path(), keep, later()), Retained::default());
    assert!(dir.path().join("key").exists());
}

#[test]
fn a_crash_between_the_steps_brings_nothing_back() {
    let dir = store();
    compact(dir.path(), SystemTime::now());
    let folder = dir.path().join("spans").join(HOUR);
    let merged = {
        let live = keep::live_files(&dir.path().join("spans")).unwrap().live;
        live.into_iter().find(|f| f.starts_with(&folder)).unwrap()
    };
    let counted = || keep::live_files(&folder).unwrap().live.len();
    // The merged file is hidden, what it replaces not yet.
    let tombstone = merged.with_extension("parquet.gone");
    fs::write(&tombstone, "").unwrap();
    let spans = dir.path().join("spans");
    let live = || keep::live_files(&spans).unwrap().live.iter().filter(|f| f.starts_with(&folder)).count();
    assert_eq!(live(), 0);
    let done = retain(dir.path(), minutes(60), SystemTime::now());
    assert_eq!((done.hidden.len(), done.waiting), (4, 5));
    // The file is deleted, its tombstone not yet.
    fs::remove_file(&merged).unwrap();
    assert_eq!((live(), counted()), (0, 0));
    let done = retain(dir.path(), minutes(60), later());
    assert_eq!((done.deleted.len(), done.waiting), (4, 0));
    assert_eq!(names(&spans), Vec::<String>::new());
}

#[test]
fn rows_without_time_go_by_the_age_of_their_file() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[row(1, 1, None)]);
    let file = keep::live_files(&dir.path().join("spans")).unwrap().live.remove(0);
    fs::File::options().write(true).open(&file).unwrap().set_modified(clock(0)).unwrap();
    assert_eq!(retain(dir.path(), minutes(5), clock(299)).hidden.len(), 0);
    assert_eq!(retain(dir.path(), minutes(5), clock(300)).hidden.len(), 1);
    assert_eq!(retain(dir.path(), minutes(5), later()).folders.len(), 2);
}

#[test]
fn what_is_not_of_the_store_stays() {
    let dir = store();
    let spans = dir.path().join("spans");
    fs::write(spans.join("date=2020-01-01/hour=02/notes.txt"), "mine").unwrap();
    fs::write(spans.join("other.parquet"), "mine").unwrap();
    fs::create_dir_all(spans.join("date=2020-01-01/hour=24")).unwrap();
    fs::create_dir_all(spans.join("date=2020-02-30/hour=01")).unwrap();
    let strange = [
        "date=2020-01-01/hour=24/x.parquet",
        "date=2020-02-30/hour=01/x.parquet",
        "date=2020-01-01/hour=02/notes.txt",
        "other.parquet",
    ];
    strange.iter().for_each(|f| fs::write(spans.join(f), "mine").unwrap());
    // A tombstone without a file is taken away.
    fs::write(spans.join("date=2020-01-01/hour=02/abc.parquet.gone"), "").unwrap();
    // Left half written, long ago and just now.
    let left = spans.join("date=2020-01-01/hour=02/.writing-1.tmp");
    fs::write(&left, "").unwrap();
    retain(dir.path(), minutes(1), SystemTime::now());
    assert!(left.exists());
    let done = retain(dir.path(), minutes(1), SystemTime::now() + minutes(61));
    assert_eq!((done.deleted.len(), done.waiting), (5, 0));
    assert!(!left.exists());
    assert!(strange.iter().all(|f| fs::read_to_string(spans.join(f)).is_ok_and(|t| t == "mine")));
    assert_eq!(names(&spans.join("date=2020-01-01/hour=02")), ["notes.txt"]);
    assert_eq!(names(&spans.join("date=2020-01-01")), ["hour=02", "hour=24"]);
}

#[cfg(unix)]
#[test]
fn links_are_not_followed() {
    use std::os::unix::fs::symlink;
    let (dir, other) = (store(), store());
    let (spans, elsewhere) = (dir.path().join("spans"), other.path().join("spans"));
    let was = tree(other.path());
    symlink(elsewhere.join("date=2020-01-01"), spans.join("date=2019-12-31")).unwrap();
    symlink(elsewhere.join(HOUR), spans.join("date=2020-01-01/hour=07")).unwrap();
    let file = keep::live_files(&elsewhere).unwrap().live.remove(0);
    symlink(&file, spans.join(HOUR).join("link.parquet")).unwrap();
    // A reader follows them, as it always did.
    assert_eq!(keep::live_files(&spans).unwrap().live.len(), 4 + 3 + 2 + 1);
    let done = retain(dir.path(), minutes(1), SystemTime::now());
    assert_eq!(done.hidden.len(), 4);
    retain(dir.path(), minutes(1), later());
    compact(dir.path(), later());
    assert_eq!(tree(other.path()), was);
    assert_eq!(names(&spans.join(HOUR)), ["link.parquet"]);
    assert_eq!(names(&spans), ["date=2019-12-31", "date=2020-01-01"]);

    // The whole folder of rows as a link is refused.
    let third = tempfile::tempdir().unwrap();
    symlink(&elsewhere, third.path().join("spans")).unwrap();
    let said = keep::retain(third.path(), &RetainSettings::new(minutes(1)), later());
    assert!(matches!(said, Err(keep::Error::NoStore(_))));
    assert_eq!(tree(other.path()), was);
}
