//! Checks and approvals of a change request.

use super::check_outcome::CheckOutcome;
use super::merge_style::Style;
use super::pull::Pull;

/// Why a change request is not merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The forge has not computed the mergeability yet.
    Unknown,
    Conflicts,
    Draft,
    /// This check is not green.
    Check(String),
    /// The number of missing approvals.
    Approvals(usize),
    Behind,
    Merged,
    /// This merge method is not allowed.
    Style(Style),
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Obstacle::Unknown => f.write_str("Whether it can be merged is not known yet."),
            Obstacle::Conflicts => f.write_str("It has conflicts."),
            Obstacle::Draft => f.write_str("It is a draft."),
            Obstacle::Check(name) => write!(f, "Required status check {name} is not green."),
            Obstacle::Approvals(missing) => write!(f, "You still need {missing} approval"),
            Obstacle::Behind => f.write_str("The head branch is behind the base branch"),
            Obstacle::Merged => f.write_str("It is merged already."),
            Obstacle::Style(_) => f.write_str("It may not be merged in this way."),
        }
    }
}

/// Returns the page with the details of a check.
pub(super) fn details(name: &str) -> String {
    format!("https://ci.example.com/{name}")
}

impl Pull {
    /// Returns the reported checks of the head.
    pub(super) fn reported(&self) -> Vec<(&str, CheckOutcome)> {
        self.reported_on(&self.sha)
    }

    fn reported_on(&self, commit: &str) -> Vec<(&str, CheckOutcome)> {
        let of_it = self.checks.iter().filter(|(_, _, sha)| sha == commit);
        of_it.map(|(name, is, _)| (name.as_str(), *is)).collect()
    }

    /// Returns a page of the reported checks of the head, and the start of the next page.
    pub(super) fn reported_from(
        &self,
        from: usize,
        size: usize,
    ) -> (Vec<(&str, CheckOutcome)>, Option<usize>) {
        let all = self.reported();
        let next = (from + size < all.len()).then_some(from + size);
        (all.into_iter().skip(from).take(size).collect(), next)
    }

    /// Returns the required checks; those without a report are pending.
    pub(super) fn required(&self) -> Vec<(&str, CheckOutcome)> {
        let of = |name: &str| self.reported().iter().rev().find(|(n, _)| *n == name).map(|(_, is)| *is);
        self.requires.iter().map(|name| (name.as_str(), of(name).unwrap_or(CheckOutcome::Pending))).collect()
    }

    /// Returns the combined outcome of the reported checks of a commit.
    pub(super) fn combined(&self, commit: &str) -> CheckOutcome {
        let all: Vec<CheckOutcome> = self.reported_on(commit).iter().map(|(_, is)| *is).collect();
        match all.contains(&CheckOutcome::Failed) {
            true => CheckOutcome::Failed,
            false if all.contains(&CheckOutcome::Pending) => CheckOutcome::Pending,
            false => CheckOutcome::Green,
        }
    }

    /// Returns the number of missing approvals of the head.
    pub(super) fn missing(&self) -> usize {
        self.needs.saturating_sub(self.approvals.iter().filter(|sha| **sha == self.sha).count())
    }

    /// Returns true if the forge has computed the mergeability.
    pub(super) fn is_known(&self) -> bool {
        self.unknown_for == 0
    }

    /// Returns the reason why it cannot be merged.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        if self.conflicts {
            return Some(Obstacle::Conflicts);
        }
        if self.draft || self.title.starts_with("Draft:") || self.title.starts_with("WIP:") {
            return Some(Obstacle::Draft);
        }
        if let Some((name, _)) = self.required().iter().find(|(_, is)| *is != CheckOutcome::Green) {
            return Some(Obstacle::Check(name.to_string()));
        }
        if self.missing() > 0 {
            return Some(Obstacle::Approvals(self.missing()));
        }
        self.behind.then_some(Obstacle::Behind)
    }
}
