//! A large list beside rows as storage keeps them: what is changed is stored, what is evicted is read again, and the list stays what a vector is.

use super::*;
use crate::value::limits::CollectionLimits;
use crate::value::list::Side;
use proptest::prelude::*;

/// A list in memory and in storage.
struct Both {
    list: List,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    reads: usize,
    loads: usize,
}

impl Both {
    fn new(elements: &[Vec<u8>]) -> Both {
        let mut list = List::new();
        elements.iter().for_each(|data| list.push(End::Right, data, &CollectionLimits::default()));
        assert!(list.is_to_be_large());
        list.become_large(1);
        let mut both = Both { list, rows: BTreeMap::new(), reads: 0, loads: 0 };
        both.store();
        both
    }

    /// Stores what was changed, and checks that head and rows agree.
    fn store(&mut self) {
        for changed in self.list.large_mut().unwrap().take_changed() {
            assert_eq!(changed.existed, self.rows.contains_key(&*changed.name), "{changed:?}");
            match self.list.stored_element(&changed.name) {
                Some(stored) => _ = self.rows.insert(changed.name.to_vec(), stored.value),
                None => _ = self.rows.remove(&*changed.name),
            }
        }
        let len = |row: &Vec<u8>| Listpack::from_bytes(row.clone()).unwrap().len() as u64;
        let head = self.list.head().unwrap();
        assert_eq!(self.rows.values().map(len).sum::<u64>(), head.len);
        assert_eq!(Head::parse(&head.bytes()), Ok(Some(head)));
        let numbers: Vec<u64> = self.rows.keys().map(|name| parse_name(name).unwrap()).collect();
        let packs = head.packs.unwrap();
        if let (Some(&first), Some(&last)) = (numbers.first(), numbers.last()) {
            assert!(packs.first <= first && last <= packs.last, "{numbers:?} {packs:?}");
            let even = (packs.first..=packs.last).step_by(STEP as usize);
            assert!(!packs.is_even || even.eq(numbers.iter().copied()), "{numbers:?} {packs:?}");
        }
    }

    fn load(&mut self) {
        if self.list.large().unwrap().is_complete() {
            return;
        }
        self.loads += 1;
        let mut names: Vec<&Vec<u8>> = self.rows.keys().collect();
        names.sort_by_key(|name| large_position(name));
        for name in names {
            let stored = ElementValue { expires_ms: None, value: self.rows[name].clone() };
            self.list.admit(name, &stored).unwrap();
        }
        self.list.end_load().unwrap();
        assert!(self.list.large().unwrap().is_complete());
    }

    /// Reads what is missing of a part.
    fn read(&mut self, part: &ListPart) {
        for _ in 0..100 {
            match self.list.missing(part) {
                Missing::Nothing => return,
                Missing::Whole => self.load(),
                Missing::Packs { to_read, .. } => {
                    assert!(!to_read.is_empty());
                    self.reads += to_read.len();
                    for name in to_read {
                        let stored = ElementValue { expires_ms: None, value: self.rows[&name[..]].clone() };
                        self.list.admit(&name, &stored).unwrap();
                    }
                }
            }
        }
        panic!("{part:?} is never there");
    }

    fn restart(&mut self) {
        let head = Head::parse(&self.list.head().unwrap().bytes()).unwrap().unwrap();
        self.list = List::of_head(&head);
    }

    fn all(&mut self) -> Vec<Vec<u8>> {
        self.load();
        self.list.iter().map(|element| element.to_vec()).collect()
    }
}

fn large_position(name: &[u8]) -> u64 {
    crate::value::large::position(name)
}

#[derive(Debug, Clone)]
enum Step {
    Push(bool, Vec<u8>),
    Pop(bool, usize),
    Get(i64),
    Window(i64, i64),
    Trim(usize, usize),
    Set(usize, Vec<u8>),
    Insert(usize, bool, Vec<u8>),
    RemoveEqual(usize),
    Evict(usize),
    Restart,
}

fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => (0u8..60).prop_map(|value| value.to_string().into_bytes()),
        4 => (100usize..700, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        1 => (2000usize..5000).prop_map(|len| vec![b'z'; len]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (any::<bool>(), element()).prop_map(|(left, data)| Step::Push(left, data)),
        4 => (any::<bool>(), 1usize..9).prop_map(|(left, count)| Step::Pop(left, count)),
        2 => (-40i64..40).prop_map(Step::Get),
        2 => (-30i64..30, -30i64..30).prop_map(|(start, stop)| Step::Window(start, stop)),
        1 => (0usize..6, 0usize..6).prop_map(|(left, right)| Step::Trim(left, right)),
        1 => (any::<usize>(), element()).prop_map(|(at, data)| Step::Set(at, data)),
        1 => (any::<usize>(), any::<bool>(), element()).prop_map(|(at, before, data)| Step::Insert(at, before, data)),
        1 => any::<usize>().prop_map(Step::RemoveEqual),
        4 => (1usize..12).prop_map(Step::Evict),
        2 => Just(Step::Restart),
    ]
}

