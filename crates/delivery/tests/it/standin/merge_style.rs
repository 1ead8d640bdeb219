//! The merge methods of each forge.

/// A merge method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Merge,
    Squash,
    Rebase,
}

impl Style {
    pub const ALL: [Style; 3] = [Style::Merge, Style::Squash, Style::Rebase];

    /// Selects the name of this method.
    pub(super) fn word(
        self,
        merge: &'static str,
        squash: &'static str,
        rebase: &'static str,
    ) -> &'static str {
        match self {
            Style::Merge => merge,
            Style::Squash => squash,
            Style::Rebase => rebase,
        }
    }

    /// Returns the method with a name.
    pub(super) fn of(
        word: &str,
        merge: &'static str,
        squash: &'static str,
        rebase: &'static str,
    ) -> Option<Style> {
        Style::ALL.into_iter().find(|style| style.word(merge, squash, rebase) == word)
    }
}
