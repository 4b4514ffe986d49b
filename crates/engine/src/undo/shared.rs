//! What two versions of a row have in common: a number of bytes at their start and at their end. Undo keeps only the rest of the older one.

const WORD: usize = 8;
/// Below this many bytes in common it is not worth noting: their numbers and the sum take up to ten.
const WORTH: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shared {
    /// Bytes.
    pub front: usize,
    pub back: usize,
}

impl Shared {
    /// None: too little.
    pub fn of(old: &[u8], new: &[u8]) -> Option<Shared> {
        let front = same(old.chunks(WORD).zip(new.chunks(WORD)), |old, new| {
            old.iter().zip(new).take_while(|(old, new)| old == new).count()
        });
        let back = same(old[front..].rchunks(WORD).zip(new[front..].rchunks(WORD)), |old, new| {
            old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count()
        });
        Some(Shared { front, back }).filter(|shared| shared.front + shared.back >= WORTH)
    }

    /// What the other version has not.
    pub fn between(self, version: &[u8]) -> &[u8] {
        &version[self.front..version.len() - self.back]
    }

    /// The older version from the newer one and from what lies between. None: the newer one is too short.
    pub fn join(self, head: &[u8], between: &[u8], new: &[u8]) -> Option<Vec<u8>> {
        let back = new.len().checked_sub(self.back).filter(|back| *back >= self.front)?;
        Some([head, &new[..self.front], between, &new[back..]].concat())
    }
}

/// Bytes that are the same, word by word, and of the first two words that differ as many as `within` says.
fn same<'a>(
    words: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    within: impl Fn(&[u8], &[u8]) -> usize,
) -> usize {
    let mut len = 0;
    for (old, new) in words {
        if old.len() != WORD || old != new {
            return len + within(old, new);
        }
        len += WORD;
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_and_the_newer_version_give_the_older_one() {
        let base: Vec<u8> = (0..60).collect();
        let mut versions: Vec<Vec<u8>> = vec![Vec::new(), base.clone(), [&base[..], &base[..]].concat()];
        for (from, upto) in [(0, 0), (0, 1), (0, 20), (7, 9), (8, 16), (30, 31), (59, 60), (44, 60), (0, 60)]
        {
            for with in [&[][..], &[200], &[200, 201, 202, 203, 204, 205, 206, 207, 208], &[31, 30]] {
                versions.push([&base[..from], with, &base[upto..]].concat());
            }
        }
        let mut found = 0;
        for old in &versions {
            for new in &versions {
                let Some(shared) = Shared::of(old, new) else { continue };
                found += 1;
                let between = shared.between(old);
                assert_eq!(shared.join(b"head", between, new).unwrap(), [b"head", &old[..]].concat());
                assert_eq!(old.len(), shared.front + between.len() + shared.back);
                // As much as there is.
                let other = shared.between(new);
                let differ = |a: Option<&u8>, b: Option<&u8>| a.is_none() || b.is_none() || a != b;
                assert!(differ(between.first(), other.first()) && differ(between.last(), other.last()));
            }
        }
        assert!(found > 500, "{found}");
        assert_eq!(Shared::of(&base, &base).unwrap(), Shared { front: 60, back: 0 });
        assert_eq!(Shared::of(&base[..15], &base[..15]), None);
        assert_eq!(Shared { front: 40, back: 21 }.join(b"", b"", &base), None);
    }
}
