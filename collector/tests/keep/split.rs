//! Random rows, split over files at random.

use proptest::prelude::*;

use super::*;

fn spans() -> impl Strategy<Value = Span> {
    let items = proptest::collection::vec((0..4i64, 0..2u32), 0..4);
    (0..4u32, 0..5u32, proptest::option::weighted(0.9, 0..5000i64), any::<bool>(), 0..3u8, items).prop_map(
        |(trace, span, start, is_log, name, items)| {
            // Few different values, so that rows are often equal, and often differ in one thing only.
            let s = Span {
                name: format!("n{name}"),
                input: (name > 0).then(|| items.iter().map(|(h, v)| item(*h, *v)).collect()),
                ..row(trace, span, start.map(|s| s / 500 * 500))
            };
            if is_log { log(s) } else { s }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_stay_the_same_however_they_are_split(
        files in proptest::collection::vec(proptest::collection::vec(spans(), 1..12), 1..8),
    ) {
        let dir = tempfile::tempdir().unwrap();
        files.iter().for_each(|rows| write(dir.path(), rows));
        let before = different_rows(dir.path());
        let done = compact(dir.path(), SystemTime::now());
        prop_assert_eq!(different_rows(dir.path()), before.clone());
        let spans = dir.path().join("spans");
        let live = keep::live_files(&spans).unwrap().live;
        let of_hour = |n| live.iter().filter(|f| f.starts_with(spans.join(format!("date=2020-01-01/hour={n}")))).count();
        prop_assert!(of_hour("00") < 2 && of_hour("01") < 2);
        // In a merged file no row stands twice.
        for merge in done.merged {
            let rows = rows_of(&[spans.join(merge.into.unwrap().file)]);
            let mut once = rows.clone();
            once.dedup();
            prop_assert_eq!(rows, once);
        }
        let again = compact(dir.path(), later());
        prop_assert_eq!((again.merged, again.waiting), (vec![], 0));
        prop_assert_eq!(different_rows(dir.path()), before);
        let checked = keep::check(dir.path(), later()).unwrap();
        prop_assert!(checked.is_sound(), "{:?}", checked.problems);
    }
}
