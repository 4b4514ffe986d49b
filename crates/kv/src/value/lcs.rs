//! The longest common subsequence of two strings, by the table of the lengths for all their beginnings.

/// A run of equal bytes: the first and last position in either string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub first: (usize, usize),
    pub second: (usize, usize),
}

impl Run {
    pub fn len(&self) -> usize {
        self.first.1 - self.first.0 + 1
    }

    pub fn is_empty(&self) -> bool {
        false
    }
}

pub struct Lengths<'a> {
    first: &'a [u8],
    second: &'a [u8],
    /// The length for the beginnings of `i` and `j` bytes stands at `i * (second.len() + 1) + j`.
    table: Vec<u32>,
}

/// Bytes that [`Lengths`] takes for strings of these lengths; `None` if they are beyond what can be addressed.
pub fn table_bytes(first: usize, second: usize) -> Option<usize> {
    first.checked_add(1)?.checked_mul(second.checked_add(1)?)?.checked_mul(4)
}

impl<'a> Lengths<'a> {
    pub fn new(first: &'a [u8], second: &'a [u8]) -> Lengths<'a> {
        let width = second.len() + 1;
        let mut table = vec![0u32; (first.len() + 1) * width];
        for (i, a) in first.iter().enumerate() {
            for (j, b) in second.iter().enumerate() {
                table[(i + 1) * width + j + 1] = if a == b {
                    table[i * width + j] + 1
                } else {
                    table[i * width + j + 1].max(table[(i + 1) * width + j])
                };
            }
        }
        Lengths { first, second, table }
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.table[i * (self.second.len() + 1) + j]
    }

    pub fn total(&self) -> usize {
        self.at(self.first.len(), self.second.len()) as usize
    }

    /// The subsequence, and its runs from the last to the first.
    pub fn trace(&self) -> (Vec<u8>, Vec<Run>) {
        let (mut i, mut j) = (self.first.len(), self.second.len());
        let (mut text, mut runs): (Vec<u8>, Vec<Run>) = (Vec::with_capacity(self.total()), Vec::new());
        while i > 0 && j > 0 {
            if self.first[i - 1] == self.second[j - 1] {
                (i, j) = (i - 1, j - 1);
                text.push(self.first[i]);
                match runs.last_mut() {
                    Some(run) if run.first.0 == i + 1 && run.second.0 == j + 1 => {
                        (run.first.0, run.second.0) = (i, j);
                    }
                    _ => runs.push(Run { first: (i, i), second: (j, j) }),
                }
            } else if self.at(i - 1, j) > self.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        text.reverse();
        (text, runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subsequence_and_its_runs_are_those_of_redis() {
        let lengths = Lengths::new(b"ohmytext", b"mynewtext");
        let (text, runs) = lengths.trace();
        assert_eq!((lengths.total(), text.as_slice()), (6, b"mytext".as_slice()));
        assert_eq!(runs, [Run { first: (4, 7), second: (5, 8) }, Run { first: (2, 3), second: (0, 1) }]);
        assert_eq!(Lengths::new(b"", b"abc").trace(), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_table_that_cannot_be_addressed_has_no_size() {
        assert_eq!(table_bytes(1, 2), Some(24));
        assert_eq!(table_bytes(usize::MAX / 2, 9), None);
    }
}
