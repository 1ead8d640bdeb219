//! What a change request needs before it may be merged, as every forge keeps it in its own words.

use super::Pull;

/// How a check has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Is {
    Green,
    Pending,
    Failed,
}

impl Is {
    /// The word of a forge for it.
    pub(super) fn word(
        self,
        green: &'static str,
        pending: &'static str,
        failed: &'static str,
    ) -> &'static str {
        match self {
            Is::Green => green,
            Is::Pending => pending,
            Is::Failed => failed,
        }
    }
}

impl Pull {
    /// The checks of its head that have reported.
    pub(super) fn reported(&self) -> Vec<(&str, Is)> {
        self.reported_on(&self.sha)
    }

    fn reported_on(&self, commit: &str) -> Vec<(&str, Is)> {
        let of_it = self.checks.iter().filter(|(_, _, sha)| sha == commit);
        of_it.map(|(name, is, _)| (name.as_str(), *is)).collect()
    }

    /// A page of them, and where the next one begins.
    pub(super) fn reported_from(&self, from: usize, size: usize) -> (Vec<(&str, Is)>, Option<usize>) {
        let all = self.reported();
        let next = (from + size < all.len()).then_some(from + size);
        (all.into_iter().skip(from).take(size).collect(), next)
    }

    /// The checks that are required, reported or not.
    pub(super) fn required(&self) -> Vec<(&str, Is)> {
        let of = |name: &str| self.reported().iter().rev().find(|(n, _)| *n == name).map(|(_, is)| *is);
        self.requires.iter().map(|name| (name.as_str(), of(name).unwrap_or(Is::Pending))).collect()
    }

    /// All that have reported on a commit, as one.
    pub(super) fn altogether(&self, commit: &str) -> Is {
        let all: Vec<Is> = self.reported_on(commit).iter().map(|(_, is)| *is).collect();
        match all.contains(&Is::Failed) {
            true => Is::Failed,
            false if all.contains(&Is::Pending) => Is::Pending,
            false => Is::Green,
        }
    }

    /// How many approvals of its head are missing.
    pub(super) fn missing(&self) -> usize {
        self.needs.saturating_sub(self.approvals.iter().filter(|sha| **sha == self.sha).count())
    }

    /// Why it is not merged.
    pub(super) fn obstacle(&self) -> Option<String> {
        if self.draft || self.title.starts_with("Draft:") || self.title.starts_with("WIP:") {
            return Some("it is a draft".into());
        }
        if let Some((name, _)) = self.required().iter().find(|(_, is)| *is != Is::Green) {
            return Some(format!("Required status check {name} is not green."));
        }
        if self.missing() > 0 {
            return Some(format!("You still need {} approval", self.missing()));
        }
        self.behind.then(|| "The head branch is behind the base branch".into())
    }
}
