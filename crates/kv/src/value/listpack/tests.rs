use super::*;
use proptest::prelude::*;

fn pack(elements: &[&[u8]]) -> Listpack {
    let mut pack = Listpack::new();
    for element in elements {
        pack.push_back(element);
    }
    pack
}

#[test]
fn bytes_are_those_of_redis() {
    let small = pack(&[b"a", b"1", b"-1", b"5000"]);
    assert_eq!(
        small.as_bytes(),
        [0, 0, 0, 0, 4, 0, 0x81, b'a', 2, 1, 1, 0xDF, 0xFF, 2, 0xF1, 0x88, 0x13, 3, 0xFF][..]
            .to_vec()
            .tap_total()
    );
    let long = pack(&[&[b'x'; 200]]);
    assert_eq!(&long.as_bytes()[6..8], [0xE0, 200]);
    assert_eq!(&long.as_bytes()[208..], [1, 128 | (202 - 128), 0xFF]);
}

trait TapTotal {
    fn tap_total(self) -> Vec<u8>;
}

impl TapTotal for Vec<u8> {
    /// Writes the total into the header, so that the test states only the elements.
    fn tap_total(mut self) -> Vec<u8> {
        let total = self.len() as u32;
        self[..4].copy_from_slice(&total.to_le_bytes());
        self
    }
}

#[test]
fn numbers_of_every_width_come_back() {
    for value in [
        0i64,
        127,
        128,
        -1,
        4095,
        4096,
        -4096,
        -4097,
        32767,
        32768,
        -32768,
        -32769,
        8388607,
        8388608,
        -8388608,
        -8388609,
        i64::from(i32::MAX),
        i64::from(i32::MIN),
        1 << 31,
        i64::MAX,
        i64::MIN,
    ] {
        let pack = pack(&[value.to_string().as_bytes()]);
        assert!(matches!(pack.get(pack.first().unwrap()), Element::Int(own) if own == value), "{value}");
    }
}

#[test]
fn damaged_bytes_are_refused() {
    let good = pack(&[b"alpha", b"12", &[7; 300]]);
    assert!(Listpack::from_bytes(good.as_bytes().to_vec()).is_ok());
    for cut in 0..good.byte_len() {
        assert!(Listpack::from_bytes(good.as_bytes()[..cut].to_vec()).is_err());
    }
    let mut count = good.as_bytes().to_vec();
    count[4] = 9;
    assert!(Listpack::from_bytes(count).is_err());
    let mut backlen = good.as_bytes().to_vec();
    backlen[12] ^= 1;
    assert!(Listpack::from_bytes(backlen).is_err());
}

#[test]
fn more_than_65535_elements_are_counted() {
    let mut pack = Listpack::new();
    for at in 0..65_600u32 {
        pack.push_back(at.to_string().as_bytes());
    }
    assert_eq!(pack.len(), 65_600);
    pack.remove_run(pack.first().unwrap(), 100);
    assert_eq!(pack.len(), 65_500);
    assert!(Listpack::from_bytes(pack.as_bytes().to_vec()).is_ok());
}

#[derive(Debug, Clone)]
enum Step {
    PushBack(Vec<u8>),
    PushFront(Vec<u8>),
    InsertBefore(usize, Vec<u8>),
    InsertAfter(usize, Vec<u8>),
    Replace(usize, Vec<u8>),
    RemoveRun(usize, usize),
    SplitAndAppend(usize),
}

fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..12),
        prop::collection::vec(any::<u8>(), 60..200),
        Just(vec![b'y'; 5000]),
        any::<i64>().prop_map(|value| value.to_string().into_bytes()),
        (-5000i64..5000).prop_map(|value| value.to_string().into_bytes()),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        element().prop_map(Step::PushBack),
        element().prop_map(Step::PushFront),
        (any::<usize>(), element()).prop_map(|(at, data)| Step::InsertBefore(at, data)),
        (any::<usize>(), element()).prop_map(|(at, data)| Step::InsertAfter(at, data)),
        (any::<usize>(), element()).prop_map(|(at, data)| Step::Replace(at, data)),
        (any::<usize>(), 0usize..4).prop_map(|(at, count)| Step::RemoveRun(at, count)),
        any::<usize>().prop_map(Step::SplitAndAppend),
    ]
}

proptest! {
    #[test]
    fn a_listpack_equals_a_vector(steps in prop::collection::vec(step(), 0..80)) {
        let (mut pack, mut model) = (Listpack::new(), Vec::<Vec<u8>>::new());
        for step in steps {
            let at = |at: usize| at % model.len().max(1);
            match step {
                Step::PushBack(data) => { pack.push_back(&data); model.push(data); }
                Step::PushFront(data) => { pack.push_front(&data); model.insert(0, data); }
                _ if model.is_empty() => {}
                Step::InsertBefore(index, data) => {
                    let index = at(index);
                    let pos = pack.insert_before(pack.at(index).unwrap(), &data);
                    prop_assert!(pack.get(pos).is(&data));
                    model.insert(index, data);
                }
                Step::InsertAfter(index, data) => {
                    let index = at(index);
                    let pos = pack.insert_after(pack.at(index).unwrap(), &data);
                    prop_assert!(pack.get(pos).is(&data));
                    model.insert(index + 1, data);
                }
                Step::Replace(index, data) => {
                    let index = at(index);
                    pack.replace(pack.at(index).unwrap(), &data);
                    model[index] = data;
                }
                Step::RemoveRun(index, count) => {
                    let index = at(index);
                    let end = (index + count).min(model.len());
                    let next = pack.remove_run(pack.at(index).unwrap(), count);
                    model.drain(index..end);
                    prop_assert_eq!(next.map(|pos| pack.get(pos).to_vec()), model.get(index).cloned());
                }
                Step::SplitAndAppend(index) => {
                    let index = at(index);
                    let tail = pack.split_off(pack.at(index).unwrap());
                    prop_assert_eq!((pack.len(), tail.len()), (index, model.len() - index));
                    pack.append(&tail);
                }
            }
            prop_assert_eq!(pack.len(), model.len());
        }
        prop_assert!(pack.iter().map(Element::to_vec).eq(model.iter().cloned()));
        prop_assert!(pack.iter().rev().map(Element::to_vec).eq(model.iter().rev().cloned()));
        if let (Some(first), Some(sought)) = (pack.first(), model.last()) {
            let found = pack.find(sought, first, 1).unwrap();
            prop_assert!(pack.get(found).is(sought));
        }
        prop_assert_eq!(Listpack::from_bytes(pack.as_bytes().to_vec()).unwrap(), pack);
    }
}
