//! Commit statuses as adapters send them.

use crate::foreign_text::clean;
use sluice_core::hex::sha256_hex;

/// The most characters of a status's name. GitLab ("Commits API", `name`) and Bitbucket Data Center (`key`)
/// accept no more.
pub(crate) const MAX_NAME_CHARS: usize = 255;
/// The most characters of a description, if a forge has no lower limit: GitLab and Bitbucket Data Center accept no more.
pub(crate) const MAX_DESCRIPTION_CHARS: usize = 255;
/// The hexadecimal digits at the end of a name that was shortened.
const HASH_DIGITS: usize = 16;

/// The progress of a promotion after its merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromotionProgress {
    /// The targets do not run it yet.
    Pending,
    /// The targets run it, healthily.
    Success,
    /// The promotion ended in any other way.
    Failure,
}

impl PromotionProgress {
    /// The word of a forge for this progress.
    pub(crate) fn word(
        self,
        pending: &'static str,
        success: &'static str,
        failure: &'static str,
    ) -> &'static str {
        match self {
            PromotionProgress::Pending => pending,
            PromotionProgress::Success => success,
            PromotionProgress::Failure => failure,
        }
    }
}

/// A commit status.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitStatus<'a> {
    pub(crate) progress: PromotionProgress,
    /// The name of the status on its commit.
    pub(crate) context: &'a str,
    pub(crate) description: &'a str,
    /// The page of the change request.
    pub(crate) url: &'a str,
    /// The branch that has the commit.
    pub(crate) base: &'a str,
}

impl CommitStatus<'_> {
    /// The name, in at most this many characters. A hash keeps shortened names different.
    pub(crate) fn name(&self, most: usize) -> String {
        if self.context.chars().count() <= most {
            return self.context.into();
        }
        let beginning: String = self.context.chars().take(most - HASH_DIGITS - 1).collect();
        format!("{beginning}-{}", &sha256_hex(self.context.as_bytes())[..HASH_DIGITS])
    }

    /// The description, in one line of at most this many characters.
    pub(crate) fn description(&self, most: usize) -> String {
        clean(self.description, most - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_descriptions_are_shortened_and_names_stay_different() {
        let status = |context: &'static str| CommitStatus {
            progress: PromotionProgress::Pending,
            context,
            description: "waits\nuntil prod runs 6.1.8 and is healthy",
            url: "https://git.example.com/1",
            base: "main",
        };
        let short = status("sluice/apps/podinfo/prod");
        assert_eq!(short.name(40), short.context);
        let [one, other] = ["production-eu", "production-us"].map(|environment| {
            let context = format!("sluice/team-platform/podinfo-frontend/{environment}");
            status(context.leak()).name(40)
        });
        assert_eq!((one.len(), other.len()), (40, 40));
        assert!(one != other && one.starts_with("sluice/team-platform/po-"), "{one} {other}");
        assert_eq!(short.description(140), "waits until prod runs 6.1.8 and is healthy");
        assert_eq!(short.description(10), "waits unt…");
    }
}
