//! Merges a change request if the strategy asks for that: only the commit that Sluice pushed, and only
//! when the forge reports that exactly this commit can be merged.

use sluice_core::pipeline::MergeMode;

use super::job::ChangeRequestJob;
use super::status::{ELSEWHERE, keep_foreign_commits, waits};
use crate::commit_message;
use crate::error::DeliveryResult;
use crate::fault;
use crate::forge::{ForgeChangeRequest, ForgeError, ForgeResult, MergeCall, Readiness, moved, reported};
use crate::order::Order;
use crate::outcome::{ChangeRequest, ChangeRequestLook, ChangeRequestStatus, OutdatedReason, ReportedChecks};
use crate::read_trailers;
use crate::resources::Resources;

/// Reads the status of a change request, merges it once it may be merged, and then deletes its branch. If the order asks for
/// the checks, and no merge has read them, reads them, too.
pub(crate) async fn advance(
    resources: &Resources,
    order: &Order,
    request: &ChangeRequest,
) -> DeliveryResult<ChangeRequestLook> {
    let Some(job) = ChangeRequestJob::of(resources, order)? else {
        return ELSEWHERE.map(ChangeRequestLook::from);
    };
    let ((mut status, found), mut checks) = (job.status(request).await?, None);
    if let ChangeRequestStatus::Open { head, stale } = &mut status
        && job.is_unrecorded(head, request).await?
    {
        *stale = Some(OutdatedReason::Unrecorded);
    }
    if let (ChangeRequestStatus::Open { stale: None, .. }, Some(found)) = (&status, &found)
        && job.target.settings.merge != MergeMode::Never
    {
        status = job.merge(request, found, &mut checks).await?;
    }
    let is_open = matches!(status, ChangeRequestStatus::Open { .. } | ChangeRequestStatus::Waits { .. });
    if is_open && checks.is_none() && order.reads_checks {
        checks = job.read_checks(found.as_ref()).await;
    }
    if let ChangeRequestStatus::Merged { ours: true, head, .. } = &status
        && job.target.settings.delete_branch
    {
        job.delete_branch(head).await;
    }
    Ok(ChangeRequestLook { status: keep_foreign_commits(status, request), checks })
}

