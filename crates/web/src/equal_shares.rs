//! Limits the number of rows, so that each group keeps an equal share of them.

use std::collections::HashMap;

use sluice_view::fleet::versions::RunningVersion;

/// Keeps at most `limit` of the rows from `first` on. Only groups with more rows than an equal share lose some, so that a group
/// with many rows does not hide those of others.
pub(crate) fn keep_equal_shares(
    rows: &mut Vec<RunningVersion>,
    first: usize,
    limit: usize,
    group: impl Fn(&RunningVersion) -> &String,
) {
    if rows.len() <= first + limit {
        return;
    }
    let mut sizes: HashMap<&String, usize> = HashMap::new();
    for row in &rows[first..] {
        *sizes.entry(group(row)).or_default() += 1;
    }
    // With more groups than rows, some groups keep one row.
    let share = equal_share(sizes.into_values().collect(), limit).max(1);
    let mut kept: HashMap<String, usize> = HashMap::new();
    let candidates = rows.split_off(first);
    let stays = |row: &RunningVersion| {
        let kept = kept.entry(group(row).clone()).or_default();
        *kept += 1;
        *kept <= share
    };
    rows.extend(candidates.into_iter().filter(stays).take(limit));
}

/// Returns how much each may have at most, so that all sizes together are at most `limit`.
fn equal_share(mut sizes: Vec<usize>, limit: usize) -> usize {
    sizes.sort_unstable();
    let mut left = limit;
    for (nth, size) in sizes.iter().enumerate() {
        let share = left / (sizes.len() - nth);
        if *size > share {
            return share;
        }
        left -= size;
    }
    limit
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of namespaces, each with a number of them.
    fn rows(namespaces: &[(&str, usize)]) -> Vec<RunningVersion> {
        let of = |(namespace, count): &(&str, usize)| {
            let namespace = (*namespace).to_string();
            std::iter::repeat_n(RunningVersion { namespace, ..RunningVersion::default() }, *count)
        };
        namespaces.iter().flat_map(of).collect()
    }

    #[test]
    fn only_those_with_more_than_an_equal_share_lose_rows() {
        type Rows = &'static [(&'static str, usize)];
        let table: [(Rows, usize, Rows); 6] = [
            (&[("a", 3), ("b", 2)], 5, &[("a", 3), ("b", 2)]),
            (&[("a", 1000), ("b", 2), ("c", 3)], 10, &[("a", 5), ("b", 2), ("c", 3)]),
            (&[("b", 2), ("a", 1000), ("c", 1000)], 10, &[("b", 2), ("a", 4), ("c", 4)]),
            (&[("a", 9), ("b", 9)], 9, &[("a", 4), ("b", 4)]),
            (&[("a", 2), ("b", 2), ("c", 2)], 2, &[("a", 1), ("b", 1)]),
            (&[], 0, &[]),
        ];
        for (found, limit, expected) in table {
            let mut all = rows(&[("before", 7)]);
            all.extend(rows(found));
            keep_equal_shares(&mut all, 7, limit, |row| &row.namespace);
            assert_eq!(all.split_off(7), rows(expected), "{found:?}, at most {limit}");
            assert_eq!(all, rows(&[("before", 7)]));
        }
    }
}
