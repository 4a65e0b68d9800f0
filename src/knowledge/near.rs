//! Words that look like another.

/// How many letters must be changed, added or taken away to make one of the other.
pub(super) fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let cost = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::edits;

    #[test]
    fn counts_letters() {
        for (a, b, count) in [("", "", 0), ("a", "", 1), ("", "ab", 2), ("4091", "4090", 1), ("kitten", "sitting", 3), ("ä", "a", 1)] {
            assert_eq!(edits(a, b), count, "{a} {b}");
        }
    }
}
