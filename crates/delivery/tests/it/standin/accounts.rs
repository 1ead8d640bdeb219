//! The people with an account, by the names and numbers of each forge.

use sluice_delivery::ForgeKind;

use super::{Pull, StandIn};

/// Somebody who may review and be assigned, as a forge names people.
pub fn joe(kind: ForgeKind) -> &'static str {
    match kind {
        ForgeKind::Bitbucket => "{504c3b62-8120-4f0c-a7bc-87800b9d6f70}",
        ForgeKind::AzureDevOps => "d6245f20-2af8-44f4-9451-8107cb2767db",
        _ => "joe",
    }
}

/// Whose token it is.
pub fn author(kind: ForgeKind) -> &'static str {
    match kind {
        ForgeKind::Bitbucket => "{aaaa3b62-8120-4f0c-a7bc-87800b9d6f70}",
        ForgeKind::AzureDevOps => "aaaa5f20-2af8-44f4-9451-8107cb2767db",
        _ => "sluice",
    }
}

/// The numbers of people, where they have some.
pub(super) const PEOPLE: [&str; 3] = ["jane", "joe", "sluice"];

pub(super) fn number_of(name: &str) -> Option<usize> {
    PEOPLE.iter().position(|one| *one == name).map(|at| at + 1)
}

impl StandIn {
    /// Somebody else opens one, from a branch of the repository.
    pub fn open_by_hand(&self, head: &str, sha: &str) {
        self.book(|b| {
            let (number, text) = (b.pulls.len() as u64 + 1, String::from);
            let (title, body) = (text("Promote apps/podinfo in prod to 6.1.7"), text("do not edit"));
            b.pulls.push(Pull::new(number, title, body, head.into(), text("main"), sha.into()));
        });
    }

    /// Somebody opens one from a copy of the repository, out of a branch of this name.
    pub fn open_from_a_fork(&self, head: &str) {
        self.book(|b| {
            let number = b.pulls.len() as u64 + 1;
            let text = String::from;
            b.pulls.push(Pull {
                fork: true,
                ..Pull::new(number, text("Mine"), text("?"), head.into(), text("main"), "1".repeat(40))
            });
        });
    }
}
