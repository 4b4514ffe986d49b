//! Whether two values are the same, however they are encoded.

use terrace_kv::rdb::Object;
use terrace_kv::value::stream::{Stream, StreamId};

fn sorted<T: Ord>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort();
    values
}

pub fn same(one: &Object, other: &Object) -> bool {
    match (one, other) {
        (Object::String(one), Object::String(other)) => one == other,
        (Object::List(one), Object::List(other)) => one == other,
        (Object::Set(one), Object::Set(other)) => sorted(one) == sorted(other),
        (Object::Hash(one), Object::Hash(other)) => sorted(one) == sorted(other),
        (Object::ExpiringHash(one), Object::ExpiringHash(other)) => {
            let fields = |fields: &[terrace_kv::rdb::object::ExpiringField]| {
                sorted(
                    fields.iter().map(|field| (field.field.clone(), field.value.clone(), field.expires_ms)),
                )
            };
            fields(one) == fields(other)
        }
        (Object::Zset(one), Object::Zset(other)) => {
            let members = |members: &[(Vec<u8>, f64)]| {
                // Both zeros are one score.
                sorted(members.iter().map(|(member, score)| (member.clone(), (score + 0.0).to_bits())))
            };
            members(one) == members(other)
        }
        (Object::Stream(one), Object::Stream(other)) => same_stream(one, other),
        _ => false,
    }
}

/// Without what the commands for replicas do not carry, so that a replica of Redis has it differently too: the times at which consumers were seen, and how many
/// entries a group has read.
fn same_stream(one: &Stream, other: &Stream) -> bool {
    let marks = |stream: &Stream| (stream.last_id, stream.max_deleted_id, stream.entries_added);
    let (start, end) = (StreamId::new(0, 0), StreamId::new(u64::MAX, u64::MAX));
    if marks(one) != marks(other) || one.len() != other.len() {
        return false;
    }
    let mut entries = one.range(start, end).zip(other.range(start, end));
    let are_same = entries.all(|(one, other)| {
        let pairs = |entry: &terrace_kv::value::stream::Entry<'_>| {
            let owned = entry.pairs().map(|(field, value)| (field.to_vec(), value.to_vec()));
            owned.collect::<Vec<_>>()
        };
        one.id == other.id && pairs(&one) == pairs(&other)
    });
    let groups = |stream: &Stream| {
        sorted(stream.groups().map(|(name, group)| {
            let pending: Vec<_> = group
                .pending()
                .iter()
                .map(|(id, pending)| {
                    (*id, pending.consumer.to_vec(), pending.delivered_ms, pending.deliveries)
                })
                .collect();
            let consumers: Vec<_> = group.consumers().keys().map(|name| name.to_vec()).collect();
            (name.to_vec(), group.last_id, pending, consumers)
        }))
    };
    are_same && groups(one) == groups(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(texts: &[&str]) -> Vec<Vec<u8>> {
        texts.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    #[test]
    fn order_counts_in_lists_alone() {
        assert!(same(&Object::Set(strings(&["a", "b"])), &Object::Set(strings(&["b", "a"]))));
        assert!(!same(&Object::Set(strings(&["a", "b"])), &Object::Set(strings(&["a", "c"]))));
        assert!(!same(&Object::List(strings(&["a", "b"])), &Object::List(strings(&["b", "a"]))));
        assert!(!same(&Object::List(strings(&["a"])), &Object::Set(strings(&["a"]))));
        let zset = |members: &[(&str, f64)]| {
            Object::Zset(members.iter().map(|(name, score)| (name.as_bytes().to_vec(), *score)).collect())
        };
        assert!(same(&zset(&[("a", 0.0), ("b", 2.0)]), &zset(&[("b", 2.0), ("a", -0.0)])));
        assert!(!same(&zset(&[("a", 1.0)]), &zset(&[("a", 2.0)])));
    }
}