impl ChangeRequestJob<'_> {
    /// Whether the head is a commit of Sluice other than the recorded one: the delivery that pushed it was stopped.
    async fn is_unrecorded(&self, head: &str, request: &ChangeRequest) -> DeliveryResult<bool> {
        if head == request.head_commit {
            return Ok(false);
        }
        // Others name the promotion, too.
        let commit = self.forge.commit(head).await?;
        let names_it =
            commit.is_some_and(|commit| read_trailers::carries(&commit.message, &self.order.known_by()));
        Ok(names_it && self.is_made_by_sluice(head).await?)
    }

    /// The checks of an open change request, for people; `None` if they cannot be read. Nothing depends on them.
    async fn read_checks(&self, found: Option<&ForgeChangeRequest>) -> Option<ReportedChecks> {
        let (found, target) = (found?, self.target);
        let read = async {
            let forge = self.resources.forge_for_looks(self.order, target.kind, target.url)?;
            DeliveryResult::Ok(forge.readiness(found, MergeMode::Never).await?)
        };
        match read.await {
            Ok(readiness) => self.reported(&readiness),
            Err(error) => {
                let (promotion, repository) = (&self.order.promotion, self.order.repository());
                tracing::debug!(promotion, repository, %error, "the checks of a change request were not read");
                None
            }
        }
    }

    fn reported(&self, readiness: &Readiness) -> Option<ReportedChecks> {
        reported(readiness, |text| self.order.credentials.redact(text))
    }

    /// Merges an open change request, if it may be merged. Notes its checks, once they are read.
    async fn merge(
        &self,
        request: &ChangeRequest,
        found: &ForgeChangeRequest,
        checks: &mut Option<ReportedChecks>,
    ) -> DeliveryResult<ChangeRequestStatus> {
        let settings = self.target.settings;
        if let Some(status) = self.retargeted(request, found) {
            return Ok(status);
        }
        if found.is_draft {
            return Ok(waits("it is a draft: a person must mark it as ready", false));
        }
        let readiness = self.forge.readiness(found, settings.merge).await?;
        *checks = self.reported(&readiness);
        if let Some(status) = self.blocked(request, &readiness) {
            return Ok(status);
        }
        if !self.is_own_and_on_base(&request.head_commit).await? {
            // Made again, it is the commit of Sluice alone.
            let (promotion, repository) = (&self.order.promotion, self.order.repository());
            tracing::warn!(
                promotion,
                repository,
                number = request.number,
                "the head is not the commit that Sluice would make now for the base branch: it is not merged"
            );
            let stale = Some(OutdatedReason::NotOwn);
            return Ok(ChangeRequestStatus::Open { head: readiness.head.clone(), stale });
        }
        // No forge merges only into a given base branch, and the checks above take a while.
        let Some(now) = self.forge.get(request.number).await? else {
            return Ok(waits("its forge does not show it at the moment", request.queued));
        };
        if let Some(status) = self.retargeted(request, &now) {
            return Ok(status);
        }
        // Bitbucket Cloud does not merge only a given head either.
        if now.request.head_commit != request.head_commit {
            return Ok(waits(moved(&now.request.head_commit, &request.head_commit), request.queued));
        }
        self.order.fencing_token.check()?;
        fault::point("before-merge");
        let message = &commit_message::merge_message(self.order);
        let call = MergeCall { found, readiness: &readiness, mode: settings.merge, message };
        let merged = self.forge.merge(&call).await;
        fault::point("after-merge");
        self.after_merge(request, &readiness, merged).await
    }

    /// The status of a change request that goes to another base branch than the order's.
    fn retargeted(&self, request: &ChangeRequest, found: &ForgeChangeRequest) -> Option<ChangeRequestStatus> {
        let base = self.target.base;
        let why = format!("it goes to {} now, and not to {base}: change that back, or close it", found.base);
        (found.base != base).then(|| waits(why, request.queued))
    }

    /// The status of a change request that cannot be merged now.
    fn blocked(&self, request: &ChangeRequest, readiness: &Readiness) -> Option<ChangeRequestStatus> {
        if readiness.queued {
            return Some(waits("it is in the merge queue", true));
        }
        if let Some(why) = readiness.obstacle(&request.head_commit) {
            let (failed, queued) = (readiness.has_failed(), request.queued);
            return Some(ChangeRequestStatus::Waits { why, failed, queued });
        }
        if readiness.behind {
            return Some(behind(readiness));
        }
        if readiness.checks.is_empty() && !self.order.checks_settled {
            return Some(waits("waits for checks: none has reported yet", false));
        }
        let why = "the merge queue has put it out: look there why, and put it in again by hand";
        request.queued.then(|| waits(why, true))
    }

    /// The status after a merge. Whatever the forge answered: what counts is what it shows now.
    async fn after_merge(
        &self,
        request: &ChangeRequest,
        readiness: &Readiness,
        merged: ForgeResult<()>,
    ) -> DeliveryResult<ChangeRequestStatus> {
        let refused = match merged {
            Ok(()) => None,
            Err(error) if error.may_have_happened() => Some(Err(error)),
            Err(ForgeError::Behind { .. }) => return Ok(behind(readiness)),
            Err(ForgeError::Refused { says, .. }) => Some(Ok(says.to_string())),
            Err(error) => return Err(error.into()),
        };
        let status = self.status(request).await?.0;
        if !matches!(status, ChangeRequestStatus::Open { .. }) {
            return Ok(status);
        }
        match refused {
            None if self.target.settings.merge == MergeMode::Queue => {
                Ok(waits("it is in the merge queue", true))
            }
            None => Ok(waits("its forge merges it", false)),
            Some(Ok(says)) => Ok(waits(format!("its forge does not merge it: {says}"), false)),
            Some(Err(error)) => Err(error.into()),
        }
    }
}

fn behind(readiness: &Readiness) -> ChangeRequestStatus {
    ChangeRequestStatus::Open { head: readiness.head.clone(), stale: Some(OutdatedReason::Behind) }
}
