//! The files of a Pipeline that a person proposes for a repository: what would change, and what became of it.

/// An answer to a person who proposes files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProposedFile {
    /// Nothing is written yet: the person must confirm this.
    Planned(PlannedFiles),
    /// A change request is open.
    Opened {
        /// Its number.
        number: u64,
        /// Its page at the forge.
        url: String,
        /// What the forge did not take, a sentence each.
        notes: Vec<String>,
    },
    /// The branch has these files already.
    AlreadyThere,
}

/// What a change request would change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedFiles {
    /// The address of the repository.
    pub repository: String,
    /// The branch that the change request goes to.
    pub branch: String,
    /// The files that change.
    pub files: Vec<PlannedFile>,
    /// What the person sends back to confirm this change of these texts.
    pub confirmation: String,
}

/// What a change request would change in one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedFile {
    /// The path of the file.
    pub path: String,
    /// Whether there is no such file yet.
    pub is_new: bool,
    /// The line in which the change begins, from 1.
    pub line: usize,
    /// The lines that go.
    pub removed: Vec<String>,
    /// The lines that come.
    pub added: Vec<String>,
}

impl PlannedFile {
    /// Returns the lines that differ between two texts: all from the first to the last one that does.
    pub fn new(path: &str, before: Option<&str>, after: &str) -> PlannedFile {
        let old: Vec<&str> = before.unwrap_or_default().lines().collect();
        let new: Vec<&str> = after.lines().collect();
        let begin = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
        let most = old.len().min(new.len()) - begin;
        let end =
            old.iter().rev().zip(new.iter().rev()).take(most).take_while(|(old, new)| old == new).count();
        let part =
            |lines: &[&str]| lines[begin..lines.len() - end].iter().map(|line| (*line).into()).collect();
        PlannedFile {
            is_new: before.is_none(),
            line: begin + 1,
            removed: part(&old),
            added: part(&new),
            path: path.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_that_differs_is_shown() {
        for (before, after, expected) in [
            (None, "a\nb\n", (true, 1, "", "a b")),
            (Some("s\n---\na\n---\nt\n"), "s\n---\nb\nc\n---\nt\n", (false, 3, "a", "b c")),
            (Some("a\na\nb\n"), "a\nb\n", (false, 2, "a", "")),
            (Some("a\n"), "a\na\n", (false, 2, "", "a")),
            (Some("a\n"), "a\n", (false, 2, "", "")),
        ] {
            let planned = PlannedFile::new("a.yaml", before, after);
            let (removed, added) = (planned.removed.join(" "), planned.added.join(" "));
            assert_eq!((planned.is_new, planned.line, &*removed, &*added), expected, "{before:?} {after:?}");
        }
    }
}
