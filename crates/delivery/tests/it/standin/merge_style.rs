//! The merge methods of each forge.

use sluice_delivery::ForgeKind;
use sluice_testkit::{Landing, Repo};

use super::Pull;

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

impl Pull {
    /// Merges the change request as the forge does with this method.
    pub(super) fn land(&mut self, kind: ForgeKind, repo: &Repo, style: Style, message: Option<String>) {
        let title = match style {
            Style::Merge => format!("Merge {} into {}", self.head, self.base),
            _ => format!("{} (#{})", self.title, self.number),
        };
        let message = match (kind, message) {
            (_, None) => title,
            // GitLab uses the message for a squash only.
            (ForgeKind::GitLab, Some(_)) if style == Style::Merge => title,
            (
                ForgeKind::GitHub | ForgeKind::Gitea | ForgeKind::Forgejo | ForgeKind::BitbucketServer,
                Some(more),
            ) => {
                format!("{title}\n\n{more}")
            }
            (_, Some(whole)) => whole,
        };
        let is_ahead = matches!(kind, ForgeKind::GitLab | ForgeKind::Bitbucket | ForgeKind::BitbucketServer);
        let how = match style {
            Style::Merge => Landing::Merge(&message),
            Style::Squash if kind == ForgeKind::GitLab => Landing::SquashAndMerge(&message),
            Style::Squash => Landing::Squash(&message),
            Style::Rebase if is_ahead => Landing::FastForward,
            Style::Rebase => Landing::Rebase,
        };
        (self.open, self.merged) = (false, Some(repo.land(&self.sha, &self.base, how).unwrap()));
    }
}
