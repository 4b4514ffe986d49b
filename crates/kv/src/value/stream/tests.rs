use super::*;
use proptest::prelude::*;

const LIMITS: NodeLimits = NodeLimits { bytes_max: 4096, entries_max: 7 };

#[derive(Debug, Clone)]
enum Step {
    Append { gap: u64, fields: Vec<(Vec<u8>, Vec<u8>)> },
    Delete { which: usize },
    Trim(u64, bool),
    TrimBelow { which: usize, approximate: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let field =
        prop_oneof![Just(b"f".to_vec()), Just(b"17".to_vec()), proptest::collection::vec(any::<u8>(), 0..90)];
    let fields = proptest::collection::vec((field.clone(), field), 1..4);
    prop_oneof![
        6 => (0u64..3, fields).prop_map(|(gap, fields)| Step::Append { gap, fields }),
        3 => any::<usize>().prop_map(|which| Step::Delete { which }),
        1 => (0u64..20, any::<bool>()).prop_map(|(max, approximate)| Step::Trim(max, approximate)),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(which, approximate)| Step::TrimBelow { which, approximate }),
    ]
}

type Model = Vec<(StreamId, Vec<(Vec<u8>, Vec<u8>)>)>;

fn listed<'a>(entries: impl Iterator<Item = Entry<'a>>) -> Model {
    entries
        .map(|entry| (entry.id, entry.pairs().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()))
        .collect()
}

proptest! {
    #[test]
    fn a_stream_holds_what_a_plain_list_would(steps in proptest::collection::vec(step(), 1..120), cut in any::<(usize, usize)>()) {
        let mut stream = Stream::new();
        let mut model: Model = Vec::new();
        let mut next = StreamId::new(1, 0);
        for step in steps {
            match step {
                Step::Append { gap, fields } => {
                    next = if gap == 0 { next.successor().unwrap() } else { StreamId::new(next.ms + gap, 0) };
                    let flat: Vec<&[u8]> = fields.iter().flat_map(|(name, value)| [&name[..], &value[..]]).collect();
                    stream.append(next, &flat, LIMITS);
                    model.push((next, fields));
                }
                Step::Delete { which } => {
                    if model.is_empty() {
                        prop_assert!(!stream.delete(StreamId::new(1, 1)));
                    } else {
                        let (id, _) = model.remove(which % model.len());
                        prop_assert!(stream.delete(id));
                        prop_assert!(!stream.delete(id));
                    }
                }
                Step::Trim(max, approximate) => {
                    let removed = stream.trim(Trim { to: TrimTo::MaxLength(max), approximate, limit: 0 });
                    if approximate {
                        prop_assert!(model.len() as u64 - removed >= max.min(model.len() as u64));
                    } else {
                        prop_assert_eq!(removed, (model.len() as u64).saturating_sub(max));
                    }
                    model.drain(..removed as usize);
                }
                Step::TrimBelow { which, approximate } => {
                    let min = model.get(which % (model.len() + 1)).map_or(next, |(id, _)| *id);
                    let below = model.iter().filter(|(id, _)| *id < min).count() as u64;
                    let removed = stream.trim(Trim { to: TrimTo::MinId(min), approximate, limit: 0 });
                    prop_assert!(removed <= below && (approximate || removed == below));
                    model.drain(..removed as usize);
                }
            }
            prop_assert_eq!(stream.len(), model.len() as u64);
            prop_assert_eq!(stream.first_id, model.first().map_or(StreamId::MIN, |(id, _)| *id));
            prop_assert!(stream.is_consistent());
            prop_assert_eq!(stream.node_bytes, stream.nodes.values().map(Node::heap_bytes).sum::<usize>());
        }
        prop_assert_eq!(&listed(stream.range(StreamId::MIN, StreamId::MAX)), &model);
        let backwards: Model = model.iter().rev().cloned().collect();
        prop_assert_eq!(&listed(stream.range_back(StreamId::MIN, StreamId::MAX)), &backwards);
        if !model.is_empty() {
            let (from, to) = (cut.0 % model.len(), cut.1 % model.len());
            let (start, end) = (model[from].0, model[to].0);
            let expected: Model = model.iter().filter(|(id, _)| (start..=end).contains(id)).cloned().collect();
            prop_assert_eq!(listed(stream.range(start, end)), expected);
        }
    }

    #[test]
    fn identifiers_parse_as_they_are_written(ms in any::<u64>(), seq in any::<u64>()) {
        let id = StreamId::new(ms, seq);
        prop_assert_eq!(StreamId::parse(id.to_string().as_bytes(), 0), Some(id));
        prop_assert_eq!(StreamId::from_bytes(id.to_bytes()), id);
        prop_assert_eq!(id.successor().and_then(StreamId::predecessor).unwrap_or(id), id);
    }
}

#[test]
fn an_entry_is_pending_for_one_consumer_only() {
    let mut group = Group::new(StreamId::MIN, Some(0));
    let (first, second) = (group.see_consumer(b"first", 1), group.see_consumer(b"second", 2));
    let id = StreamId::new(5, 0);
    group.assign(id, Pending { consumer: first.clone(), delivered_ms: 3, deliveries: 1 });
    group.assign(id, Pending { consumer: second.clone(), delivered_ms: 4, deliveries: 2 });
    assert!(group.consumers()[&first].pending().is_empty());
    assert!(group.is_consistent());
    assert_eq!(group.delete_consumer(b"second"), Some(1));
    assert!(group.pending().is_empty() && group.is_consistent());
}
