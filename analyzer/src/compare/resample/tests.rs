use super::*;

/// Tasks that are one event of a yes or no in each column, yes with the column's chance.
fn events(rng: &mut Rng, tasks: usize, chances: &[f64]) -> Units {
    let mut out = Units::default();
    for _ in 0..tasks {
        let cells: Vec<Cell> = chances
            .iter()
            .enumerate()
            .map(|(column, share)| {
                let yes = rng.below(1_000_000) < (share * 1e6) as usize;
                Cell { column, n: f64::from(u8::from(yes)), d: 1.0 }
            })
            .collect();
        out.push(cells);
    }
    out
}

/// So many tasks of one column, of which the first `yes` are a yes; each counts `weight` times.
fn yes(yes: usize, tasks: usize, weight: f64) -> Units {
    let mut out = Units::default();
    for i in 0..tasks {
        out.push([Cell { column: 0, n: if i < yes { weight } else { 0.0 }, d: weight }]);
    }
    out
}

fn sides(a: Units, b: Units, paired: bool) -> Sides {
    Sides { a, b, paired }
}

#[test]
fn an_interval_is_as_wide_as_theory_says() {
    // The standard error of 150/200 - 100/200 is sqrt(0.25 / 200 + 0.1875 / 200) = 0.0468. The ends of a percentile interval of
    // 1999 resamples scatter by 6 % of it; four times that, and the grid of 1/200, are 0.014.
    let [low, high] =
        intervals(&sides(yes(100, 200, 1.0), yes(150, 200, 1.0), false), 1)[0].unwrap_or_default();
    assert!((low - (0.25 - 1.96 * 0.0468)).abs() < 0.014, "{low}");
    assert!((high - (0.25 + 1.96 * 0.0468)).abs() < 0.014, "{high}");
    // With 6000 tasks some make one unit: sqrt(0.4375 / 6000) = 0.00854.
    let [low, high] =
        intervals(&sides(yes(3000, 6000, 1.0), yes(4500, 6000, 1.0), false), 1)[0].unwrap_or_default();
    assert!((high - low - 2.0 * 1.96 * 0.00854).abs() < 0.1 * 2.0 * 1.96 * 0.00854, "{low} {high}");
}

#[test]
fn many_transfers_of_one_task_do_not_make_an_interval_narrower() {
    let one = intervals(&sides(yes(10, 40, 1.0), yes(20, 40, 1.0), false), 1);
    let five = intervals(&sides(yes(10, 40, 5.0), yes(20, 40, 5.0), false), 1);
    assert_eq!(one, five);
}

#[test]
fn tasks_in_pairs_are_compared_with_themselves() {
    // Tasks differ much, but each is better by the same: no doubt about the difference.
    let mut a = Units::default();
    let mut b = Units::default();
    for i in 0..20 {
        a.push([Cell { column: 0, n: f64::from(i), d: 20.0 }]);
        b.push([Cell { column: 0, n: f64::from(i) + 2.0, d: 20.0 }]);
    }
    let paired = sides(a.clone(), b.clone(), true);
    let [low, high] = intervals(&paired, 1)[0].unwrap_or_default();
    assert!((low - 0.1).abs() < 1e-9 && (high - 0.1).abs() < 1e-9, "{low} {high}");
    // Of 2^20 ways to exchange, two are as extreme, and none of 1999 is likely to be one of them.
    assert_eq!(chances(&paired, 1, &[true])[0].map(|c| c.adjusted), Some(1.0 / 2000.0));
    // The same as two sets of tasks: nothing to be seen.
    let apart = sides(a.clone(), b, false);
    let [low, high] = intervals(&apart, 1)[0].unwrap_or_default();
    assert!(low < 0.0 && high > 0.0);
    assert!(chances(&apart, 1, &[true])[0].is_some_and(|c| c.p > 0.2));
    // Nothing moved at all.
    let same = sides(a.clone(), a, true);
    assert_eq!(intervals(&same, 1)[0], Some([0.0, 0.0]));
    assert_eq!(chances(&same, 1, &[true])[0].map(|c| c.p), Some(1.0));
}

const RARE_AND_FREQUENT: [f64; 10] = [0.02, 0.02, 0.02, 0.01, 0.05, 0.1, 0.3, 0.5, 0.9, 0.98];

#[test]
fn where_nothing_changed_alarms_are_as_rare_as_stated() {
    let family = [true; RARE_AND_FREQUENT.len()];
    let mut rng = Rng::new(9, 1);
    let (mut alarms, mut loose) = (0, 0);
    for round in 0..200 {
        let a = events(&mut rng, 20, &RARE_AND_FREQUENT);
        let b = events(&mut rng, 400, &RARE_AND_FREQUENT);
        let s = sides(a, b, false);
        let found = chances(&s, family.len(), &family);
        alarms += usize::from(found.iter().flatten().any(|c| c.adjusted <= 0.05));
        if round < 10 {
            let all = intervals(&s, family.len());
            loose += usize::from(all.iter().flatten().any(|[low, high]| *low > 0.0 || *high < 0.0));
        }
    }
    // 10 of 200 are expected at most, with a standard deviation of 3.1.
    assert!(alarms <= 19, "{alarms}");
    // Intervals alone would cry wolf: where 20 tasks have no fault, theirs knows none.
    assert!(loose >= 8, "{loose}");
}

#[test]
fn exchanging_pairs_holds_the_level_too() {
    let family = [true; RARE_AND_FREQUENT.len()];
    let mut rng = Rng::new(9, 2);
    let alarms = (0..200)
        .filter(|_| {
            let a = events(&mut rng, 30, &RARE_AND_FREQUENT);
            let b = events(&mut rng, 30, &RARE_AND_FREQUENT);
            let found = chances(&sides(a, b, true), family.len(), &family);
            found.iter().flatten().any(|c| c.adjusted <= 0.05)
        })
        .count();
    assert!(alarms <= 19, "{alarms}");
}

#[test]
fn the_one_that_changed_is_found_and_no_other() {
    let family = [true; RARE_AND_FREQUENT.len()];
    let mut rng = Rng::new(9, 3);
    let b = events(&mut rng, 400, &RARE_AND_FREQUENT);
    for (column, now) in [(0, 0.6), (8, 0.2)] {
        let mut chances_now = RARE_AND_FREQUENT;
        chances_now[column] = now;
        let s = sides(events(&mut rng, 20, &chances_now), b.clone(), false);
        let found: Vec<usize> = chances(&s, family.len(), &family)
            .iter()
            .enumerate()
            .filter(|(_, c)| c.is_some_and(|c| c.adjusted <= 0.01))
            .map(|(i, _)| i)
            .collect();
        assert_eq!(found, [column]);
    }
    // What is not in the family is not tested.
    let s = sides(b.clone(), b, false);
    assert_eq!(chances(&s, 10, &[false; 10]), vec![None; 10]);
}

#[test]
fn sides_without_tasks_say_nothing() {
    assert_eq!(intervals(&sides(Units::default(), yes(1, 3, 1.0), false), 1), [None]);
    assert_eq!(chances(&sides(Units::default(), yes(1, 3, 1.0), false), 1, &[false]), [None]);
    assert_eq!(chances(&sides(Units::default(), Units::default(), true), 0, &[]), []);
}
