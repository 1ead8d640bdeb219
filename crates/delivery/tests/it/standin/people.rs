//! Who has an account, by the names and numbers that each forge knows people by.

use sluice_delivery::ForgeKind;

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
