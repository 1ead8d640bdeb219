//! Commit statuses: how a promotion goes, shown on the commit that its merged change request has left on the base.
//! Never on the head of an open one: there it would be a check that keeps Sluice itself from merging.

use crate::deliver::Inner;
use crate::error::DeliveryError;
use crate::forge::{AnyForge, Forge, ForgeError, State, clean};
use crate::git::hex_hash;
use crate::order::{ChangeRequest, ForgeKind, Order, Strategy};

/// The most characters of a status's name. GitLab ("Commits API", `name`) and Bitbucket Data Center (`key`)
/// take no more.
pub(crate) const NAME: usize = 255;
/// The most characters of a description, where a forge does not take fewer: GitLab and Bitbucket Data Center
/// take no more than these.
pub(crate) const DESCRIPTION: usize = 255;
/// The hexadecimal digits at the end of a name that was shortened.
const DIGITS: usize = 16;

/// How a promotion goes that was merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The targets do not run it yet.
    Pending,
    /// The targets run it, healthily.
    Success,
    /// It ended in any other way.
    Failure,
}

impl Progress {
    /// The word of a forge for it.
    pub(crate) fn word(
        self,
        pending: &'static str,
        success: &'static str,
        failure: &'static str,
    ) -> &'static str {
        match self {
            Progress::Pending => pending,
            Progress::Success => success,
            Progress::Failure => failure,
        }
    }
}

/// What a commit status says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status<'a> {
    pub(crate) progress: Progress,
    /// What it is known by on its commit.
    pub(crate) context: &'a str,
    pub(crate) description: &'a str,
    /// The page of the change request.
    pub(crate) url: &'a str,
    /// The branch that has the commit.
    pub(crate) base: &'a str,
}

impl Status<'_> {
    /// What it is known by, in so many characters at most. A hash keeps apart what would look the same then.
    pub(crate) fn name(&self, most: usize) -> String {
        if self.context.chars().count() <= most {
            return self.context.into();
        }
        let beginning: String = self.context.chars().take(most - DIGITS - 1).collect();
        format!("{beginning}-{}", &hex_hash(self.context.as_bytes())[..DIGITS])
    }

    /// What it says, in one line of so many characters at most.
    pub(crate) fn description(&self, most: usize) -> String {
        clean(self.description, most - 1)
    }
}

/// Reports on the commit that the change request of an order has left on its base, as its forge shows it: the merge
/// commit or, where the forge shows none, the head that was merged. On one that is not merged nothing is reported.
pub(crate) async fn report(
    inner: &Inner,
    order: &Order,
    request: &ChangeRequest,
    (progress, description): (Progress, &str),
) -> Result<(), DeliveryError> {
    let Strategy::PullRequest { forge: kind, .. } = &order.strategy else { return Ok(()) };
    let Some((forge, base)) = inner.forge_of(order)? else { return Ok(()) };
    let Some(commit) = merged_as(&forge, request).await? else { return Ok(()) };
    let context = format!("sluice/{}", order.subject());
    let status = Status { progress, context: &context, description, url: &request.url, base };
    forge.report(&commit, &status).await.map_err(|error| may_not(*kind, error).into())
}

/// The commit that a change request has left on its base.
async fn merged_as(forge: &AnyForge, request: &ChangeRequest) -> Result<Option<String>, ForgeError> {
    let found = forge.get(request.number).await?;
    let Some(found) = found.filter(|found| found.request.url == request.url) else { return Ok(None) };
    let State::Merged { commit } = found.state else { return Ok(None) };
    Ok(Some(if commit.is_empty() { found.request.head_commit } else { commit }))
}

/// The same error; one about rights names the right. The token is valid and sees the repository: the change request
/// was read with it a moment ago.
fn may_not(kind: ForgeKind, error: ForgeError) -> ForgeError {
    let right = right(kind);
    match error {
        ForgeError::Authentication { forge, says } | ForgeError::Forbidden { forge, says } => {
            ForgeError::MayNotReport { forge, says, right }
        }
        // "404 Commit Not Found" or "References for commit Not Found" (lib/api/commit_statuses.rb of gitlabhq/gitlabhq).
        ForgeError::NoRepository { forge, .. } if kind == ForgeKind::GitLab => {
            let says = "the merge commit is not on the base branch any more".into();
            ForgeError::Refused { forge, status: 404, says }
        }
        // GitHub answers so to a classic token without the scope.
        ForgeError::NoRepository { forge, .. } => {
            ForgeError::MayNotReport { forge, says: "status 404".into(), right }
        }
        other => other,
    }
}

/// What a token needs to write commit statuses.
///
/// - GitHub: docs.github.com/rest/authentication/permissions-required-for-fine-grained-personal-access-tokens.
/// - GitLab: `Ci::CreateCommitStatusService` of gitlabhq/gitlabhq asks for `update_pipeline` of the branch, which
///   docs.gitlab.com/user/permissions gives to Developers, on a protected branch to those who may push or merge.
/// - Gitea and Forgejo: `reqRepoWriter(unit.TypeCode)` in routers/api/v1/api.go.
/// - Bitbucket Cloud and Data Center: "Create a build status for a commit" and "Store a build status" in their
///   published descriptions.
/// - Azure DevOps: `vso.code_status` or `vso.code_write` in MicrosoftDocs/vsts-rest-api-specs, "Statuses_Create".
fn right(kind: ForgeKind) -> &'static str {
    match kind {
        ForgeKind::GitHub => "Commit statuses: read and write (a classic token: repo:status)",
        ForgeKind::GitLab => "the scope api and the role Developer, or one that may push to that branch",
        ForgeKind::Gitea | ForgeKind::Forgejo => "the scope write:repository and write access to the code",
        ForgeKind::Bitbucket => "the right to read the repository",
        ForgeKind::BitbucketServer => "the right to read the repository",
        ForgeKind::AzureDevOps => "the scope Code (status) or Code (read & write)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_descriptions_are_as_short_as_a_forge_needs_them_and_names_stay_apart() {
        let status = |context: &'static str| Status {
            progress: Progress::Pending,
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
