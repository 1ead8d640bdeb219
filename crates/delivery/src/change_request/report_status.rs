//! Reports the progress of a promotion as a commit status on the commit that its merged change request left on the base
//! branch. Never on the head of an open change request: there it would be a check that keeps Sluice from merging.

use super::job::ChangeRequestJob;
use crate::error::DeliveryResult;
use crate::forge::{ChangeRequestState, CommitStatus, Forge, ForgeError, ForgeResult, PromotionProgress};
use crate::forge_kind::ForgeKind;
use crate::order::Order;
use crate::outcome::ChangeRequest;
use crate::resources::Resources;

/// Reports on the commit that the merged change request left on the base branch: the merge commit or, if the forge
/// returns none, the head that was merged. Reports nothing if the change request is not merged.
pub(crate) async fn report(
    resources: &Resources,
    order: &Order,
    request: &ChangeRequest,
    (progress, description): (PromotionProgress, &str),
) -> DeliveryResult<()> {
    let Some(job) = ChangeRequestJob::of(resources, order)? else { return Ok(()) };
    let Some(commit) = merged_commit(&*job.forge, request).await? else { return Ok(()) };
    let (context, base) = (format!("sluice/{}", order.subject()), job.target.base);
    let status = CommitStatus { progress, context: &context, description, url: &request.url, base };
    let reported = job.forge.report(&commit, &status).await;
    reported.map_err(|error| with_missing_right(job.target.kind, error).into())
}

/// The commit that a merged change request left on the base branch.
async fn merged_commit(forge: &dyn Forge, request: &ChangeRequest) -> ForgeResult<Option<String>> {
    let found = forge.get(request.number).await?;
    let Some(found) = found.filter(|found| found.request.url == request.url) else { return Ok(None) };
    let ChangeRequestState::Merged { commit } = found.state else { return Ok(None) };
    Ok(Some(if commit.is_empty() { found.request.head_commit } else { commit }))
}

/// The same error. An error about rights names the missing right: the token is valid and sees the repository, because
/// the change request was read with it before.
fn with_missing_right(kind: ForgeKind, error: ForgeError) -> ForgeError {
    let right = needed_right(kind);
    match error {
        ForgeError::Authentication { forge, says } | ForgeError::Forbidden { forge, says } => {
            ForgeError::MayNotReport { forge, says, right }
        }
        // "404 Commit Not Found" or "References for commit Not Found" (lib/api/commit_statuses.rb of gitlabhq/gitlabhq).
        ForgeError::NoRepository { forge, .. } if kind == ForgeKind::GitLab => {
            let says = "the merge commit is not on the base branch any more".to_string().into();
            ForgeError::Refused { forge, status: 404, says }
        }
        // GitHub answers this to a classic token without the scope.
        ForgeError::NoRepository { forge, .. } => {
            ForgeError::MayNotReport { forge, says: "status 404".into(), right }
        }
        other => other,
    }
}

/// The right that a token needs to write commit statuses.
///
/// - GitHub: docs.github.com/rest/authentication/permissions-required-for-fine-grained-personal-access-tokens.
/// - GitLab: `Ci::CreateCommitStatusService` of gitlabhq/gitlabhq asks for `update_pipeline` of the branch, which
///   docs.gitlab.com/user/permissions gives to Developers, on a protected branch to those who may push or merge.
/// - Gitea and Forgejo: `reqRepoWriter(unit.TypeCode)` in routers/api/v1/api.go.
/// - Bitbucket Cloud and Data Center: "Create a build status for a commit" and "Store a build status" in their
///   published descriptions.
/// - Azure DevOps: `vso.code_status` or `vso.code_write` in MicrosoftDocs/vsts-rest-api-specs, "Statuses_Create".
fn needed_right(kind: ForgeKind) -> &'static str {
    match kind {
        ForgeKind::GitHub => "Commit statuses: read and write (a classic token: repo:status)",
        ForgeKind::GitLab => "the scope api and the role Developer, or one that may push to that branch",
        ForgeKind::Gitea | ForgeKind::Forgejo => "the scope write:repository and write access to the code",
        ForgeKind::Bitbucket => "the right to read the repository",
        ForgeKind::BitbucketServer => "the right to read the repository",
        ForgeKind::AzureDevOps => "the scope Code (status) or Code (read & write)",
    }
}