fn end_of(left: bool) -> End {
    if left { End::Left } else { End::Right }
}

proptest! {
    #[test]
    fn a_large_list_equals_a_vector_whatever_is_in_memory(
        elements in prop::collection::vec(element(), 0..100),
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let limits = CollectionLimits::default();
        // Large whatever the others are.
        let elements: Vec<Vec<u8>> = (0..20u8).map(|byte| vec![byte; 600]).chain(elements).collect();
        let (mut both, mut model) = (Both::new(&elements), elements);
        let misses = crate::value::large::misses();
        for step in steps {
            match step {
                Step::Push(left, data) => {
                    both.read(&ListPart::Push(end_of(left)));
                    both.list.push(end_of(left), &data, &limits);
                    if left { model.insert(0, data) } else { model.push(data) }
                }
                _ if model.len() < 20 => {}
                Step::Pop(left, count) => {
                    let part = if left { ListPart::Ends { left: count, right: 0 } } else { ListPart::Ends { left: 0, right: count } };
                    both.read(&part);
                    for _ in 0..count {
                        let expected = if left { model.remove(0) } else { model.pop().unwrap() };
                        prop_assert_eq!(both.list.pop(end_of(left)).map(Vec::from), Some(expected));
                    }
                }
                Step::Get(index) => {
                    both.read(&ListPart::Index(index));
                    let at = if index < 0 { index + model.len() as i64 } else { index };
                    let at = usize::try_from(at).ok().filter(|&at| at < model.len());
                    prop_assert_eq!(at.and_then(|at| both.list.get(at)).map(|found| found.to_vec()), at.map(|at| model[at].clone()));
                }
                Step::Window(start, stop) => {
                    both.read(&ListPart::Window(start, stop));
                    let range = crate::command::collections::index_range(start, stop, model.len());
                    if range.is_empty() {
                        continue;
                    }
                    let found: Vec<Vec<u8>> =
                        both.list.iter_from(range.start).take(range.len()).map(|found| found.to_vec()).collect();
                    prop_assert_eq!(&found, &model[range]);
                }
                Step::Trim(left, right) => {
                    both.read(&ListPart::Outside(left as i64, -1 - right as i64));
                    both.list.remove_range(model.len() - right, usize::MAX);
                    both.list.remove_range(0, left);
                    model.truncate(model.len() - right);
                    model.drain(..left);
                }
                Step::Set(at, data) => {
                    both.load();
                    let at = at % model.len();
                    prop_assert!(both.list.set(at, &data, &limits));
                    model[at] = data;
                }
                Step::Insert(at, before, data) => {
                    both.load();
                    let pivot = model[at % model.len()].clone();
                    let first = model.iter().position(|element| *element == pivot).unwrap();
                    let side = if before { Side::Before } else { Side::After };
                    prop_assert!(both.list.insert(&pivot, side, &data, &limits));
                    model.insert(first + usize::from(!before), data);
                }
                Step::RemoveEqual(at) => {
                    both.load();
                    let data = model[at % model.len()].clone();
                    both.list.remove_equal(&data, End::Left, 0);
                    model.retain(|element| *element != data);
                }
                Step::Evict(count) => _ = both.list.evict_elements(count, |_| true),
                Step::Restart => both.restart(),
            }
            both.store();
            both.list.check_invariants();
            prop_assert_eq!(both.list.len(), model.len());
        }
        prop_assert_eq!(crate::value::large::misses(), misses);
        prop_assert_eq!(both.all(), model);
    }
}

fn numbered(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| format!("{number}:{}", "x".repeat(60)).into_bytes()).collect()
}

#[test]
fn an_even_list_is_read_from_its_ends_and_never_whole() {
    let mut both = Both::new(&numbered(20_000));
    both.restart();
    both.read(&ListPart::Ends { left: 1, right: 1 });
    assert_eq!((both.reads, both.loads), (2, 0));
    for round in 0..200 {
        both.read(&ListPart::Ends { left: 0, right: 7 });
        (0..7).for_each(|_| _ = both.list.pop(End::Right));
        both.read(&ListPart::Push(End::Left));
        both.list.push(End::Left, format!("new {round}").as_bytes(), &CollectionLimits::default());
        both.store();
        if round % 50 == 0 {
            both.restart();
        }
    }
    assert_eq!(both.loads, 0);
    // Thirty elements a listpack.
    assert!(both.reads < 70, "{}", both.reads);
    assert_eq!(both.list.len(), 20_000 - 1400 + 200);
}

