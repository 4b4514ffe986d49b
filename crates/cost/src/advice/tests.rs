use super::*;

const PAGE: u64 = 16 << 10;

/// Reads that come back after 1000 pages and after 100 000, as many of each, and some first ones.
fn curve() -> Curve {
    Curve::new(vec![(1000.0, 45_000.0), (100_000.0, 45_000.0)], 10_000.0, 100_000.0, 1.0)
}

fn seen(flash: u64) -> Observed {
    Observed {
        seconds: MONTH_SECONDS / 1000.0,
        memory: 2000 * PAGE,
        flash,
        volume: 1 << 30,
        object: 100 << 30,
        page_bytes: PAGE,
        store_share: 0.5,
        puts: 1000,
    }
}

#[test]
fn a_point_has_the_misses_and_the_money_of_its_size() {
    let prices = Prices::default();
    let small = point(&curve(), &seen(0), &prices, 2000 * PAGE, 0).unwrap();
    assert!((small.memory_miss - 0.55).abs() < 1e-9 && small.miss == small.memory_miss && small.is_current);
    let memory = 2000.0 * PAGE as f64 / GB * 1.6;
    assert!((small.storage - (memory + 0.152 + 1.6)).abs() < 1e-9, "{}", small.storage);
    // 100 000 reads a thousandth of a month, half of 55 % of them to the store; a million puts a month.
    assert!((small.requests - (27.5e6 / 1000.0 * 0.0004 + 5.0)).abs() < 1e-6, "{}", small.requests);
    let large = point(&curve(), &seen(0), &prices, 2000 * PAGE, 100_000 * PAGE).unwrap();
    assert!((large.miss - 0.1).abs() < 1e-9 && (large.memory_miss - 0.55).abs() < 1e-9 && !large.is_current);
    assert!((large.storage - small.storage - 100_000.0 * PAGE as f64 / GB * 0.05).abs() < 1e-9);
}

#[test]
fn the_grid_has_the_sizes_in_force_once() {
    for flash in [0, 8000 * PAGE] {
        let points = points(&curve(), &seen(flash), &Prices::default());
        assert_eq!(points.iter().filter(|p| p.is_current).count(), 1, "flash {flash}");
        assert!(
            points.len() >= 12
                && points.iter().any(|p| p.flash == 0)
                && points.iter().any(|p| p.flash > flash)
        );
        assert!(points.iter().all(|p| p.miss <= p.memory_miss));
    }
}

#[test]
fn advice_names_the_flash_that_is_worth_it_and_the_one_that_is_too_large() {
    let said = |flash: u64| advise(&curve(), &seen(flash), &Prices::default(), None).pop().unwrap();
    let more = said(60_000 * PAGE);
    assert!(more.contains("flash of 1.8 GB would take away 82 %"), "{more}");
    let less = said(400_000 * PAGE);
    assert!(less.contains("is enough"), "{less}");
    let none = Curve::new(vec![(10.0, 90_000.0)], 10_000.0, 100_000.0, 1.0);
    assert_eq!(advise(&none, &seen(0), &Prices::default(), None).pop().unwrap(), "Advice: the sizes fit.");
    let few = Curve::new(vec![], 10.0, 10.0, 1.0);
    assert_eq!(advise(&few, &seen(0), &Prices::default(), None).len(), 1);
}

#[test]
fn an_empty_curve_has_no_points() {
    let none = Curve::new(vec![], 0.0, 0.0, 1.0);
    assert!(points(&none, &seen(PAGE), &Prices::default()).is_empty());
}

/// A smaller flash that costs more was called enough, and one that saves something not named.
#[test]
fn among_indistinguishable_sizes_the_cheapest_is_advised() {
    // A little of what flash has is asked of the store without it: less than can be told from chance, and dear.
    let curve = Curve::new(vec![(100.0, 99_000.0), (3000.0, 500.0)], 500.0, 100_000.0, 1.0);
    let seen = Observed { seconds: 7200.0, store_share: 1.0, ..seen(16_000 * PAGE) };
    let lines = advise(&curve, &seen, &Prices::default(), None);
    let none = lines.iter().find(|line| line.starts_with("Flash of 0 KB instead of 250 MB")).unwrap();
    assert!(none.contains("no difference that can be told") && none.ends_with("more a month."), "{none}");
    assert_eq!(lines.last().unwrap(), "Advice: flash of 62 MB is enough, and saves $0.0092 a month.");
    // What flash has costs nothing to ask for on the volume.
    let seen = Observed { store_share: 0.0, ..seen };
    let last = advise(&curve, &seen, &Prices::default(), None).pop().unwrap();
    assert_eq!(last, "Advice: flash of 0 KB is enough, and saves $0.0122 a month.");
    // Where it is the cheapest itself, it stays.
    let seen = Observed { store_share: 1.0, flash: 1000 * PAGE, ..seen };
    let lines = advise(&curve, &seen, &Prices::default(), None);
    assert!(!lines.iter().any(|line| line.ends_with("less a month.")), "{lines:?}");
    assert_eq!(lines.last().unwrap(), "Advice: the sizes fit.");
}

/// Requests of some minutes were extrapolated to a month silently.
#[test]
fn a_short_measurement_is_reported_as_short() {
    let said = |seconds: f64| {
        let seen = Observed { seconds, ..seen(8000 * PAGE) };
        let lines = advise(&curve(), &seen, &Prices::default(), None);
        lines.into_iter().find(|line| line.contains("too short a time"))
    };
    assert!(said(45.0).unwrap().contains("since the engine's start, for 45 s:"));
    assert!(said(3599.0).unwrap().contains("for 59 min:"));
    assert_eq!(said(3600.0), None);
    let near = Observed { seconds: 60.0, store_share: 0.0, puts: 0, ..seen(8000 * PAGE) };
    let lines = advise(&curve(), &near, &Prices::default(), None);
    assert!(!lines.iter().any(|line| line.contains("too short")), "there are no requests: {lines:?}");
}

/// It was "flash (0 KB)", and "the sizes fit".
#[test]
fn failed_flash_is_reported_first() {
    let seen = Observed { seconds: 7200.0, ..seen(8000 * PAGE) };
    let lines = advise(&curve(), &seen, &Prices::default(), Some("8 errors in a row, the last: cut"));
    let first = &lines[0];
    assert!(
        first.starts_with("Flash has failed and is not used (8 errors in a row, the last: cut)"),
        "{first}"
    );
    assert!(first.contains("restart") && lines[1].contains("flash (125 MB)"), "{lines:?}");
    assert!(lines.last().unwrap().starts_with("Advice, once flash is used again: "), "{lines:?}");
    let few = advise(&Curve::new(vec![], 10.0, 10.0, 1.0), &seen, &Prices::default(), Some("why"));
    assert!(few.len() == 2 && few[0].contains("(why)"), "{few:?}");
}
