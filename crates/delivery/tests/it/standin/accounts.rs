//! The users of the forges, with the names and numbers of each forge.

use sluice_delivery::ForgeKind;

use super::{Pull, StandIn};

/// Returns the name of a user who may review and be assigned.
pub fn joe(kind: ForgeKind) -> &'static str {
    match kind {
        ForgeKind::Bitbucket => "{504c3b62-8120-4f0c-a7bc-87800b9d6f70}",
        ForgeKind::AzureDevOps => "d6245f20-2af8-44f4-9451-8107cb2767db",
        _ => "joe",
    }
}

/// Returns the name of the user of the token.
pub fn author(kind: ForgeKind) -> &'static str {
    match kind {
        ForgeKind::Bitbucket => "{aaaa3b62-8120-4f0c-a7bc-87800b9d6f70}",
        ForgeKind::AzureDevOps => "aaaa5f20-2af8-44f4-9451-8107cb2767db",
        _ => "sluice",
    }
}

/// The users of forges where users have numbers: the index plus one.
pub(super) const PEOPLE: [&str; 3] = ["jane", "joe", "sluice"];

pub(super) fn number_of(name: &str) -> Option<usize> {
    PEOPLE.iter().position(|one| *one == name).map(|at| at + 1)
}

impl StandIn {
    /// Another user opens a change request from a branch of the repository.
    pub fn open_by_hand(&self, head: &str, sha: &str) {
        self.forge_state(|b| {
            let (number, text) = (b.pulls.len() as u64 + 1, String::from);
            let (title, body) = (text("Promote apps/podinfo in prod to 6.1.7"), text("do not edit"));
            b.pulls.push(Pull::new(number, title, body, head.into(), text("main"), sha.into()));
        });
    }

    /// Another user opens a change request from a branch with this name in a fork.
    pub fn open_from_a_fork(&self, head: &str) {
        self.open_from_fork(head, false);
    }

    /// The same from a fork that belongs to the owner of the repository.
    pub fn open_from_a_fork_of_the_owner(&self, head: &str) {
        self.open_from_fork(head, true);
    }

    fn open_from_fork(&self, head: &str, same_owner: bool) {
        self.forge_state(|b| {
            let number = b.pulls.len() as u64 + 1;
            let text = String::from;
            b.pulls.push(Pull {
                fork: true,
                same_owner,
                ..Pull::new(number, text("Mine"), text("?"), head.into(), text("main"), "1".repeat(40))
            });
        });
    }
}