#[test]
fn a_change_of_one_element_changes_one_row_of_bounded_size() {
    let mut both = Both::new(&numbered(5000));
    let limits = CollectionLimits::default();
    let changes: [fn(&mut List, &CollectionLimits); 5] = [
        |list, limits| list.push(End::Left, b"one", limits),
        |list, limits| list.push(End::Right, b"one", limits),
        |list, _| _ = list.pop(End::Left),
        |list, limits| _ = list.set(2500, b"another", limits),
        |list, _| list.remove_range(1000, 1),
    ];
    for change in changes {
        change(&mut both.list, &limits);
        let changed = both.list.large_mut().unwrap().take_changed();
        assert_eq!(changed.len(), 1);
        let stored = both.list.stored_element(&changed[0].name).unwrap();
        assert!(stored.value.len() <= PACK_BYTES_LARGE, "{}", stored.value.len());
        both.rows.insert(changed[0].name.to_vec(), stored.value);
        both.store();
    }
}

#[test]
fn neighbours_get_new_numbers_when_there_is_none_between_two() {
    let mut both = Both::new(&numbered(300));
    let limits = CollectionLimits::default();
    let pivot = numbered(300)[150].clone();
    let mut rows_changed = 0;
    for number in 0..600 {
        let wide = format!("{number}:{}", "w".repeat(900)).into_bytes();
        both.load();
        assert!(both.list.insert(&pivot, Side::Before, &wide, &limits));
        rows_changed += both.list.large_mut().unwrap().changed_len();
        both.store();
        if number % 100 == 0 {
            both.restart();
        }
    }
    assert!(!both.list.head().unwrap().packs.unwrap().is_even);
    assert!(rows_changed < 600 * 8, "{rows_changed} rows for 600 insertions");
    let all = both.all();
    let at = all.iter().position(|element| *element == pivot).unwrap();
    assert!(
        all[150..at]
            .iter()
            .enumerate()
            .all(|(number, wide)| wide.starts_with(format!("{number}:w").as_bytes()))
    );
    assert_eq!((at, all.len()), (750, 900));
}

#[test]
fn rows_that_disagree_with_the_head_are_errors_and_what_was_changed_stays() {
    let mut both = Both::new(&numbered(500));
    both.restart();
    both.read(&ListPart::Ends { left: 1, right: 1 });
    both.list.push(End::Left, b"new", &CollectionLimits::default());
    let names: Vec<Vec<u8>> = both.rows.keys().cloned().collect();
    let (first, last) = (&names[0], &names[names.len() - 1]);
    // The row of the first one has not been written yet.
    let bad = |value: &[u8]| ElementValue { expires_ms: None, value: value.to_vec() };
    assert_eq!(both.list.admit(&names[1], &bad(b"no listpack")), Err(BadElement));
    assert_eq!(both.list.admit(b"short", &bad(&both.rows[first])), Err(BadElement));
    assert_eq!(both.list.note_absent(&names[1]), Err(BadElement));
    // An old image of a listpack that is in memory, and one that was never there.
    assert_eq!(both.list.admit(first, &bad(&both.rows[last])), Ok(()));
    assert_eq!(both.list.note_absent(first), Ok(()));
    for name in &names[2..names.len() - 1] {
        both.list.admit(name, &bad(&both.rows[name])).unwrap();
    }
    assert_eq!(both.list.end_load(), Err(BadElement), "one is missing");
    assert!(!both.list.large().unwrap().is_complete());
    assert!(both.list.get(0).unwrap().is(b"new"), "what was changed is there");
    both.store();
    both.restart();
    for name in &names[..names.len() - 1] {
        both.list.admit(name, &bad(&both.rows[name])).unwrap();
    }
    let mut pack = Listpack::from_bytes(both.rows[last].clone()).unwrap();
    pack.push_back(b"too much");
    assert_eq!(both.list.admit(last, &bad(pack.as_bytes())), Err(BadElement), "the sum is another");
    assert!(!both.list.large().unwrap().is_complete());
    both.list.admit(last, &bad(&both.rows[last])).unwrap();
    assert!(both.list.large().unwrap().is_complete());
    assert!(both.list.get(0).unwrap().is(b"new"));
    assert_eq!(both.list.len(), 501);
}
