//! The users of the forges, with the names and numbers of each forge.

use sluice_delivery::ForgeKind;

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
