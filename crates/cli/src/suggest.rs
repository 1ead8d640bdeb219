//! What there is when what was asked for is not: the nearest name, or all of them.

/// The end of a sentence that says a name does not exist. `kinds` is the plural of what was looked
/// for; `here` says where, for example `namespace apps`.
pub(crate) fn instead(asked: &str, there: &[String], kinds: &str, here: &str) -> String {
    let nearest = there.iter().min_by_key(|name| (distance(asked, name), (*name).clone()));
    match nearest {
        None => format!("; {here} has no {kinds}"),
        Some(name) if distance(asked, name) <= asked.chars().count().max(3) / 3 || contains(asked, name) => {
            format!("; did you mean {name}?")
        }
        Some(_) if there.len() <= 10 => format!("; there are: {}", there.join(", ")),
        Some(_) => format!("; there are {} others", there.len()),
    }
}

/// Returns the name that was probably meant.
pub(crate) fn nearest<'a>(asked: &str, there: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let nearest = there.min_by_key(|name| (distance(asked, name), *name))?;
    // Two letters that changed places count as two.
    let near = distance(asked, nearest) <= asked.chars().count().div_ceil(3).max(2);
    (near || contains(asked, nearest)).then_some(nearest)
}

fn contains(asked: &str, name: &str) -> bool {
    asked.len() >= 3 && (name.contains(asked) || asked.contains(name))
}

/// How many letters to put in, take out or change to make one of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_counted() {
        for (a, b, n) in [("", "", 0), ("podinfoo", "podinfo", 1), ("kitten", "sitting", 3), ("", "abc", 3)] {
            assert_eq!(distance(a, b), n, "{a} {b}");
        }
    }

    #[test]
    fn the_nearest_name_is_offered_and_otherwise_all() {
        let there = ["podinfo".to_owned(), "shop-frontend".to_owned()];
        assert_eq!(instead("podinfoo", &there, "pipelines", "namespace apps"), "; did you mean podinfo?");
        assert_eq!(
            instead("frontend", &there, "pipelines", "namespace apps"),
            "; did you mean shop-frontend?"
        );
        assert_eq!(
            instead("xyz", &there, "pipelines", "namespace apps"),
            "; there are: podinfo, shop-frontend"
        );
        assert_eq!(instead("xyz", &[], "pipelines", "namespace apps"), "; namespace apps has no pipelines");
    }
}
